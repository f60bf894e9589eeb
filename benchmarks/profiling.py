"""Where the time of a later task goes, operator by operator: EFC++ with the network of the fast presets.

    OMP_NUM_THREADS=1 python benchmarks/profiling.py

Random images serve as well as real ones, since what is computed does not depend on them.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from efcil import IncrementalClassifier

CLASSES, IMAGES, EPOCHS = 10, 64, 8
SHOWN = 8


def main() -> None:
    rng = np.random.default_rng(0)
    rebalancing = {"epochs": 10, "views": 2}
    options = {"lambda_efm": 1.0, "eta": 0.03, "rebalancing": rebalancing}
    classifier = IncrementalClassifier("efc++", backbone="resnet9", width=32, epochs=EPOCHS, options=options)
    for task in range(2):
        images = rng.integers(0, 256, (CLASSES * IMAGES, 32, 32, 3), np.uint8)
        labels = np.repeat(np.arange(CLASSES), IMAGES) + task * CLASSES
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            classifier.partial_fit(images, labels)
    times = Counter({row.key: row.self_cpu_time_total for row in seen.key_averages()})
    for name, microseconds in times.most_common(SHOWN):
        print(f"{microseconds / times.total():6.1%}  {name}")
    print(f"{times.total() / 1e6:.1f} s in all")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
