"""The page in a real browser: what is drawn has a size and fits a telephone, tables sort, nothing is fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import make_blobs, write_class_folders
from efcil.cli import main

pytestmark = pytest.mark.slow

TINY = ["width=4", "stem_stride=2", "data.images_per_class=20", "first.epochs=1", "first.rotation=false"]
TINY += ["incremental.epochs=1"]
DESKTOP, TELEPHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def of_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on three runs, one with a long name, of which one has everything that a run can tell."""
    folder = tmp_path_factory.mktemp("runs")
    sets = [word for change in TINY for word in ("--set", change)]
    quick = ["--set", "options.rebalancing.epochs=1", "--set", "options.rebalancing.views=1"]
    for more in (
        ["--method", "efc++", *quick],
        ["--method", "finetune"],
        ["--method", "finetune", "--set", "incremental.weight_decay=0.0123", "--set", "incremental.batch_size=16"],
    ):
        assert main(["run", "digits-cold5", *more, *sets, "--out", str(folder)]) == 0
    assert main(["report", str(folder), "--out", str(folder / "report.html")]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def of_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    names = ["a class with a very long name indeed", "dog", "<img src=x onerror=console.error(1)>"]
    small = ["--backbone", "resnet18", "--set", "width=4", "--set", "image_size=8", "--set", "first.epochs=1"]
    for place, classes in enumerate([names[:2], names[2:]]):
        source = write_class_folders(folder / str(place), *make_blobs(classes, 8))
        assert main(["learn", str(folder / "pets.efcil"), str(source), *([] if place else small)]) == 0
    tested = write_class_folders(folder / "test", *make_blobs([*names, "stranger"], 5, seed=3))
    given = [str(folder / "pets.efcil"), "--photos", str(tested), "--out", str(folder / "report.html")]
    assert main(["report", *given]) == 0
    return folder / "report.html"


@pytest.fixture(params=["of_runs", "of_model"])
def report(request: pytest.FixtureRequest) -> Path:
    return Path(request.getfixturevalue(request.param))


class Visit:
    """A page that is open, and everything that went wrong or out meanwhile."""

    def __init__(self, browser: Any, report: Path, size: dict[str, int], scheme: str = "light") -> None:
        self.context = browser.new_context(viewport=size, color_scheme=scheme)
        self.context.set_default_timeout(600_000)  # milliseconds, on a machine that has much else to do
        self.page = self.context.new_page()
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(report.as_uri())

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *error: object) -> None:
        self.context.close()


