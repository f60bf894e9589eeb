"""What pages are made of: numbers in large letters, and sections with sentences, charts and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from efcil.report.figure import Figure
from efcil.report.table import Table


@dataclass(frozen=True)
class Tile:
    """One number in large letters."""

    name: str
    number: str
    unit: str
    note: str
    meaning: str = ""


@dataclass(frozen=True)
class Section:
    """A heading, sentences, charts and tables."""

    anchor: str
    title: str
    text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    more: Sequence[Figure] = ()  # shown on demand
    tables: Sequence[Table] = ()
