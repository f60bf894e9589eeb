"""One mutant and its tests, in a process of its own.

A function is changed where it is: the process is forked from one that has collected all tests, and the function gets
the code that it has in the mutated file. What runs when a module is imported cannot be changed any more by then, so for
such a mutant a process without the package imports it from the mutated file.
"""

from __future__ import annotations

import ast
import gc
import importlib.machinery
import importlib.util
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from mutations import Mutant, mutated

OPTIONS = [
    *("-q", "--no-header", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # hypothesis is imported before pytest starts
]
UNCHANGEABLE = 71  # exit code: the function cannot be changed where it is


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

    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.zeros(1))
    for optimizer in (torch.optim.Adam([parameter]), torch.optim.SGD([parameter])):  # both import more at first use
        parameter.sum().backward()
        optimizer.step()
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # no search for the smallest example
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None, deadline=None, phases=phases)
    hypothesis.settings.load_profile("mutants")
    os.environ["OMP_NUM_THREADS"] = "1"


def limit(seconds: float) -> None:
    """End this process when it has used so much of the processor, or memory as no test does."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, 12 * 2**30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# A function, changed where it is


def try_function(root: Path, mutant: Mutant, items: list[Any], folder: Path) -> int:
    """Run these collected tests with the function changed; 0 says that no test noticed."""
    source = root / mutant.path
    changed = compile(mutated(source.read_text(), mutant.number), str(source), "exec")
    originals = dict(codes(compile(ast.parse(source.read_text()), str(source), "exec")))
    found = 0
    try:
        for place, code in codes(changed):
            if code != originals[place]:
                for function in functions(str(source), *place):
                    function.__code__ = code
                    found += 1
    except ValueError:  # it uses other variables of the function or class around it
        return UNCHANGEABLE
    return run_items(items, folder) if found else UNCHANGEABLE


def codes(module: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """The code of every function that is made when the module is imported, by name and line."""
    for constant in module.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function; otherwise the body of a class
                yield (constant.co_qualname, constant.co_firstlineno), constant
            else:
                yield from codes(constant)


def functions(path: str, name: str, line: int) -> list[FunctionType]:
    """The function itself, however it is wrapped."""
    return [
        thing
        for thing in gc.get_objects()
        if type(thing) is FunctionType  # isinstance would wake what is loaded at first use
        and (thing.__code__.co_filename, thing.__code__.co_qualname, thing.__code__.co_firstlineno)
        == (path, name, line)
    ]


def run_items(items: list[Any], folder: Path) -> int:
    """These tests one after the other until one fails."""
    watch = FirstFailure()
    config = items[0].config
    config.pluginmanager.register(watch)
    config._tmp_path_factory._given_basetemp = folder / "temporary"
    for item, following in zip(items, [*items[1:], None], strict=True):
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if watch.failed:
            (folder / "failed").write_text(watch.failed)
            return 1
    return 0


class FirstFailure:
    """Notes the first test that fails."""

    failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed = self.failed or (report.nodeid if report.failed else "")


# A module, imported from the mutated file


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
    """Runs these tests alone, in this order."""

    def __init__(self, tests: list[str], folder: Path) -> None:
        self.place = {test: place for place, test in enumerate(tests)}
        self.folder = folder

    def pytest_runtestloop(self, session: Any) -> bool:
        chosen = [item for item in session.items if item.nodeid in self.place]
        os._exit(run_items(sorted(chosen, key=lambda item: self.place[item.nodeid]), self.folder))


def module_name(path: str) -> str:
    """src/efcil/paper/efm.py is efcil.paper.efm."""
    parts = Path(path).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def try_module(root: Path, mutant: Mutant, tests: list[str], folder: Path) -> int:
    """Import everything anew and run these tests; 0 says that none noticed."""
    source = root / mutant.path
    code = compile(mutated(source.read_text(), mutant.number), str(source), "exec")
    sys.meta_path.insert(0, MutatedFinder(module_name(mutant.path), source, code))  # type: ignore[arg-type]
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    return int(pytest.main([*files, *OPTIONS], plugins=[Chosen(tests, folder)]))
