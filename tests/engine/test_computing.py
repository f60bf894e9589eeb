"""Precision, compilation and determinism: what they change, and that the defaults change nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from conftest import QUICK, TinyNet, make_blobs, make_learner, run_cli
from efcil import IncrementalClassifier
from efcil.bench.scenarios import config_digest, number_settings
from efcil.config import RunConfig
from efcil.engine import computing
from efcil.engine.progress import Silent, Step

FIRST, SECOND = make_blobs(["cat", "dog"]), make_blobs(["ant", "bee"])
IMAGES = make_blobs(["cat", "dog", "ant", "bee"], 3, seed=1)[0]


class Noting(nn.Module):
    """A backbone that notes in which precision its layers compute, and with what settings of torch."""

    feature_dim = 6
    types: set[torch.dtype] = set()  # noqa: RUF012 (copies note in the same place)
    promised: set[bool] = set()  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.norm = nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        made = self.convolution(x)
        self.types.add(made.dtype)
        self.promised.add(torch.are_deterministic_algorithms_enabled())
        return torch.relu(self.norm(made)).mean((2, 3))


@pytest.fixture(autouse=True)
def forgotten() -> None:
    Noting.types, Noting.promised = set(), set()


def taught(method: str = "efc++", **changes: object) -> IncrementalClassifier:
    options = QUICK.get(method, {})
    classifier = make_learner(method, **{"backbone": Noting(), "options": options, "epochs": 2, **changes})
    return classifier.partial_fit(*FIRST).partial_fit(*SECOND)


@pytest.mark.parametrize("method", ["efc++", "efc", "fecam", "lda", "cargo"])
@pytest.mark.parametrize(("precision", "inside"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_only_the_inside_of_the_network_has_fewer_bits(
    method: str, precision: str, inside: torch.dtype, tmp_path: Path
) -> None:
    expected = taught(method)
    types = {name: tensor.dtype for name, tensor in expected._method.state().items()}
    scores = expected.decision_function(IMAGES)
    Noting.types = set()
    classifier = taught(method, precision=precision)
    assert inside in Noting.types and Noting.types <= {inside, torch.float32}  # a backbone is first tried as it is
    found = classifier.decision_function(IMAGES)
    assert np.isfinite(found).all() and not np.array_equal(found, scores)
    model, _ = classifier._fitted()
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32, torch.int64}
    assert {name: tensor.dtype for name, tensor in classifier._method.state().items()} == types
    assert model.features(torch.zeros(2, 3, 8, 8)).dtype == torch.float32
    classifier.save(tmp_path / "a.efcil")
    loaded = IncrementalClassifier.load(tmp_path / "a.efcil", backbone=Noting())
    assert np.array_equal(loaded.decision_function(IMAGES), found)


def test_features_in_bf16_are_near_those_in_fp32() -> None:
    classifier = taught("finetune")
    model, _ = classifier._fitted()
    x = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        exact = model.features(x)
        model.precision = "bf16"
        rounded = model.features(x)
    assert 0 < (exact - rounded).abs().max() < 0.03 * exact.abs().max()


class Stop(Silent):
    def step(self, step: Step) -> None:
        if step.epoch == 1:
            raise KeyboardInterrupt


def test_the_scale_of_gradients_is_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows after every step here, and a run that was cut off goes on with the grown one."""
    seen: list[float] = []

    def scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
        made = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1, enabled=precision == "fp16")
        scale = made.scale
        monkeypatch.setattr(made, "scale", lambda loss: (seen.append(made.get_scale()), scale(loss))[1])
        return made

    monkeypatch.setattr("efcil.engine.checkpoint.gradient_scaler", scaler)
    settings = {"precision": "fp16", "epochs": 3, "backbone": TinyNet(), "checkpoint_seconds": 0.0}
    path = tmp_path / "checkpoint.efcil"
    with pytest.raises(KeyboardInterrupt):
        make_learner(**settings, watcher=Stop()).partial_fit(*FIRST, checkpoint=path)
    with safe_open(path, framework="pt") as file:
        assert file.get_tensor("scaler.scale").item() == 16.0
    resumed = make_learner(**settings).partial_fit(*FIRST, checkpoint=path)
    assert seen == [8.0, 16.0, 16.0, 32.0]
    seen.clear()
    unbroken = make_learner(**settings).partial_fit(*FIRST)
    assert seen == [8.0, 16.0, 32.0]
    assert np.array_equal(resumed.decision_function(IMAGES), unbroken.decision_function(IMAGES))


def test_results_made_before_there_was_a_precision_still_count() -> None:
    plain = RunConfig()
    assert not {"precision", "compile", "deterministic"} & number_settings(plain)["classifier"].keys()

    def changed(**settings: object) -> RunConfig:
        return dataclasses.replace(plain, classifier=dataclasses.replace(plain.classifier, **settings))

    assert config_digest(changed(precision="bf16")) != config_digest(plain)
    assert config_digest(changed(compile=True, deterministic=True)) == config_digest(plain)


def test_determinism_is_asked_for_while_a_lesson_lasts() -> None:
    taught("efc++", deterministic=True)
    assert Noting.promised == {True, False}  # False: the backbone is tried before the lesson
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ZeroDivisionError), computing.deterministic(True):
        raise ZeroDivisionError
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_a_compiled_network_learns_the_same() -> None:
    expected = make_learner(backbone=TinyNet(), epochs=2).partial_fit(*FIRST)
    classifier = make_learner(backbone=TinyNet(), epochs=2, compile=True).partial_fit(*FIRST)
    model, _ = classifier._fitted()
    assert model.backbone._compiled_call_impl is None
    torch._dynamo.reset()
    np.testing.assert_allclose(
        classifier.decision_function(IMAGES), expected.decision_function(IMAGES), rtol=1e-3, atol=1e-4
    )


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # of torch's compiler, while it is loaded
def test_compiling_lasts_as_long_as_the_lesson() -> None:
    network = TinyNet()
    with computing.compiled(network, True):
        assert network._compiled_call_impl is not None
    assert network._compiled_call_impl is None
    with computing.compiled(network, False):
        assert network._compiled_call_impl is None


@pytest.mark.slow
def test_the_flags_of_run(tmp_path: Path) -> None:
    settings = [
        "width=2",
        "first.epochs=1",
        "incremental.epochs=1",
        "options.rebalancing.epochs=1",
        "data.images_per_class=8",
    ]
    changes = [word for setting in settings for word in ("--set", setting)]
    flags = ["--precision", "bf16", "--deterministic", "--device", "cpu", "--json"]
    done = run_cli("run", "digits-cold5", "--out", tmp_path, *changes, *flags)
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(done.stdout)["folder"])
    assert folder.name.endswith("_precision=bf16")
    assert "precision: bf16" in "".join(path.read_text() for path in folder.glob("*.yaml"))
    refused = run_cli("run", "digits-cold5", "--precision", "fp8")
    assert refused.returncode == 2 and "fp32" in refused.stderr
