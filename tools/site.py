"""Hooks of mkdocs: the pages that lie outside docs/, links as the repository has them, a list of pages without gaps.

The Markdown files link to each other and to source files by their places in the repository. Within the site a page from
outside docs/ has a name of its own, and a source file that is linked to becomes a page that shows it.
"""

from __future__ import annotations

import fnmatch
import os.path
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = {  # where a page lies in the repository, and its name in the site
    "REPRODUCIBILITY.md": "reproducibility.md",
    "CLAIMS.md": "claims.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "benchmarks/README.md": "benchmarks.md",
    **{f"benchmarks/{path.name}": f"benchmarks/{path.name}" for path in ROOT.glob("benchmarks/[!R]*.md")},
}
HOME = {"README.md": "index.md"}  # the README says the same as the first pages do
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".js": "javascript", ".html": "html"}
DOWNLOADS = (".csv", ".png", ".svg", ".pdf")  # handed out as they are
FENCED = re.compile(r"^ *(```|~~~).*?^ *\1[^\S\n]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
NAME = re.compile(r"(?<!\[)`(efcil(?:\.\w+){2,})`")  # in running text: an object of the reference


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not in docs/: pages of the repository, the reference, the list of methods, source files linked to."""
    for origin, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, content=(ROOT / origin).read_text()))
    for room, text in reference():
        files.append(File.generated(config, f"api/{room}.md", content=text))
    files.append(File.generated(config, "methods/index.md", content=methods()))
    for path in sorted({path for file in files.documentation_pages() for path in sources(file)}):
        if path.suffix in DOWNLOADS:
            files.append(File.generated(config, str(path), abs_src_path=str(ROOT / path)))
        else:
            files.append(File.generated(config, source_uri(path), content=shown(path)))
    pages = [file.src_uri for file in files.documentation_pages() if not file.src_uri.startswith("source/")]
    named = set(listed(config.nav))
    config.nav = filled(config.nav, [uri for uri in sorted(pages) if uri not in named])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site has them; names of functions lead to the reference."""

    def relinked(match: re.Match[str]) -> str:
        target = site_target(page.file, match[2])
        return f"{match[1]}{target}{match[3]}"

    if page.file.src_uri.startswith("source/"):
        return markdown
    parts, end = [], 0
    for fence in FENCED.finditer(markdown):
        parts += [linked(LINK.sub(relinked, markdown[end : fence.start()])), fence[0]]
        end = fence.end()
    return "".join([*parts, linked(LINK.sub(relinked, markdown[end:]))])


def linked(text: str) -> str:
    """Names of what the reference describes lead there; what has no docstring is not in it, and stays a name."""
    return NAME.sub(r'<autoref identifier="\1" optional>`\1`</autoref>', text)


# Links


def origin_of(file: File) -> str:
    """Where a page of the site lies in the repository."""
    return {uri: origin for origin, uri in OUTSIDE.items()}.get(file.src_uri, f"docs/{file.src_uri}")


def target_of(file: File, link: str) -> tuple[Path, str] | None:
    """The file of the repository that a link leads to, and the place within; none for other links."""
    name, _, anchor = link.partition("#")
    if not name or re.match(r"[\w+.-]+:", name):
        return None
    path = Path(posixpath.normpath(posixpath.join(posixpath.dirname(origin_of(file)), name)))
    return (path / "README.md" if (ROOT / path / "README.md").is_file() else path), f"#{anchor}" if anchor else ""


def sources(file: File) -> Iterator[Path]:
    """The files outside docs/ that a page links to and that are no pages."""
    text = FENCED.sub("", file.content_string)
    for link in LINK.findall(text):
        target = target_of(file, link[1])
        if target is not None and not is_page(target[0]):
            if not (ROOT / target[0]).exists():
                raise PluginError(f"{origin_of(file)} links to {link[1]}, which does not exist.")
            yield target[0]


def is_page(path: Path) -> bool:
    return path.parts[0] == "docs" or str(path) in OUTSIDE or str(path) in HOME


def site_target(file: File, link: str) -> str:
    """The same link from page to page of the site."""
    target = target_of(file, link)
    if target is None:
        return link
    path, anchor = target
    if path.parts[0] == "docs":
        uri = str(path.relative_to("docs") / ("index.md" if (ROOT / path).is_dir() else ""))
    elif is_page(path):
        uri = {**OUTSIDE, **HOME}[str(path)]
    else:
        uri = str(path) if path.suffix in DOWNLOADS else source_uri(path)
    return os.path.relpath(uri, posixpath.dirname(file.src_uri) or ".") + anchor


def source_uri(path: Path) -> str:
    """The page that shows a file; what begins with a dot would be left out of the site."""
    return "/".join(["source", *(part.lstrip(".") for part in path.parts)]) + ".md"


def shown(path: Path) -> str:
    """A page with the text of a source file, or of each in a folder, which the search leaves out."""
    head = f"---\nsearch:\n  exclude: true\nhide: [navigation]\n---\n\n# {path.name}\n\n`{path}`\n\n"
    if (ROOT / path).is_file():
        return head + code(path)
    inside = (file.relative_to(ROOT) for file in sorted((ROOT / path).iterdir()) if file.is_file())
    return head + "\n".join(f"## {file.name}\n\n{code(file)}" for file in inside)


def code(path: Path) -> str:
    text = (ROOT / path).read_text()
    fence = "~" * (3 + max((len(run) for run in re.findall(r"~+", text)), default=0))
    return f"{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"


# Pages that are made of the code


def reference() -> Iterator[tuple[str, str]]:
    """A page for each room of the package, with the modules in it."""
    for room in sorted(path.parent for path in ROOT.glob("src/efcil/*/__init__.py")):
        if room.name == "commands":  # `efcil COMMAND --help` says it
            continue
        modules = [path for path in sorted(room.rglob("*.py")) if path.stem != "__init__"]
        names = [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in modules]
        text = "".join(f"## {name.removeprefix('efcil.')}\n\n::: {name}\n    options: {OPTIONS}\n\n" for name in names)
        yield room.name, f"# efcil.{room.name}\n\n::: efcil.{room.name}\n    options: {OPTIONS}\n\n{text}"


OPTIONS = "{show_root_heading: false, show_root_toc_entry: false, heading_level: 3}"


def methods() -> str:
    """The list of all methods, each with its page."""
    from efcil.methods import METHODS

    rows = sorted(METHODS.values(), key=lambda cls: (cls.year, cls.name))
    table = "\n".join(f"| [{cls.name}]({cls.name}.md) | {cls.year} | {cls.idea} | {cls.stores} |" for cls in rows)
    return f"{METHODS_PAGE}\n| method | year | idea | kept between tasks |\n|---|---|---|---|\n{table}\n"


METHODS_PAGE = """---
hide: [toc]
---

# All methods

Each is one file that holds what is its own, and its page lists every difference from its publication. All of them
learn through the same `IncrementalClassifier`, on the same streams, and keep the same promises. What is kept between
tasks is all that is left of the images; `efcil methods` says how many bytes that is.
[A new method](../../CONTRIBUTING.md#add-a-method) is one file, too.
"""


# The list of pages


def listed(nav: Any) -> Iterator[str]:
    """Every page that is named, patterns left out."""
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(value, list):
            yield from listed(value)
        elif "*" not in value:
            yield value


def filled(nav: Any, rest: list[str]) -> list[Any]:
    """The same list with pages in the place of patterns; each page is used up by the first that takes it."""
    result: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            ((title, value),) = entry.items()
            inner = filled(value, rest) if isinstance(value, list) else value
            result += [{title: inner}] if inner else []
        elif "*" in entry:
            found = [uri for uri in rest if fnmatch.fnmatch(uri, entry) and uri.count("/") == entry.count("/")]
            for uri in found:
                rest.remove(uri)
            result += found
        else:
            result.append(entry)
    return result
