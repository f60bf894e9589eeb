"""What the site makes of links and of its list of pages, without building it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from efcil.cli import parser

ROOT = Path(__file__).parents[2]
pytest.importorskip("mkdocs")


@pytest.fixture(scope="module")
def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "tools" / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(uri: str, text: str = "") -> Any:
    return SimpleNamespace(src_uri=uri, content_string=text)


@pytest.mark.parametrize(
    ("uri", "link", "there"),
    [
        ("own-images.md", "methods/lda.md#settings", "methods/lda.md#settings"),
        ("own-images.md", "methods", "methods/index.md"),
        ("methods/lda.md", "../../src/efcil/methods/lda.py", "../source/src/efcil/methods/lda.py.md"),
        ("methods/lda.md", "../../REPRODUCIBILITY.md#x", "../reproducibility.md#x"),
        ("methods/lda.md", "../../benchmarks", "../benchmarks.md"),
        ("photos-measured.md", "../results/own_photos.csv", "results/own_photos.csv"),
        ("paper-map.md", "../src/efcil/bench/presets", "source/src/efcil/bench/presets.md"),
        ("reproducibility.md", "docs/methods/efc.md", "methods/efc.md"),
        ("reproducibility.md", "README.md", "index.md"),
        ("benchmarks.md", "speed.py", "source/benchmarks/speed.py.md"),
        ("contributing.md", ".ci/run", "source/ci/run.md"),
        ("index.md", "#the-tab-key", "#the-tab-key"),
        ("index.md", "mailto:a@b", "mailto:a@b"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(hooks: Any, uri: str, link: str, there: str) -> None:
    assert hooks.site_target(page(uri), link) == there


def test_a_link_to_a_file_that_does_not_exist_stops_the_build(hooks: Any) -> None:
    text = "```\n[fenced](../nowhere.py)\n```\n[code](../src/efcil/cli.py) and [page](own-images.md)"
    assert list(hooks.sources(page("index.md", text))) == [Path("src/efcil/cli.py")]
    with pytest.raises(hooks.PluginError, match=r"docs/index.md links to ../src/cli.py, which does not exist"):
        list(hooks.sources(page("index.md", "[code](../src/cli.py)")))


def test_a_fence_is_longer_than_those_in_the_file(hooks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "ROOT", tmp_path)
    (tmp_path / "odd.py").write_text('"""\n~~~~\n"""\n')
    assert hooks.code(Path("odd.py")) == '~~~~~~~python\n"""\n~~~~\n"""\n\n~~~~~~~\n'


def test_new_pages_find_their_place(hooks: Any) -> None:
    nav = [{"A": ["a.md", "serve*.md"]}, {"Methods": ["methods/index.md", "methods/*.md"]}, {"More": ["*.md"]}]
    new = ["methods/new.md", "other.md", "serve.md", "serve-more.md"]
    assert list(hooks.listed(nav)) == ["a.md", "methods/index.md"]
    assert hooks.filled(nav, list(new)) == [
        {"A": ["a.md", "serve.md", "serve-more.md"]},
        {"Methods": ["methods/index.md", "methods/new.md"]},
        {"More": ["other.md"]},
    ]
    assert hooks.filled(nav, [])[-1] != {"More": []}


def test_every_page_is_named_in_the_navigation_or_matched_by_a_pattern(hooks: Any) -> None:
    class Loader(yaml.SafeLoader):
        """Reads the file without the functions that it names."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]
    named = set(hooks.listed(nav))
    pages = {str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")}
    made = {*hooks.OUTSIDE.values(), "methods/index.md"}
    assert named - pages - made == set()
    rest = sorted(pages - named)
    hooks.filled(nav, rest)
    assert rest == []


@pytest.mark.parametrize("name", ["index.md", "researchers.md"])
def test_the_commands_of_the_first_pages_are_spelled_as_the_program_wants_them(name: str) -> None:
    lines = [line.partition("#")[0].partition(">")[0] for line in (ROOT / "docs" / name).read_text().splitlines()]
    commands = [line.split()[1:] for line in lines if line.startswith("efcil ")]
    assert len(commands) >= 4
    for command in commands:
        assert callable(parser().parse_args(command).command)
