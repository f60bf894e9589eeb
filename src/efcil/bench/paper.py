"""The paper's numbers after the last step: (A_step, A_inc) in percent, means over its seeds (Tables 2, 4-8)."""

from __future__ import annotations

Numbers = dict[str, dict[str, tuple[float, float | None]]]

PUBLISHED: Numbers = {
    "cifar100-cold10": {
        "ewc": (31.17, 49.14),
        "lwf": (32.80, 53.91),
        "pass": (30.45, 47.86),
        "fetril": (34.94, 51.20),
        "ssre": (30.40, 47.26),
        "fecam": (37.63, 52.53),
        "abd": (43.11, 59.14),
        "r-dfcil": (42.14, 57.77),
        "efc": (43.62, 58.58),
        "efc++": (47.52, 61.57),
        "efc++ options.drift=none": (46.30, None),
        "efc++ options.regularizer=efim": (23.72, None),
        "efc++ options.regularizer=kd": (39.26, None),
        "efc++ options.regularizer=fd": (40.44, None),
        "efc++ options.drift=oracle": (49.22, None),
        "joint": (71.00, None),
    },
    "cifar100-cold20": {
        "ewc": (17.37, 31.02),
        "lwf": (17.44, 38.39),
        "pass": (17.44, 32.86),
        "fetril": (23.28, 38.48),
        "ssre": (17.52, 32.45),
        "fecam": (23.82, 38.51),
        "abd": (28.93, 47.12),
        "r-dfcil": (30.35, 47.41),
        "efc": (32.15, 47.36),
        "efc++": (33.71, 49.20),
        "efc++ options.drift=none": (31.71, None),
        "efc++ options.regularizer=efim": (14.83, None),
        "efc++ options.regularizer=kd": (26.39, None),
        "efc++ options.regularizer=fd": (29.02, None),
        "efc++ options.drift=oracle": (37.04, None),
        "joint": (71.00, None),
    },
    "cifar100-warm10": {
        "ewc": (21.08, 41.00),
        "lwf": (20.73, 41.95),
        "pass": (53.42, 63.42),
        "fusion": (56.86, 65.10),
        "fetril": (56.79, 65.03),
        "ssre": (57.48, 65.78),
        "fecam": (62.13, 68.87),
        "abd": (44.91, 56.81),
        "r-dfcil": (52.24, 63.09),
        "efc": (60.87, 68.23),
        "efc++": (62.15, 69.26),
    },
    "cifar100-warm20": {
        "ewc": (13.53, 31.79),
        "lwf": (11.78, 28.93),
        "pass": (47.51, 59.55),
        "fusion": (51.75, 61.60),
        "fetril": (52.61, 62.50),
        "ssre": (52.98, 63.11),
        "fecam": (58.74, 67.42),
        "abd": (33.22, 47.55),
        "r-dfcil": (40.97, 55.65),
        "efc": (55.78, 65.90),
        "efc++": (57.55, 67.11),
    },
    "tiny-imagenet-cold10": {"efc": (34.10, 47.95), "efc++": (37.48, 50.18)},
    "tiny-imagenet-cold20": {"efc": (28.69, 42.07), "efc++": (32.56, 45.58)},
    "tiny-imagenet-warm10": {"efc": (50.40, 57.52), "efc++": (51.67, 58.54)},
    "tiny-imagenet-warm20": {"efc": (48.68, 56.52), "efc++": (50.41, 57.79)},
    "imagenet-subset-cold10": {"efc": (47.38, 59.94), "efc++": (53.90, 65.90)},
    "imagenet-subset-cold20": {"efc": (35.75, 49.92), "efc++": (40.86, 55.42)},
    "imagenet-subset-warm10": {"efc": (68.85, 75.40), "efc++": (69.28, 75.71)},
    "imagenet-subset-warm20": {"efc": (62.17, 71.63), "efc++": (62.75, 72.05)},
    "imagenet1k-cold10": {"efc": (42.62, 56.52), "efc++": (44.72, 58.39)},
    "imagenet1k-cold20": {"efc": (36.32, 49.80), "efc++": (37.46, 52.34)},
    "imagenet1k-warm10": {"efc": (59.49, 66.64), "efc++": (59.09, 66.43)},
    "imagenet1k-warm20": {"efc": (55.94, 64.89), "efc++": (54.82, 64.45)},
    "dn4il": {"efc": (38.27, 45.85), "efc++": (39.32, 46.20)},
}


def published(preset: str, label: str) -> tuple[float, float | None] | None:
    """The paper's numbers for this scenario (a CPU preset stands for the full one) and this method with its changes."""
    return PUBLISHED.get(preset.removesuffix("-cpu"), {}).get(label)
