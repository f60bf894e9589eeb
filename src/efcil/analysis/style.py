"""How all pictures look, and how a figure is written: its numbers as CSV, its picture as SVG and PNG.

Colours are those of Okabe and Ito, which colour-blind people can tell apart; curves differ in marker and dash too.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from efcil.engine.state import write_text
from efcil.errors import UserError

Rows = list[dict[str, Any]]  # the numbers of a figure, one line of its CSV each
BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
FRONT = {"efc++": VERMILLION, "efc": ORANGE, "joint": "#222222", "finetune": "#8a8a8a", "cargo": GREEN}
OTHERS = (BLUE, GREEN, "#CC79A7", "#56B4E9", "#7B5E2A", "#5D3A9B", "#8CA300", "#004D40", "#994F00", "#7f7f7f")
MARKERS, DASHES = "osD^vPX*<>", ("-", "--", "-.", ":")
MATRIX = "cividis"  # of heat maps: as dark or bright in grey as it is in colour
SETTINGS: dict[Any, Any] = {
    "figure.dpi": 130,
    "savefig.dpi": 160,
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "lines.markersize": 5,
    "svg.hashsalt": "efcil",  # the same figure is the same file
    "svg.fonttype": "none",
}
PICTURES = (".png", ".svg", ".pdf")


def pyplot() -> Any:
    """matplotlib without a screen, in our style."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise UserError("Pictures need matplotlib; run: pip install 'efcil[report]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(SETTINGS)
    return plt


def panels(count: int, width: float = 4.4, height: float = 3.6, rows: int = 1, **options: Any) -> tuple[Any, list[Any]]:
    """A picture with so many panels beside each other in every row, and the panels, row by row."""
    size = (max(width * count, 5.0), height * rows)
    figure, axes = pyplot().subplots(rows, count, figsize=size, layout="constrained", squeeze=False, **options)
    return figure, list(axes.flat)


def looks(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dash of each label: well-known methods always have their own colour."""
    others, found = cycle(colour for colour in OTHERS if colour not in FRONT.values()), {}
    for place, label in enumerate(dict.fromkeys(labels)):
        colour = FRONT.get(label) or next(others)
        dash = "-" if label in FRONT else DASHES[(place // len(OTHERS) + place) % len(DASHES)]
        width = 2.8 if label == "efc++" else 1.8
        found[label] = {"color": colour, "marker": MARKERS[place % len(MARKERS)], "linestyle": dash, "linewidth": width}
    return found


def legend(figure: Any, axes: Sequence[Any], **where: Any) -> None:
    """One legend of all panels, each label once."""
    pairs = [pair for panel in axes for pair in zip(*panel.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(pairs)}
    names = list(dict.fromkeys(label for _, label in pairs))
    figure.legend([handles[name] for name in names], names, **where)


def darker(name: str) -> Any:
    """A scale of colours without its brightest, which are lost on white."""
    whole = pyplot().get_cmap(name)
    from matplotlib.colors import ListedColormap

    return ListedColormap([whole(place) for place in range(230)])  # of 256


def ink(colours: Any, value: float) -> str:
    """Black or white, whichever can be read on this colour of a heat map."""
    red, green, blue, _ = colours(value)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def heat_map(axes: Any, matrix: Sequence[Sequence[float | None]], lowest: float, highest: float, decimals: int) -> Any:
    """A matrix as colours with its numbers in the cells; what is missing stays blank."""
    import numpy as np

    values = np.array([[np.nan if value is None else value for value in line] for line in matrix], dtype=float)
    image = axes.imshow(values, cmap=MATRIX, vmin=lowest, vmax=highest, aspect="auto")
    small = 9 if values.shape[1] <= 10 else 6
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            colour = ink(image.cmap, image.norm(value))
            text = f"{value:.{decimals}f}"
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=small)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return image


def written(figure: Any, rows: Rows, out: Path, name: str) -> list[Path]:
    """The figure in a folder, or beside a file of this name, as CSV, SVG and PNG; returns the files."""
    if out.suffix and not out.is_dir():
        if out.suffix not in (*PICTURES, ".csv"):
            raise UserError(
                f"{out} cannot be drawn; give a folder, or a name that ends in {', '.join((*PICTURES, '.csv'))}."
            )
        base = out.with_suffix("")
    else:
        base = out / name
    kinds = dict.fromkeys([".svg", ".png", *([out.suffix] if out.suffix in PICTURES else [])])
    files = [Path(f"{base}{kind}") for kind in (".csv", *kinds)]
    try:
        write_text(files[0], as_csv(rows))
        for path in files[1:]:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as error:
        raise UserError(f"{base} cannot be written ({error.strerror}); choose another --out.") from None
    finally:
        pyplot().close(figure)
    return files


def as_csv(rows: Rows) -> str:
    """One line per row; a column that a row does not have stays empty."""
    table = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(table, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
    return table.getvalue()


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
