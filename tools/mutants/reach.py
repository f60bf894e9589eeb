"""Which tests call which functions of the package, and how long each test takes: noted in one run of all tests.

What a cached helper or a shared fixture calls is noted for every test that uses it, not only for the first one.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

Reach = dict[str, dict[str, Any]]  # test → {"seconds": …, "calls": ["src/efcil/….py::Class.function", …]}


class Recorder:
    """Notes the functions that are called, as a plugin of pytest."""

    def __init__(self, root: Path) -> None:
        self.package = f"{root / 'src' / 'efcil'}/"
        self.root = root
        self.calls: set[str] = set()  # of what runs now
        self.shared: dict[str, set[str]] = {}  # fixture of more than one test → what its making called
        self.reach: Reach = {}
        self.failed: list[str] = []
        functools.cache = self.cache  # type: ignore[assignment]

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Called by Python at every call; nothing inside the function is followed."""
        code = frame.f_code
        if code.co_filename.startswith(self.package):
            self.calls.add(f"{Path(code.co_filename).relative_to(self.root)}::{code.co_qualname.split('.<')[0]}")

    def cache(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """functools.cache, except that every user of a kept result is noted as a caller of what made it."""
        kept: dict[Hashable, tuple[Any, set[str]]] = {}

        @functools.wraps(function)
        def cached(*arguments: Any, **named: Any) -> Any:
            key = (arguments, tuple(named.items()))
            if key not in kept:
                outer, self.calls = self.calls, set()
                kept[key] = function(*arguments, **named), self.calls
                self.calls = outer
            self.calls = self.calls | kept[key][1]
            return kept[key][0]

        return cached

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        outer, self.calls = self.calls, set()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self.shared[f"{fixturedef.baseid}:{fixturedef.argname}"] = self.calls
            self.calls = outer | self.calls

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Iterator[None]:
        self.calls = set()
        begun = time.process_time()
        sys.settrace(self.note)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            for name, definitions in item._fixtureinfo.name2fixturedefs.items():
                for definition in definitions:
                    self.calls |= self.shared.get(f"{definition.baseid}:{name}", set())
            self.reach[item.nodeid] = {"seconds": time.process_time() - begun, "calls": sorted(self.calls)}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
            print(f"\n{report.nodeid}\n{report.longreprtext}", flush=True)


def record(recorder: Recorder, items: list[Any], folder: Path, out: Path) -> int:
    """Run these collected tests in this process and write down what each of them reached."""
    config = items[0].config
    config._tmp_path_factory._given_basetemp = folder / "temporary"
    config.pluginmanager.register(recorder)
    for item, following in zip(items, [*items[1:], None], strict=True):
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    if recorder.failed:
        return 1
    out.write_text(json.dumps(recorder.reach))
    return 0


def fingerprint(root: Path, test: str) -> str:
    """Changes when the package or this test file changes."""
    digest = hashlib.sha256()
    for path in sorted([*root.glob("src/**/*.py"), root / test, *root.glob("tests/**/conftest.py")]):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]
