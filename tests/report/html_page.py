"""A page as a test reads it: its tables, its charts, its text and every attribute."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

VOID = {"meta", "link", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """Reads a page and insists that what is opened is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []  # what people read
        self.scripts: list[str] = []
        self.tables: dict[str, list[list[tuple[str, str]]]] = {}  # caption: rows of text and value
        self.headings: dict[str, list[str]] = {}
        self.charts: list[tuple[str, dict[str, Any]]] = []  # the title of each figure and what the pointer shows there
        self.titles: list[str] = []
        self.captions: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.elements.append((tag, found))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "caption":
            self.captions.append("")
        if tag == "figcaption":
            self.titles.append("")
        if tag == "thead":
            self.headings[self.captions[-1]] = []
            self.tables[self.captions[-1]] = []
        if tag == "tr" and "tbody" in self.open:
            self.tables[self.captions[-1]].append([])
        if tag in ("td", "th"):
            if "tbody" in self.open:
                self.tables[self.captions[-1]][-1].append(("", found["data-value"]))
            else:
                self.headings[self.captions[-1]].append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attributes}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> inside {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts.append(data)
            if "figure" in self.open:
                self.charts.append((self.titles[-1], json.loads(data)))
            return
        if inside == "style":
            return
        self.words.append(data)
        if inside == "caption":
            self.captions[-1] += data
        elif inside == "figcaption":
            self.titles[-1] += data
        elif "tbody" in self.open and inside in ("td", "th"):
            text, value = self.tables[self.captions[-1]][-1][-1]
            self.tables[self.captions[-1]][-1][-1] = (text + data.strip(), value)
        elif "thead" in self.open and inside == "button":
            self.headings[self.captions[-1]][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str, name: str = "") -> list[dict[str, str]]:
        """The attributes of every element of this kind, and of this class."""
        found = [attributes for kind, attributes in self.elements if kind == tag]
        return [attributes for attributes in found if not name or name in attributes.get("class", "").split()]

    def chart(self, title: str) -> dict[str, Any]:
        """The only chart with this title."""
        (found,) = [data for name, data in self.charts if name == title]
        return found

    def matrix(self, phrase: str) -> dict[str, Any]:
        """The only matrix of which the pointer says this."""
        (found,) = [data for _, data in self.charts if phrase in data.get("phrase", "")]
        return found

    def column(self, caption: str, heading: str) -> list[str]:
        """The values of a column, as it is sorted."""
        place = self.headings[caption].index(heading)
        return [row[place][1] for row in self.tables[caption]]
