"""The page as files: small, of one piece, and nothing in it that a strict content policy forbids."""

from __future__ import annotations

import re
from pathlib import Path

import efcil

PAGE = Path(efcil.__file__).parent / "serve" / "page"
FILES = {path.name: path.read_text() for path in sorted(PAGE.iterdir())}
SCRIPTS = {name: text for name, text in FILES.items() if name.endswith(".js")}
FORBIDDEN = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style|https?://(?!www\.w3\.org/2000/svg)"


def test_words_never_become_markup_and_nothing_comes_from_elsewhere() -> None:
    wrong = {name: found for name, text in FILES.items() if (found := re.findall(FORBIDDEN, text))}
    assert not wrong and len(SCRIPTS) > 8


def test_no_script_or_style_is_written_into_the_page() -> None:
    page = FILES["index.html"]
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.S) == [""]
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", page)


def test_every_file_is_used_and_there() -> None:
    used = set(re.findall(r'(?:href|src)="page/([^"]+)"', FILES["index.html"]))
    for text in SCRIPTS.values():
        used |= set(re.findall(r'from "\./([^"]+)"', text))
    assert used | {"index.html"} == set(FILES)


def test_every_element_that_a_script_looks_for_is_there_once() -> None:
    wanted = {name for text in SCRIPTS.values() for name in re.findall(r'find\("([^"]+)"\)', text)}
    there = re.findall(r'\sid="([^"]+)"', FILES["index.html"])
    made = {name for text in SCRIPTS.values() for name in re.findall(r'\{ id: "([^"]+)"', text)}
    assert len(there) == len(set(there)) and wanted <= {*there, *made}
    pointing = re.findall(r'(?:for|aria-labelledby|list)="([^"]+)"|aria-describedby="([^"]+)"', FILES["index.html"])
    assert {word for pair in pointing for words in pair for word in words.split()} <= set(there)
