"""One mutant and its tests, in a process of its own that was forked before the package was imported."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from mutations import Mutant, mutated

OPTIONS = [
    *("-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # hypothesis is imported before pytest starts
]


class MutatedLoader(importlib.machinery.SourceFileLoader):
    """Loads one module from other code than its file has."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self.code = code

    def get_code(self, fullname: str) -> CodeType:
        return self.code


class MutatedFinder:
    """Finds one module before anybody else does."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self.name, self.path, self.code = name, path, code

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        loader = MutatedLoader(name, str(self.path), self.code)
        package = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            name, self.path, loader=loader, submodule_search_locations=package
        )


class Chosen:
    """Keeps these tests alone, in this order: the quickest first."""

    def __init__(self, tests: list[str]) -> None:
        self.place = {test: place for place, test in enumerate(tests)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.place), key=lambda i: self.place[i.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def module_name(path: str) -> str:
    """src/efcil/paper/efm.py is efcil.paper.efm."""
    parts = Path(path).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def limit(seconds: float) -> None:
    """End this process when it has used so much of the processor, or memory as no test does."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, 12 * 2**30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def try_mutant(root: Path, mutant: Mutant, tests: list[str], folder: Path) -> int:
    """The exit code of pytest; 0 says that no test noticed."""
    source = root / mutant.path
    code = compile(mutated(source.read_text(), mutant.number), str(source), "exec")
    sys.meta_path.insert(0, MutatedFinder(module_name(mutant.path), source, code))  # type: ignore[arg-type]
    chosen = Chosen(tests)
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    result = pytest.main([*files, "-x", *OPTIONS, f"--basetemp={folder / 'temporary'}"], plugins=[chosen])
    (folder / "failed").write_text(chosen.failed or "while the tests were collected")
    return int(result)


def prepare() -> None:
    """Import what takes long and is never mutated, once for all children."""
    import hypothesis
    import numpy  # noqa: F401
    import PIL.Image  # noqa: F401
    import safetensors.torch  # noqa: F401
    import sklearn.svm  # noqa: F401
    import torch
    import torch.nn.utils.parametrize
    import torch.optim
    import yaml  # noqa: F401

    torch.set_num_threads(1)
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # no search for the smallest example
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None, deadline=None, phases=phases)
    hypothesis.settings.load_profile("mutants")
    os.environ["OMP_NUM_THREADS"] = "1"
