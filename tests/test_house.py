"""Imports go one way, from what users touch down to what everything stands on (CONTRIBUTING.md draws the house)."""

from __future__ import annotations

import ast
from pathlib import Path

import efcil

ROOT = Path(efcil.__file__).parent
# A room may import from itself and from rooms further down; rooms on one line know nothing of each other.
FLOORS = (
    ("__main__",),
    ("cli",),
    ("commands",),
    ("serve", "report"),
    ("analysis", "export", "teaching"),
    ("bench",),
    ("classifier",),
    ("methods",),
    ("parts",),
    ("paper",),
    ("engine",),
    ("backbones", "data"),
    ("rng", "config"),
    ("errors",),
)
FLOOR = {room: height for height, rooms in enumerate(reversed(FLOORS)) for room in rooms}


def imports(path: Path) -> set[str]:
    """The modules of this package that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("efcil.")}


def room(module: str) -> str:
    return module.split(".")[1]


def test_no_import_points_up() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = room("efcil." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
        if own == "__init__":  # the public names; torch is imported only when one of them is asked for
            continue
        for name in imports(path):
            if room(name).startswith("__version__") or room(name) == own:
                continue
            if FLOOR[room(name)] >= FLOOR[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_every_room_has_its_floor() -> None:
    rooms = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} <= FLOOR.keys()


def test_no_method_imports_another() -> None:
    files = [path for path in (ROOT / "methods").glob("*.py") if path.stem != "__init__"]
    wrong = {path.name: found for path in files if (found := {n for n in imports(path) if room(n) == "methods"})}
    assert not wrong
