"""A table for programs: one record per number, blank ones too, with the scale it was made at."""

from __future__ import annotations

import csv
import io
from typing import Any

from efcil.analysis.tables.comparison import PAPER, Comparison
from efcil.analysis.tables.scale import Scale

SCALE = ("network", "features", "image_size", "images_per_class", "first_epochs", "later_epochs")
COLUMNS = (
    *("table", "data", "start", "steps", "row", "metric", "source", "preset"),
    *("mean", "std", "rank", "seeds", "numerics", "stale", *SCALE),
)


def records(comparison: Comparison, scales: list[Scale]) -> list[dict[str, Any]]:
    """Every cell of the table, the paper's and ours; what was not run has no mean."""
    of = {scale.preset: scale for scale in scales}
    found = []
    for place in comparison.layout.places():
        for source in comparison.sources:
            preset = comparison.preset_at(source, place)
            if source != PAPER and preset is None:
                continue
            shown = comparison.shown.get((source, place))
            record: dict[str, Any] = dict.fromkeys(COLUMNS)
            record |= {"table": comparison.table, **place._asdict(), "source": source}
            if shown is not None and shown.mean != "-":
                record |= {"mean": float(shown.mean), "std": float(shown.std) if shown.std else None}
                record["rank"] = shown.rank or None
            if preset is not None:
                record |= {"preset": preset.preset, **{name: getattr(of[preset.preset], name) for name in SCALE}}
                if place.row in preset.runs and shown is not None:
                    runs = preset.runs[place.row]
                    record |= {"seeds": len(runs.rows), "numerics": runs.line["numerics"], "stale": runs.stale}
            found.append(record)
    return found


def as_csv(rows: list[dict[str, Any]]) -> str:
    """The records as a file that a spreadsheet reads; means and spreads with the two digits of the table."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        digits = {name: f"{row[name]:.2f}" for name in ("mean", "std") if row[name] is not None}
        writer.writerow({**row, **digits})
    return text.getvalue()
