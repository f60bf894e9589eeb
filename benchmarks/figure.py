"""A_step after every step of several runs, as one picture.

python benchmarks/figure.py runs/digits-cold5_*_seed0 --out docs/figures/digits-cold5.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STYLE = {  # colour and line of each method, the paper's own in front
    "efc++": ("#c1272d", "-", 3.0),
    "efc": ("#e08214", "-", 2.0),
    "freeze": ("#4575b4", "-", 1.6),
    "finetune": ("#7f7f7f", "-", 1.6),
    "joint": ("#222222", ":", 1.6),
}


def main(folders: list[Path], out: Path, title: str) -> None:
    runs = [json.loads((folder / "metrics.json").read_text()) for folder in folders]
    runs.sort(key=lambda run: -run["per_step_accuracy"])
    figure, axes = plt.subplots(figsize=(7, 4), dpi=130, layout="constrained")
    for run in runs:
        classes = [sum(run["classes_per_task"][: i + 1]) for i in range(len(run["steps"]))]
        accuracy = [step["per_step_accuracy"] for step in run["steps"]]
        colour, line, width = STYLE.get(run["method"], (None, "-", 1.6))
        label = run["method"] + (" (upper bound, keeps every image)" if run["method"] == "joint" else "")
        axes.plot(classes, accuracy, line, color=colour, linewidth=width, marker="o", markersize=4, label=label)
    axes.set_xlabel("classes seen")
    axes.set_ylabel("accuracy on all classes seen, %")
    axes.set_xticks(classes)
    axes.set_ylim(0, 102)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=11, loc="left")
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--title", default="")
    arguments = parser.parse_args()
    main(arguments.folders, arguments.out, arguments.title)
