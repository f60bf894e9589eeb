"""Named lists of methods for `efcil bench --methods @NAME`: the rows of the paper's tables and its search grids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from efcil.errors import unknown


@dataclass(frozen=True)
class Grid:
    """Methods, each with its changes, and where they stand in the paper."""

    what: str
    methods: tuple[str, ...]


def variants(**choices: Iterable[object]) -> tuple[str, ...]:
    """EFC++ with every combination of these options: ``efc++:options.eta=0.1,options.sigma=0.2``."""
    names = list(choices)
    return tuple(
        "efc++:" + ",".join(f"options.{name}={value}" for name, value in zip(names, values, strict=True))
        for values in product(*choices.values())
    )


def weights(regularizer: str, values: Iterable[float]) -> tuple[str, ...]:
    return variants(regularizer=[regularizer], lambda_regularizer=values)


def tried(method: str, setting: str, values: Iterable[object]) -> tuple[str, ...]:
    """One setting of a method with each of these values: ``lwf:options.lambda_lwf=3``."""
    return tuple(f"{method}:{setting}={value}" for value in values)


def covariances(**choices: Iterable[object]) -> tuple[str, ...]:
    return variants(**{f"kept_covariance.{name}": values for name, values in choices.items()})


def stream(**settings: object) -> str:
    """Changes of the stream: ``stream.kind=warm,stream.steps=1``."""
    return ",".join(f"stream.{name}={value}" for name, value in settings.items())


LARGE_SCALE = ("fetril", "fecam", "r-dfcil", "efc", "efc++")
DRIFT = (  # means and covariances: fixed, updated by the EFM, or true ones
    *variants(drift=["none"]),
    "efc++",
    *variants(covariance=["oracle"]),
    *variants(drift=["oracle"]),
    *variants(drift=["oracle"], covariance=["oracle"]),
)

GRIDS = {
    "figure1": Grid(
        "Figure 1: first tasks of 10 to 50 classes, then frozen, and joint training",
        (
            *(f"freeze:{stream(kind='warm', first_classes=count, steps=1)}" for count in (10, 20, 30, 40, 50)),
            f"joint:{stream(kind='cold', first_classes=0, steps=1)}",
        ),
    ),
    "figure9": Grid(
        "Figure 9 (on a warm start with 50 classes in step 0): EFC++ on it, and without its step 0 (§8.2)",
        ("efc++", f"efc++:{stream(kind='cold', first_classes=0, skip_classes=50)}"),
    ),
    "table2": Grid(
        "all methods of Table 2",
        ("ewc", "lwf", "pass", "fusion", "fetril", "ssre", "fecam", "abd", "r-dfcil", "efc", "efc++"),
    ),
    "table3": Grid("Table 3: the methods on ImageNet-1K and DN4IL", LARGE_SCALE),
    "table4": Grid(
        "Table 4: regularisers in the place of the EFM, each with its best weight; distillation squared too",
        ("efc++", *variants(regularizer=["efim", "kd", "fd"]), *variants(lambda_efm=[0])),
    ),
    "table5": Grid("Table 5: prototypes updated or not", ("efc++", *variants(drift=["none"]))),
    "table6": Grid(
        "Table 6: means and covariances fixed, updated or true, and joint training",
        (*DRIFT, "joint"),
    ),
    "table7": Grid("Table 7: the methods on ImageNet-1K", LARGE_SCALE),
    "table8": Grid(
        "Table 8: the methods on DN4IL",
        ("ewc", "lwf", "pass", "fetril", "ssre", "fecam", "r-dfcil", "efc", "efc++"),
    ),
    "table9": Grid("Table 9: means and covariances on ImageNet-Subset", DRIFT),
    "table10": Grid("Table 10: means and covariances on Tiny-ImageNet", DRIFT),
    "figure11": Grid(
        "Figure 11 and appendix G: 25 combinations of λ and η",
        variants(lambda_efm=(1, 5, 10, 50, 100), eta=(0.001, 0.01, 0.1, 1, 10)),
    ),
    "efim": Grid("appendix H: weights of E-FIM", weights("efim", (100, 500, 5000, 10000, 100000))),
    "kd": Grid("appendix H: weights of knowledge distillation", weights("kd", (1, 5, 10, 50, 100))),
    "fd": Grid("appendix H: weights of feature distillation", weights("fd", (0.1, 1, 5, 10, 50, 100))),
    "covariances": Grid(
        "how much of each covariance is kept: all of it, leading directions, one for all classes, variances, 16 bits",
        (
            "efc++",
            *covariances(dtype=["float16"]),
            *covariances(kind=["low-rank"], rank=[16, 32, 64]),
            *covariances(kind=["shared", "diagonal"]),
        ),
    ),
    "damping": Grid(
        "cargo with nine weights of the drift, each twice the one before; 1 is its own",
        ("cargo", *(f"cargo:options.damping={2.0**power:g}" for power in (-4, -3, -2, -1, 1, 2, 3, 4))),
    ),
    "recipe": Grid(
        "how the fast presets learn their first task, one ingredient changed at a time (with --set stream.tasks=1)",
        (
            "finetune",
            *(f"finetune:first.schedule={name}" for name in ("milestones", "linear", "cosine")),
            *(f"finetune:first.rotations_shown={turns},first.epochs={24 // turns}" for turns in (2, 4)),
            "finetune:first.rotation=false",
            "finetune:first.label_smoothing=0.1",
            "finetune:augmentation=trivial",
            "finetune:augmentation=trivial,first.label_smoothing=0.1",
            "finetune:backbone=resnet18,width=16,stem_stride=2",
        ),
    ),
    "trials": Grid(
        "four settings of each method of Table 2, tried for the fast presets (with --set stream.tasks=2)",
        (
            *tried("ewc", "options.lambda_efim", (500, 5000, 20000, 100000)),
            *tried("lwf", "options.lambda_lwf", (3, 10, 30, 100)),
            *tried("pass", "incremental.lr", (0.0003, 0.001, 0.003, 0.01)),
            *tried("fusion", "incremental.lr", (0.0001, 0.0003, 0.001, 0.003)),
            *tried("fetril", "options.svm_c", (0.1, 1, 10, 100)),
            *tried("ssre", "incremental.lr", (0.0003, 0.001, 0.003, 0.01)),
            *tried("fecam", "options.gamma1", (0.3, 1, 3, 10)),
            *tried("abd", "incremental.lr", (0.01, 0.03, 0.1, 0.3)),
            *tried("r-dfcil", "incremental.lr", (0.01, 0.03, 0.05, 0.1)),
            *(
                f"{method}:options.lambda_efm={weight},options.eta={eta}"
                for method in ("efc", "efc++")
                for weight, eta in ((1, 0.03), (3, 0.03), (3, 0.01), (1, 0.1))
            ),
        ),
    ),
    "compensators": Grid(
        "ways to carry old prototypes along, beside the paper's",
        ("efc++", *variants(drift=["none", "kernel", "linear", "ridge", "mlp", "adversarial", "dual-projection"])),
    ),
}


def expanded(entries: Iterable[str]) -> list[str]:
    """The entries with every ``@NAME`` replaced by its methods, each method once."""
    found: list[str] = []
    for entry in entries:
        if entry.startswith("@") and entry[1:] not in GRIDS:
            raise unknown("grid", entry[1:], GRIDS)
        found.extend(GRIDS[entry[1:]].methods if entry.startswith("@") else [entry])
    return list(dict.fromkeys(found))
