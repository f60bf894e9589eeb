"""The documentation as a site: built strictly, complete, and readable where there is no network."""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from efcil.methods import METHODS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DESKTOP, TELEPHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 600_000  # milliseconds, on a machine that has much else to do
PAGES = ["index.html", "researchers.html", "paper-map.html", "methods/index.html", "methods/efc++.html", "api.html"]
PAGES += ["api/paper.html", "reproducibility.html", "source/src/efcil/methods/lda.py.html"]


def build(*more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", *more]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build("--site-dir", str(folder))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


class Read(HTMLParser):
    """What a page refers to and which places it has; the text of its paragraphs; the pages in its navigation."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.paragraphs: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("link", "script", "img", "iframe"):
            self.loads += [given[name] for name in ("href", "src") if name in given]
        elif tag == "p":
            self.inside = True
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "p"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.paragraphs[-1] += data


@pytest.fixture(scope="module")
def read(site: Path) -> dict[Path, Read]:
    return {path: Read(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_is_in_the_site_and_in_its_navigation(site: Path, read: dict[Path, Read]) -> None:
    pages = {str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in ROOT.glob("docs/**/*.md")}
    pages |= {"reproducibility.html", "claims.html", "contributing.html", "changes.html", "benchmarks.html"}
    listed = {unquote(urlsplit(link).path) for link in read[site / "index.html"].links}
    assert pages - listed == set()
    assert [page for page in pages if not (site / page).is_file()] == []


def test_practitioners_come_first_then_researchers(site: Path) -> None:
    tabs = re.findall(r'md-tabs__link">\s*(.*?)\s*</a>', (site / "index.html").read_text(), re.DOTALL)
    assert tabs[:4] == ["Your photos", "Research", "Methods", "Reference"]


def test_every_method_is_listed_with_its_idea(site: Path) -> None:
    rows = re.findall(r'<td><a href="([^"]+)">(.*?)</a></td>', (site / "methods/index.html").read_text())
    assert {name for _, name in rows} == set(METHODS)
    assert all(unquote(link) == f"{name}.html" for link, name in rows)


def test_the_paper_map_leads_to_the_reference_and_to_the_source(site: Path) -> None:
    text = (site / "paper-map.html").read_text()
    assert 'href="api/paper.html#efcil.paper.efm.efm_loss"' in text
    assert 'href="source/tests/test_docs.py.html"' in text
    assert "def efm_loss" not in text and "Eq. 10" in (site / "api/paper.html").read_text()


def test_links_lead_somewhere(site: Path, read: dict[Path, Read]) -> None:
    """Those of the reference and of the navigation too, which the strict build does not look at."""
    wrong = []
    for path, page in read.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.is_file() or (parts.fragment and unquote(parts.fragment) not in read[there].places):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert wrong == []


def test_nothing_is_loaded_from_elsewhere(site: Path, read: dict[Path, Read]) -> None:
    loads = [(path, urlsplit(target)) for path, page in read.items() for target in page.loads]
    assert [target for _, target in loads if target.scheme not in ("", "data")] == []
    assert [
        str(path) for path, target in loads if target.path and not (path.parent / unquote(target.path)).is_file()
    ] == []


def test_lists_and_tables_are_no_paragraphs(read: dict[Path, Read]) -> None:
    """A list without a blank line before it is one on code hosts only."""
    texts = [(path.name, text) for path, page in read.items() for text in page.paragraphs]
    assert [(name, text[:80]) for name, text in texts if re.search(r"^(- |1\. |\|)", text, re.MULTILINE)] == []


# In a browser


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("size", [DESKTOP, TELEPHONE], ids=["desktop", "telephone"])
def test_pages_fit_and_fetch_nothing_from_elsewhere(browser: Any, address: str, size: dict[str, int]) -> None:
    page = browser.new_page(viewport=size)
    page.set_default_timeout(PATIENCE)
    fetched: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    for name in PAGES:
        page.goto(f"{address}/{name}", wait_until="load")
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], name
        assert page.locator("h1").first.is_visible()
    page.close()
    assert [url for url in fetched if not url.startswith((address, "data:", "blob:"))] == []
    assert said == []


def test_the_search_finds_a_method(browser: Any, address: str) -> None:
    page = browser.new_page(viewport=DESKTOP)
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}/index.html")
    page.locator("input[name=query]").click()
    page.keyboard.type("adagauss")
    page.locator(".md-search-result__link[href*='methods/adagauss.html']").first.wait_for(state="visible")
    page.close()