@pytest.mark.parametrize("size", [DESKTOP, TELEPHONE], ids=["desktop", "telephone"])
def test_charts_have_a_size_and_nothing_overflows(browser: Any, report: Path, size: dict[str, int]) -> None:
    with Visit(browser, report, size) as visit:
        for details in visit.page.query_selector_all("details"):
            details.evaluate("element => element.open = true")
        boxes = [svg.bounding_box() for svg in visit.page.query_selector_all(".chart svg")]
        drawn = [box for box in boxes if box is not None and box["width"] > 0]
        charts = visit.page.query_selector_all(".chart")
        assert len(drawn) == len(charts) > 3  # of a wide and a narrow drawing one is shown
        least = 0.6 * size["width"] if size is TELEPHONE else 250
        assert all(box["width"] >= least and box["height"] >= 40 for box in drawn)
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= size["width"] for box in drawn)
        assert visit.page.evaluate("document.documentElement.scrollWidth") == size["width"]
        marks = visit.page.evaluate(
            "[...document.querySelectorAll('.chart .curve, .chart .heat, .chart .bar')]"
            ".filter(e => e.closest('svg').getBoundingClientRect().width)"
            ".map(e => e.getBoundingClientRect()).filter(box => box.width + box.height > 5).length"
        )
        assert marks >= len(charts) - 2  # of what is zero nothing is drawn
        letters = visit.page.evaluate(
            "[...document.querySelectorAll('.chart text.tick')]"
            ".map(e => e.getBoundingClientRect()).map(box => Math.min(box.width, box.height)).filter(size => size)"
        )
        assert sorted(letters)[len(letters) // 2] >= 6  # can be read; a single digit is narrow


def test_a_wide_table_fades_out_until_its_end_is_reached(browser: Any, report: Path) -> None:
    with Visit(browser, report, TELEPHONE) as visit:
        seen = "[...document.querySelectorAll('.scroll')].filter(e => e.checkVisibility())"
        visit.page.wait_for_selector(".scroll.further")
        wide = visit.page.evaluate(f"{seen}.map(e => e.scrollWidth > e.clientWidth + 2)")
        assert visit.page.evaluate(f"{seen}.map(e => e.classList.contains('further'))") == wide
        visit.page.evaluate(f"{seen}.forEach(e => e.scrollLeft = e.scrollWidth)")
        visit.page.wait_for_selector(".scroll.further", state="detached")


def test_nothing_is_fetched_and_nothing_complains(browser: Any, report: Path) -> None:
    with Visit(browser, report, DESKTOP) as visit:
        visit.page.wait_for_timeout(300)
        assert visit.requests == [report.as_uri()] and visit.troubles == []
        entries = visit.page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
        assert [name for name in entries if not name.startswith("data:")] == []


def test_a_heading_sorts_and_turns_round(browser: Any, of_runs: Path) -> None:
    with Visit(browser, of_runs, DESKTOP) as visit:
        table = visit.page.locator("table", has_text="Every run").first
        column = "table => [...table.tBodies[0].rows].map(row => +row.cells[4].dataset.value)"
        heading = table.locator("thead button").nth(4)
        heading.click()
        first = table.evaluate(column)
        assert first == sorted(first, reverse=True) and len(first) == 3
        assert table.locator("thead th").nth(4).get_attribute("aria-sort") == "descending"
        heading.press("Enter")
        assert table.evaluate(column) == sorted(first)
        table.locator("thead button").first.click()
        names = table.evaluate("table => [...table.tBodies[0].rows].map(row => row.cells[0].dataset.value)")
        assert names == sorted(names) and names[0].startswith("efc++")
        assert table.locator("th[aria-sort]").count() == 1


def test_the_pointer_shows_the_values_of_a_step(browser: Any, of_runs: Path) -> None:
    with Visit(browser, of_runs, DESKTOP) as visit:
        chart = visit.page.locator(".chart").first
        data = json.loads(chart.locator("script").text_content())
        svg, tip = chart.locator(".wide svg"), chart.locator(".tip")
        assert tip.is_hidden()
        box = svg.bounding_box()
        svg.hover(position={"x": box["width"] - 15, "y": box["height"] / 2})
        assert tip.is_visible() and tip.inner_text().startswith(f"step {data['x'][-1]}")
        assert all(
            series["name"] in tip.inner_text() and series["text"][-1] in tip.inner_text() for series in data["series"]
        )
        assert chart.locator(".wide .dot.near").count() == len(data["series"])
        inside = tip.bounding_box()
        assert inside["x"] >= 0 and inside["x"] + inside["width"] <= DESKTOP["width"]
        swatches = [swatch.bounding_box()["width"] for swatch in tip.locator(".swatch").all()]
        assert len(swatches) == len(data["series"]) and max(swatches) < 20
        visit.page.mouse.move(5, 5)
        assert tip.is_hidden()


def test_arrow_keys_reach_the_values(browser: Any, of_runs: Path) -> None:
    with Visit(browser, of_runs, DESKTOP) as visit:
        for selector in (".chart:has(line.cursor)", ".chart:has(rect.cursor)", ".chart:has(rect.bar)"):
            chart = visit.page.locator(selector).first
            chart.focus()
            visit.page.keyboard.press("ArrowDown")
            before = chart.locator(".tip").inner_text()
            visit.page.keyboard.press("ArrowRight")
            visit.page.keyboard.press("ArrowDown")
            after = chart.locator(".tip").inner_text()
            assert before and after and before != after
            visit.page.keyboard.press("Escape")
            assert chart.locator(".tip").is_hidden()


def test_a_square_says_its_row_and_column(browser: Any, of_runs: Path) -> None:
    with Visit(browser, of_runs, TELEPHONE) as visit:
        chart = visit.page.locator("#part1-matrices .chart").first
        data = json.loads(chart.locator("script").text_content())
        svg = chart.locator("svg")
        place = svg.evaluate(
            "svg => { const s = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width, d = svg.dataset;"
            " return {x: (+d.left + 0.5 * d.side) * s, y: (+d.top + 2.5 * d.side) * s}; }"
        )
        svg.hover(position=place)
        assert chart.locator(".tip").inner_text() == f"after step 3, task 1: {data['text'][2][0]} %"


def test_dark_and_light_differ_and_can_be_read(browser: Any, report: Path) -> None:
    def colours(visit: Visit) -> tuple[float, float]:
        """How bright the ground and the ink are, from 0 to 1."""
        style = "getComputedStyle(document.body)"
        found = [visit.page.evaluate(f"{style}.{name}") for name in ("backgroundColor", "color")]
        channels = [[int(part) for part in text[text.index("(") + 1 : -1].split(",")[:3]] for text in found]
        return sum(channels[0]) / 765, sum(channels[1]) / 765

    with Visit(browser, report, DESKTOP, "light") as visit:
        ground, ink = colours(visit)
        assert ground > 0.9 and ink < 0.25
        curve = "getComputedStyle(document.querySelector('.chart .curve')).stroke"
        light = visit.page.evaluate(curve)
        for expected in (True, False):  # the button goes from automatic to light to dark
            visit.page.click("#theme")
            assert (colours(visit)[0] > 0.5) is expected
    with Visit(browser, report, DESKTOP, "dark") as visit:
        ground, ink = colours(visit)
        assert ground < 0.15 and ink > 0.8
        assert visit.page.evaluate(curve) != light


def test_names_with_markup_stay_names(browser: Any, of_model: Path) -> None:
    with Visit(browser, of_model, DESKTOP) as visit:
        assert visit.page.locator("img").count() == 0 and visit.troubles == []
        assert visit.page.get_by_text("<img src=x onerror=console.error(1)>").count() > 0
