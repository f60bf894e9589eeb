"""Small helpers for drawings as inline SVG; ElementTree escapes what is written into them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree import ElementTree

from markupsafe import Markup

Element = ElementTree.Element
LETTER = 0.58  # width of a letter as a part of the size of the font, on average
TICK = 11  # size of the font of ticks, as page.css has it
ROUND = (1, 2, 5, 10, 20, 25, 50, 100, 200, 500)
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def drawing(width: float, height: float, title: str, summary: str, **attributes: object) -> Element:
    """An empty drawing; ``title`` and ``summary`` are what a screen reader says of it."""
    box = f"0 0 {number(width)} {number(height)}"
    svg = Element("svg", {"viewBox": box, "role": "img", "aria-label": f"{title}. {summary}", **named(attributes)})
    return svg


def add(parent: Element, tag: str, text: str = "", **attributes: object) -> Element:
    """A new element inside the parent; ``class_`` is the attribute class, ``data_x`` is data-x."""
    child = ElementTree.SubElement(parent, tag, named(attributes))
    child.text = text or None
    return child


def named(attributes: dict[str, object]) -> dict[str, str]:
    found = {}
    for name, value in attributes.items():
        found[name.rstrip("_").replace("_", "-")] = number(value) if isinstance(value, float) else str(value)
    return found


def number(value: float) -> str:
    """As short as a drawing allows."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def markup(svg: Element) -> Markup:
    """The drawing as it stands in a page."""
    return Markup(ElementTree.tostring(svg, encoding="unicode"))  # escaped by ElementTree


def shortened(text: str, room: float, size: float = TICK) -> str:
    """A text that fits into so many pixels."""
    letters = max(2, int(room / (LETTER * size)))
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from at most ``low`` to at least ``high``, about so many."""
    if high <= low:
        high = low + 1
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [place * step for place in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from at most ``low`` to at least ``high``, both positive."""
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def power(value: float) -> str:
    """A power of ten, such as 10⁻³; those near one as they are."""
    exponent = round(math.log10(value))
    return f"{value:g}" if -1 <= exponent <= 2 else "10" + str(exponent).translate(SUPERSCRIPTS)


def thinned(labels: Sequence[str], room: float, size: float = TICK) -> list[int]:
    """The places of those labels of evenly spaced ones that fit side by side, always with the first."""
    widest = max(map(len, labels)) * LETTER * size + 8
    least = widest * len(labels) / max(room, 1)
    step = next((step for step in ROUND if step >= least), len(labels))
    return list(range(0, len(labels), step))
