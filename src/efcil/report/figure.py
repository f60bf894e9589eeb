"""A chart with all that a page says of it: drawing, legend, values under the pointer, and a table in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from efcil.report.table import Table


@dataclass(frozen=True)
class Figure:
    """One chart; ``drawings`` has one for every screen, or a ``wide`` and a ``narrow`` one."""

    title: str
    summary: str
    drawings: dict[str, Markup]
    hover: dict[str, Any]  # what page.js shows under the pointer
    tables: Sequence[Table]
    legend: Sequence[tuple[int, str]] = ()  # style and name
