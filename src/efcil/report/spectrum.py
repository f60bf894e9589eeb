"""The eigenvalues of the Empirical Feature Matrix after every step of a run, where the run has noted them (Fig. 10)."""

from __future__ import annotations

from collections.abc import Sequence

from efcil.report.figure import Figure
from efcil.report.found import Run
from efcil.report.lines import Curves, Series
from efcil.report.scenario import Scenario
from efcil.report.table import Table, cell

ZERO = 1e-6  # an eigenvalue below this part of the greatest is rounding


def spectrum_figures(scenario: Scenario) -> tuple[Sequence[str], list[Figure], list[Figure]]:
    """Sentences, the figures of the first seed of every curve that has a spectrum, and those of the other seeds."""
    shown, more = [], []
    for entry in scenario.entries:
        figures = [spectrum_figure(scenario.run_name(run), run, entry.style) for run in entry.runs]
        kept = [figure for figure in figures if figure is not None]
        shown += kept[:1]
        more += kept[1:]
    text = [
        "Eigenvalues ν of E_t after each step, greatest first; pale curves are early steps. Where λν is above η, above "
        "the line, the matrix decides how stiff a direction of the features is, and not the isotropic part."
    ]
    return text, shown, more


def spectrum_figure(name: str, run: Run, style: int) -> Figure | None:
    steps = [(str(step["step"]), step["spectrum"]) for step in run.metrics["steps"] if step.get("spectrum")]
    if not steps:
        return None
    kept = [(step, [v for v in values if v > ZERO * max(values)]) for step, values in steps]
    longest = max(len(values) for _, values in kept)
    series = [
        Series(f"step {step}", [*values, *[None] * (longest - len(values))], style, shade=0.3 + 0.7 * place / len(kept))
        for place, (step, values) in enumerate(kept, 1)
    ]
    balance = threshold(run)
    rows = [
        [
            cell(step),
            cell(len(values)),
            cell(max(values), 4),
            cell(sorted(values)[len(values) // 2], 4),
            cell(None if balance is None else 100 * sum(v > balance for v in values) / len(values)),
        ]
        for step, values in kept
    ]
    table = Table(f"Spectrum of {name}", ["step", "above zero", "greatest", "median", "percent with λν > η"], rows)
    last, values = kept[-1]
    chart = Curves(
        name,
        f"After step {last} {len(values)} eigenvalues are above zero, the greatest is {max(values):.3g}.",
        "place",
        "eigenvalue ν",
        [str(place + 1) for place in range(longest)],
        series,
        logarithmic=True,
        level=None if balance is None else (balance, "η/λ"),
    )
    return chart.figure(table=table)


def threshold(run: Run) -> float | None:
    """η/λ, from which on the matrix outweighs the isotropic part."""
    strength, isotropic = (run.config.get(f"classifier.options.{name}") for name in ("lambda_efm", "eta"))
    return float(isotropic) / float(strength) if strength and isotropic else None
