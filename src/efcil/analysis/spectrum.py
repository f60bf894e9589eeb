"""Figure 10: the eigenvalues ν of the Empirical Feature Matrix after every step, and the line η/λ (§8.3).

λ pays where λ ν is above η: there the EFM, and not the isotropic part, decides how stiff a direction is. The rank
is the number of classes seen minus one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import median
from textwrap import fill
from typing import Any

from efcil.analysis.runs import Run, fitting, has_efm, has_state, has_two_classes
from efcil.analysis.style import VERMILLION, Rows, darker, panels, pyplot
from efcil.bench.runs import spectrum_of
from efcil.classifier import IncrementalClassifier

COLUMNS = 3  # panels beside each other
LETTERS = 50  # of a title


def spectra(runs: Sequence[Run]) -> Rows:
    """One row per run, step and eigenvalue, as the runs recorded them."""
    rows: Rows = []
    for run in fitting(runs, has_efm, has_two_classes):
        options = run.config.classifier.options
        ratio = options["eta"] / options["lambda_efm"] if options["lambda_efm"] else None
        classes = 0
        for step, count, values in zip(
            run.steps, run.metrics["classes_per_task"], run.recorded("spectrum"), strict=True
        ):
            classes += count
            about = {"run": run.folder.name, "method": run.label, "seed": run.seed, "step": step}
            about |= {"classes": classes, "rank": len(values), "eta/lambda": ratio}
            rows += [{**about, "index": place, "eigenvalue": value} for place, value in enumerate(values, start=1)]
    return rows


def draw(rows: Rows) -> Any:
    runs = list(dict.fromkeys(row["run"] for row in rows))
    figure, axes = panels(min(COLUMNS, len(runs)), width=6.4, height=4.2, rows=ceil(len(runs) / COLUMNS))
    for panel in axes[len(runs) :]:
        panel.set_visible(False)
    for panel, run in zip(axes, runs, strict=False):
        own = [row for row in rows if row["run"] == run]
        steps = list(dict.fromkeys(row["step"] for row in own))
        scale = pyplot().cm.ScalarMappable(pyplot().Normalize(steps[0], steps[-1]), darker("viridis"))
        for step in steps:
            values = [row["eigenvalue"] for row in own if row["step"] == step]
            colour = scale.to_rgba(step)
            panel.plot(range(1, len(values) + 1), values, color=colour, linewidth=1.6)
            panel.plot(len(values), values[-1], "o", color=colour, markersize=4.5)
            classes = next(row["classes"] for row in own if row["step"] == step)
            panel.axvline(classes - 1, color=colour, linewidth=0.7, linestyle=":")
        if (ratio := own[0]["eta/lambda"]) is not None and ratio > 0:
            panel.axhline(ratio, color=VERMILLION, linestyle="--", linewidth=1.4)
            panel.annotate(
                "η/λ",
                (1, ratio),
                (-2, 2),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                color=VERMILLION,
                fontsize=12,
                ha="right",
                va="bottom",
            )
        figure.colorbar(scale, ax=panel, label="step", ticks=steps if len(steps) <= 11 else None)
        panel.set(xlabel="eigenvalue (dotted: classes seen − 1)", ylabel="ν", yscale="log")
        panel.set_title(fill(f"Spectrum of $E_t$: {own[0]['method']}, seed {own[0]['seed']}", LETTERS))
    return figure


def spectrum_rows(runs: Sequence[Run]) -> Rows:
    """The spectrum that each run ended with, in numbers."""
    return [spectrum_row(run) for run in fitting(runs, has_efm, has_two_classes, has_state)]


def spectrum_row(run: Run) -> dict[str, Any]:
    classifier = IncrementalClassifier.load(run.folder / "state.efcil")
    values = spectrum_of(classifier)["spectrum"]
    options = classifier._method.options
    return {
        "run": run.folder.name,
        "features": classifier._fitted()[0].feature_dim,
        "non-zero": len(values),
        "mean": sum(values) / len(values),
        "median": median(values),
        "greatest": values[0],
        "share with λν > η": sum(options.lambda_efm * value > options.eta for value in values) / len(values),
    }
