"""Charts as SVG: where things are drawn, and how axes are labelled."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from efcil.report.bars import Bar, Bars
from efcil.report.heatmap import LEVELS, Matrix
from efcil.report.lines import COLOURS, MARKERS, Curves, Series, marker, runs_of, style_class
from efcil.report.svg import decades, power, shortened, thinned, ticks
from efcil.report.table import Table, cell, size


@pytest.mark.parametrize(("low", "high"), [(0, 100), (-3.2, 41), (0, 0.003), (0, 0), (12, 12.1), (0, 7e9)])
def test_ticks_are_round_few_and_cover_the_values(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert marks[0] <= low and marks[-1] >= high and 3 <= len(marks) <= 8
    steps = {f"{b - a:.3g}" for a, b in pairwise(marks)}
    assert len(steps) == 1 and re.match(r"^(1|2|2\.5|5)(0*|e[+-]\d+)$|^0\.0*(1|2|25|5)$|^25", steps.pop())


def test_decades_and_their_names() -> None:
    assert decades(0.002, 30) == pytest.approx([0.001, 0.01, 0.1, 1, 10, 100])
    assert [power(value) for value in (0.001, 0.1, 1, 100, 1e4)] == ["10⁻³", "0.1", "1", "100", "10⁴"]


def test_labels_are_thinned_to_round_places_and_cut_to_their_room() -> None:
    assert thinned(["1", "2", "3"], 300) == [0, 1, 2]
    assert thinned([f"{n / 100:.2f}" for n in range(101)], 600) == list(range(0, 101, 10))
    assert shortened("a long name of a class", 40) == "a lon…" and shortened("cat", 40) == "cat"


def test_sizes_are_said_as_people_say_them() -> None:
    assert [size(n) for n in (0, 999, 1500, 2_500_000, 3e9)] == ["0 bytes", "999 bytes", "1.5 kB", "2.5 MB", "3.0 GB"]


def heights(curves: Curves, kind: str = "dot") -> list[list[float]]:
    """The upright places of the markers, curve by curve."""
    svg = ElementTree.fromstring(curves.drawn(360, 250))
    return [
        [
            float(re.findall(r"M[-\d.]+ ([-\d.]+)", path.attrib["d"])[0])
            for path in group
            if path.attrib["class"] == kind
        ]
        for group in svg.iter("g")
    ]


def test_larger_values_are_drawn_higher_and_to_scale() -> None:
    curves = Curves("t", "s", "x", "y", ["1", "2", "3"], [Series("a", [0.0, 50.0, 100.0], 0)], low=0.0, high=100.0)
    ((low, middle, high),) = heights(curves)
    assert low - middle == pytest.approx(middle - high) and low - high == pytest.approx(250 - 40 - 12)


def test_a_logarithmic_axis_has_equal_steps_for_equal_factors_and_leaves_zero_out() -> None:
    curves = Curves("t", "s", "x", "y", list("1234"), [Series("a", [1.0, 0.1, 0.01, 0.0], 0)], logarithmic=True)
    ((first, second, third),) = heights(curves)
    assert second - first == pytest.approx(third - second) and second > first


def test_missing_values_interrupt_a_curve() -> None:
    assert runs_of([(0, 1.0), (1, 2.0), (3, 4.0)]) == [[(0, 1.0), (1, 2.0)], [(3, 4.0)]]
    curves = Curves("t", "s", "x", "y", list("1234"), [Series("a", [1.0, 2.0, None, 4.0], 0)])
    assert len(heights(curves, "curve")[0]) == 2 and len(heights(curves)[0]) == 3
    assert curves.hover()["series"][0]["text"] == ["1.0", "2.0", "–", "4.0"]  # type: ignore[index]


def test_a_band_is_as_wide_as_the_spread() -> None:
    curves = Curves("t", "s", "x", "y", ["1", "2"], [Series("a", [50.0, 50.0], 0, [10.0, 10.0])], low=0.0, high=100.0)
    svg = ElementTree.fromstring(curves.drawn(360, 250))
    (band,) = svg.iter("polygon")
    edge = [float(pair.split(",")[1]) for pair in band.attrib["points"].split()]
    assert max(edge) - min(edge) == pytest.approx(0.2 * (250 - 40 - 12), abs=0.02)


def test_a_band_and_an_axis_end_where_values_do() -> None:
    wide = Curves("t", "s", "x", "y", ["1", "2"], [Series("a", [95.0, 50.0], 0, [20.0, 10.0])], low=0.0)
    assert wide.heights()[-1] > 100 and replace(wide, most=100.0).heights()[-1] == 100


def test_curves_of_one_chart_have_different_markers_whatever_their_styles() -> None:
    styles = (0, 4, 8, 12, 3, 7)
    assert len({marker(shape, 0.0, 0.0) for shape in range(len(styles))}) == len(styles) == len(MARKERS)
    curves = Curves("t", "s", "x", "y", ["1"], [Series(str(style), [1.0], style) for style in styles])
    drawn = [path.attrib["d"] for path in ElementTree.fromstring(curves.drawn(360, 250)).iter("path")]
    assert len(set(filter(lambda path: "z" in path, drawn))) == len(styles)
    assert [row[0].shape for row in curves.table().rows] == list(range(len(styles)))
    one = [Series(str(step), [1.0, 2.0], 0, shade=0.5 + step / 4) for step in range(3)]
    assert {row[0].shape for row in Curves("t", "s", "x", "y", ["1", "2"], one).table().rows} == {0}


def test_styles_beyond_the_colours_are_dashed() -> None:
    assert style_class(3) == "s3" and style_class(COLOURS) == "s4 again"
    assert len({style_class(style) for style in range(20)}) == 20


def test_squares_are_as_strong_as_their_share() -> None:
    shares = [[1.0, None], [0.0, 0.5]]
    matrix = Matrix("t", "s", "r", "c", ["a", "b"], ["a", "b"], shares, [["9", ""], ["", "5"]], "{row}")
    svg = ElementTree.fromstring(matrix.drawn())
    squares = {path.attrib["fill-opacity"]: path.attrib["d"].count("M") for path in svg if path.get("class") == "heat"}
    assert squares == {"1": 1, "0.5": 1} and LEVELS == 20
    assert [text.text for text in svg.iter("text") if text.attrib["class"].startswith("value")] == ["9", "5"]


def test_bars_are_to_one_scale_and_their_parts_have_their_places_in_the_legend() -> None:
    bars = Bars(
        "t", "s", [Bar("a", {"x": 30.0, "y": 10.0}), Bar("b", {"y": 20.0})], {"x": 4, "y": 5}, "{:.0f} s".format
    )
    svg = ElementTree.fromstring(bars.drawn())
    widths = [float(rect.attrib["width"]) for rect in svg.iter("rect") if rect.attrib["class"] == "bar"]
    assert widths == pytest.approx([270, 90, 180])
    rows: Any = bars.hover()["rows"]
    assert [part["legend"] for part in rows[1]["parts"]] == [1] and rows[0]["name"] == "a: 40 s"


def test_a_column_is_numeric_if_all_that_is_written_in_it_is() -> None:
    table = Table("t", ["a", "b"], [[cell("x"), cell(None)], [cell(1), cell(2.0)]])
    assert not table.is_numeric(0) and table.is_numeric(1)
