"""From what is known to one HTML file: style and script are written into it, and nothing is fetched."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from efcil import __version__
from efcil.errors import UserError

INSTALL = "pip install 'efcil[report]'"


def environment() -> Any:
    """Where templates come from; what they are given is escaped."""
    try:
        import jinja2
    except ModuleNotFoundError:
        raise UserError(f"A report needs jinja2; run: {INSTALL}") from None
    from efcil.report.lines import marker, style_class

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("efcil.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(version=__version__, style_class=style_class, marker=marker)
    return made


def write_page(template: str, out: Path, **content: Any) -> None:
    """Fill a template and write the file."""
    from efcil.engine.state import write_text

    page = environment().get_template(template).render(made=time.strftime("%Y-%m-%d %H:%M"), **content)
    try:
        write_text(out, page)
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}); choose another --out.") from None


def runs_report(given: Sequence[Path], out: Path, data_root: Path | None = None) -> dict[str, Any]:
    """Write the report on these runs; says which runs are in it and which were left out.

    ``data_root`` is where their images are, which the drift of prototypes needs.
    """
    environment()  # before anything takes long
    from efcil.report.found import find_runs
    from efcil.report.runs import parts

    found = find_runs(given)
    made = parts(found, data_root)
    write_page("runs.html", out, parts_of=made, left_out=found.left_out, runs=found.runs)
    return {
        "report": str(out),
        "runs": [str(run.folder) for run in found.runs],
        "scenarios": [part.name for part in made],
        "left_out": found.left_out,
    }
