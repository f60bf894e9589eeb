"""What each method may be told and how it is trained unless told otherwise: bounds, recipes and kinds of methods."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest

from efcil import IncrementalClassifier
from efcil.config import Training
from efcil.errors import UserError
from efcil.methods import METHODS, build_method

INVERSION = {
    **{"inversion.iterations": 0, "inversion.batch_size": 2, "inversion.lr": 0.0, "inversion.latent": 1},
    **{"inversion.width": 1, "inversion.temperature": 1e-3, "inversion.lambda_batchnorm": 0.0},
    "inversion.lambda_smoothness": 0.0,
}
DISTILLATION = {"lambda_lwf": 0.0, "temperature": 1e-3}
REHEARSAL = {"lambda_fd": 0.0, "lambda_pr": 0.0, "temperature": 1e-3}
KEPT = {"kept_covariance.rank": 1}
CONSOLIDATION = {"lambda_efm": 0.0, "eta": 0.0, "sigma": 1e-6, **KEPT}
REBALANCING = {"epochs": 0, "lr": 0.0, "momentum": 0.0, "weight_decay": 0.0, "batch_size": 1, "views": 1}
BOTTLENECK = {"bottleneck": 1, "alpha": 0.0, "beta": 0.0, "gamma": 0.0}
TWO_WAY = {**BOTTLENECK, "lambda_alignment": 0.0, "lambda_cycle": 0.0, "lambda_pairs": 0.0}

LEAST: dict[str, dict[str, float]] = {  # the least value of every number; of shares too, whose greatest is 1
    "cargo": {"damping": 0.0, "rank": 1, "own_share": 0.0, "shrinkage": 1e-6},
    "efc++": {**CONSOLIDATION, **{f"rebalancing.{name}": least for name, least in REBALANCING.items()}},
    "efc": {**CONSOLIDATION, "prototype_batch": 1},
    "ceos-acb": {
        **{**CONSOLIDATION, "prototype_batch": 1, "neighbours": 1, "least_share": 0.0, "beta": 0.0},
        **{"new_count": 1, "start_count": 1, "tasks": 2},
    },
    "finetune": {},
    "freeze": {},
    "joint": {},
    "sdc": {"tradeoff": 0.0, "sigma": 1e-6},
    "acil": {"expansion": 1, "gamma": 1e-9},
    "ds-al": {"expansion": 1, "gamma": 1e-9, "gamma_compensation": 1e-9, "compensation": 0.0},
    "fecam": {"tukey_lambda": 1e-6, "gamma1": 0.0, "gamma2": 0.0, "shrinkages": 0},
    "fetril": {"svm_c": 1e-12, "svm_tolerance": 1e-12},
    "lda": {"heaviest": 1},
    "ranpac": {"expansion": 1, "held_out": 0.0},
    "lwf": DISTILLATION,
    "ewc": {"lambda_efim": 0.0, "alpha": 0.0},
    "mas": {"lambda_mas": 0.0, "alpha": 0.0},
    "si": {"c": 0.0, "xi": 1e-12},
    "rwalk": {"lambda_rwalk": 0.0, "alpha": 0.0, "xi": 1e-12},
    "lfl": {"lambda_e": 0.0},
    "pass": REHEARSAL,
    "il2a": {**REHEARSAL, "ratio": 0.0, "mixes": 0, "beta": 1},
    "ssre": REHEARSAL,
    "fusion": {"lambda_fd": 0.0, "lambda_pr": 0.0, "gamma": 0.0, "tau": 1e-6},
    "abd": {"mu": 0.0, **INVERSION},
    "r-dfcil": {
        **{"lambda_ce": 0.0, "lambda_hkd": 0.0, "lambda_rkd": 0.0, "refinement": 0.0, "refinement_lr": 0.0},
        **INVERSION,
    },
    "ldc": {**DISTILLATION, "epsilon": 1e-12},
    "dpcr": {**DISTILLATION, "epsilon": 1e-12, "gamma": 1e-9},
    "adc": {**DISTILLATION, "attacked": 1, "iterations": 0, "alpha": 0.0},
    "adagauss": {**BOTTLENECK, "lambda_distillation": 0.0},
    "bicyc": {**TWO_WAY, "draws": 2, **{f"adaptation.{name}": least for name, least in REBALANCING.items()}},
    "gatf": {**TWO_WAY, "rho": 1e-9, "anchor_interval": 1e-3, "anchor_keep": 0.0, "anchor_images": 1},
    "apr": {
        **DISTILLATION,
        **{"candidates": 1, "pseudo_batch": 0, "pseudo_iterations": 0, "pseudo_step": 0.0},
        **{"attacked": 1, "attack_batch": 1, "attack_iterations": 1, "attack_limit": 0, "attack_step": 0.0},
        **{"map_epochs": 0, "map_lr": 0.0, "map_batch": 1, "gamma": 0.0},
    },
}


def numbers(options: Any, prefix: str = "") -> Iterator[str]:
    """The names of all settings that are numbers, sections included."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            yield from numbers(value, f"{prefix}{field.name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{field.name}"


def nested(name: str, value: float) -> dict[str, Any]:
    section, _, field = name.rpartition(".")
    return {section: {field: value}} if section else {field: value}


@pytest.mark.parametrize("method", METHODS)
def test_every_number_has_a_least_value_which_is_accepted_and_nothing_below_it(method: str) -> None:
    assert set(numbers(build_method(method, {}).options)) == set(LEAST[method])
    for name, least in LEAST[method].items():
        build_method(method, nested(name, least))
        below = least - 1 if isinstance(least, int) else math.nextafter(least, -math.inf)
        with pytest.raises(UserError, match=name.split(".")[-1]):
            build_method(method, nested(name, below))


def test_a_weight_that_may_be_left_empty_is_not_negative() -> None:
    build_method("efc++", {"regularizer": "kd", "lambda_regularizer": 0.0})
    with pytest.raises(UserError, match="lambda_regularizer must be at least 0"):
        build_method("efc++", {"regularizer": "kd", "lambda_regularizer": -1e-9})


# How later tasks are trained (appendix D.2): what differs from the defaults of Training, which are those of EFC++

COMPARED = {"lr": 1e-3, "milestones": (0.45, 0.9)}
GENERATIVE = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4, "batch_size": 128, "gamma": 0.1}
LARGE_BATCHES = {"batch_size": 256}
TRAINED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("lwf", "ewc", "mas", "si", "rwalk", "lfl", "pass", "il2a", "fusion"), COMPARED),
    **dict.fromkeys(("ldc", "dpcr", "adc", "apr"), COMPARED),
    "ssre": {"lr": 2e-4, "weight_decay": 5e-4, "epochs": 60, "milestones": (0.75,)},
    "abd": {**GENERATIVE, "epochs": 100, "milestones": (0.3, 0.6, 0.8, 0.9)},
    "r-dfcil": {**GENERATIVE, "epochs": 120, "milestones": (0.25, 0.5)},
    **dict.fromkeys(("adagauss", "bicyc", "gatf"), LARGE_BATCHES),
}


@pytest.mark.parametrize("method", METHODS)
def test_later_tasks_are_trained_by_the_recipe_of_the_method(method: str) -> None:
    config = IncrementalClassifier(method).config
    assert config.incremental == dataclasses.replace(Training(), **TRAINED.get(method, {}))
    assert config.first == IncrementalClassifier("finetune").config.first


def test_kinds_of_methods() -> None:
    def those(flag: str) -> set[str]:
        return {name for name, cls in METHODS.items() if getattr(cls, flag)}

    assert those("freezes_backbone") == {"freeze", "acil", "ds-al", "fecam", "fetril", "lda", "ranpac"}
    assert set(METHODS) - those("freezes_batchnorm") == {"joint", "pass", "il2a", "abd", "r-dfcil", "bicyc", "gatf"}
    assert set(METHODS) - those("shares_first_task") == {"si", "rwalk", "adagauss", "bicyc", "gatf"}
    assert set(METHODS) - those("exemplar_free") == {"joint"}
    assert those("validates") == {"lda"}
