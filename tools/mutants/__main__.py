"""Mutation testing: are the tests good enough to notice small wrong changes to the code?

    python tools/mutants              a sample of 300 mutants, always the same
    python tools/mutants --all        every mutant
    python tools/mutants --only efm   those of the files whose path has this in it
    python tools/mutants --again      not those that an earlier run has seen noticed (noticed.py)

It prints the share of mutants that a test noticed, for each file and over all, and every mutant that none noticed.
Those of survivors.yaml are explained there (no test can notice them); they count neither as noticed nor as missed. The
exit code is 1 when less than 95 % are noticed, or when an explanation fits no mutant any more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from mutations import Mutant, mutants_of
from noticed import Noticed
from reach import Reach, Recorder, fingerprint, record
from trial import OPTIONS, UNCHANGEABLE, limit, prepare, try_function, try_module

ROOT = Path(__file__).parents[2]
MUTATED = [
    "src/efcil/config.py",
    "src/efcil/engine/rotation.py",
    "src/efcil/engine/trainer.py",
    "src/efcil/engine/checkpoint.py",
    "src/efcil/engine/method.py",
    "src/efcil/bench/metrics.py",
    "src/efcil/paper/*.py",
    "src/efcil/methods/*.py",
]
TESTS = [  # those that run in this process; the command line's are processes of their own, which no mutant reaches
    *(f"tests/{folder}/test_*.py" for folder in ("engine", "paper", "parts", "methods")),
    *(
        "tests/bench/test_metrics.py",
        "tests/test_contract.py",
        "tests/test_classifier.py",
        "tests/test_lessons.py",
        "tests/test_mistakes.py",
        "tests/test_config.py",
    ),
    "tests/test_docs.py",
]
SETTINGS = ("tests/test_docs.py", "tests/test_config.py", "tests/methods/test_settings.py")
"""Tests that look at defaults and recipes, which are made when a module is imported and not in any call."""
LEFT_OUT = ("tests/test_docs.py::test_the_",)
"""Tests that run commands of the documentation, in processes of their own."""
KEPT = ROOT / ".mutants"
NOTICED = Noticed(ROOT, KEPT / "noticed.jsonl")
LEAST = 0.95
BUDGET = 45.0  # seconds of tests for one mutant: what so many tests do not notice is missed


@dataclass
class Outcome:
    mutant: Mutant
    noticed: bool
    by: str  # the test that noticed it


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation testing.", prog="python tools/mutants")
    parser.add_argument("--all", action="store_true", help="every mutant instead of a sample")
    parser.add_argument("--sample", type=int, default=300, help="number of mutants in the sample")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--only", default="", help="only files whose path has this in it")
    parser.add_argument("--again", action="store_true", help="do not try again what an earlier run has seen noticed")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    KEPT.mkdir(exist_ok=True)
    prepare()
    begun = time.monotonic()
    every = [m for path in expanded(MUTATED) for m in mutants_of(path, (ROOT / path).read_text())]
    explained = explanations()
    stale = sorted(set(explained) - {(m.path, m.key) for m in every})
    chosen = [m for m in every if arguments.only in m.path]
    if not arguments.all and len(chosen) > arguments.sample:
        chosen = random.Random(arguments.seed).sample(chosen, arguments.sample)
    print(f"{len(chosen)} of {len(every)} mutants.", flush=True)
    left = [(m, explained[m.path, m.key]) for m in chosen if (m.path, m.key) in explained]
    chosen = [m for m in chosen if (m.path, m.key) not in explained]
    before = NOTICED.read() if arguments.again else {}
    outcomes = [Outcome(m, True, before[m.path, m.key]) for m in chosen if (m.path, m.key) in before]
    if outcomes:
        print(f"{len(outcomes)} of them were noticed before.", flush=True)
    outcomes += run([m for m in chosen if (m.path, m.key) not in before], arguments.jobs)
    return report(outcomes, left, stale, time.monotonic() - begun)


def expanded(patterns: list[str]) -> list[str]:
    return [str(path.relative_to(ROOT)) for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def explanations() -> dict[tuple[str, str], str]:
    """File and key of each explained mutant, and why no test notices it."""
    listed = yaml.safe_load((Path(__file__).parent / "survivors.yaml").read_text()) or {}
    return {(path, key): reason for path, entries in listed.items() for key, reason in entries.items()}


def run(mutants: list[Mutant], jobs: int) -> list[Outcome]:
    """Try them all: those of functions from a process that has collected the tests, the others from this one."""
    done = KEPT / "outcomes.json"
    for _, code, _ in forked([mutants], lambda every, _: collected(every, jobs, done), 1):
        if code != 0:
            sys.exit(f"The tests could not be collected or fail without any mutant (exit code {code}).")
    told = json.loads(done.read_text())
    by_number = {(m.path, m.number): m for m in mutants}
    outcomes = [Outcome(by_number[path, number], noticed, by) for path, number, noticed, by in told["outcomes"]]
    late = {by_number[path, number]: tests for path, number, tests in told["late"]}

    def trying(mutant: Mutant, folder: Path) -> int:
        limit(60 + told["seconds"])
        quietly(folder / "log")
        return try_module(ROOT, mutant, late[mutant], folder)

    for mutant, code, folder in forked(list(late), trying, jobs):
        outcomes.append(outcome_of(mutant, code, folder))
    return outcomes


def collected(mutants: list[Mutant], jobs: int, done: Path) -> int:
    """Collect all tests, find out what each calls, and try the mutants of functions; the rest is written down."""
    files = expanded(TESTS)
    return int(pytest.main([*files, *OPTIONS], plugins=[Session(mutants, files, jobs, done)]))


class Session:
    """Takes the place of pytest's loop over the tests."""

    def __init__(self, mutants: list[Mutant], files: list[str], jobs: int, done: Path) -> None:
        self.mutants, self.files, self.jobs, self.done = mutants, files, jobs, done
        self.recorder = Recorder(ROOT)  # before the tests are imported, so that their caches are its own

    def pytest_runtestloop(self, session: Any) -> bool:
        if session.testsfailed:
            os._exit(1)
        items = {item.nodeid: item for item in session.items if not item.nodeid.startswith(LEFT_OUT)}
        reach = self.reached(items)
        tests = {mutant: tests_of(mutant, reach) for mutant in self.mutants}
        outcomes = [Outcome(m, False, "no test calls it") for m in self.mutants if not tests[m]]
        quick = [m for m in self.mutants if tests[m] and m.in_function]
        late = [m for m in self.mutants if tests[m] and not m.in_function]

        def trying(mutant: Mutant, folder: Path) -> int:
            limit(30 + 3 * sum(reach[test]["seconds"] for test in tests[mutant]))
            quietly(folder / "log")
            return try_function(ROOT, mutant, [items[test] for test in tests[mutant]], folder)

        for mutant, code, folder in forked(quick, trying, self.jobs):
            if code == UNCHANGEABLE:
                late.append(mutant)
            else:
                outcomes.append(outcome_of(mutant, code, folder))
        told = {
            "outcomes": [(o.mutant.path, o.mutant.number, o.noticed, o.by) for o in outcomes],
            "late": [(m.path, m.number, tests[m]) for m in late],
            "seconds": sum(noted["seconds"] for noted in reach.values()),
        }
        self.done.write_text(json.dumps(told))
        os._exit(0)

    def reached(self, items: dict[str, Any]) -> Reach:
        """What each test calls; kept for every test file until it or the package changes."""
        kept = {file: KEPT / f"{fingerprint(ROOT, file)}.json" for file in self.files}
        missing = [file for file in self.files if not kept[file].exists()]
        if missing:
            print(f"Noting what the tests of {len(missing)} files call, which takes about as long as they do.")

        def recording(file: str, folder: Path) -> int:
            quietly(KEPT / f"{Path(file).stem}.log")
            own = [item for name, item in items.items() if name.startswith(f"{file}::")]
            return record(self.recorder, own, folder, kept[file])

        for file, code, _ in forked(missing, recording, self.jobs):
            if code != 0:
                print(f"{file} fails without any mutant; see {KEPT / Path(file).stem}.log.")
                os._exit(code)
        return {name: noted for file in self.files for name, noted in json.loads(kept[file].read_text()).items()}


def tests_of(mutant: Mutant, reach: Reach) -> list[str]:
    """Tests that can notice it: those of the file's own name, then the quickest, as many as BUDGET allows."""
    if mutant.in_function:
        called = f"{mutant.path}::{mutant.scope}"
        found = [test for test, noted in reach.items() if called in noted["calls"]]
    else:
        called = f"{mutant.path}::"
        found = [
            test
            for test, noted in reach.items()
            if test.startswith(SETTINGS) or any(call.startswith(called) for call in noted["calls"])
        ]
    own = f"test_{Path(mutant.path).stem.strip('_')}"
    found.sort(key=lambda test: (own not in test, reach[test]["seconds"]))
    spent = accumulate(reach[test]["seconds"] for test in found)
    return [test for test, seconds in zip(found, spent, strict=True) if seconds <= BUDGET]


Task = TypeVar("Task")


def forked(tasks: list[Task], function: Callable[[Task, Path], int], jobs: int) -> Iterator[tuple[Task, int, Path]]:
    """Each task in a process of its own, with a folder of its own: task, exit code and folder, as they end."""
    waiting, running = list(reversed(tasks)), {}
    with tempfile.TemporaryDirectory() as temporary:
        while waiting or running:
            while waiting and len(running) < jobs:
                task, folder = waiting.pop(), Path(tempfile.mkdtemp(dir=temporary))
                sys.stdout.flush()
                child = os.fork()
                if child == 0:
                    try:
                        os._exit(function(task, folder))
                    except BaseException:
                        traceback.print_exc()
                    finally:
                        os._exit(70)
                running[child] = (task, folder)
            child, status = os.wait()
            task, folder = running.pop(child)
            yield task, os.waitstatus_to_exitcode(status), folder
            shutil.rmtree(folder)


def outcome_of(mutant: Mutant, code: int, folder: Path) -> Outcome:
    told = (folder / "log").read_text()
    if code == 70 or (
        code == 4 and "while loading conftest" not in told
    ):  # a package that no test can import is noticed
        sys.exit(f"A mutant could not be tried:\n{told}")
    failed = folder / "failed"
    by = failed.read_text() if failed.exists() else "a limit of time" if code < 0 else "the import"
    mark = f"noticed by {by}" if code else "SURVIVED"
    print(f"{mutant.path}:{mutant.line} {mutant.key[:110]}: {mark}", flush=True)
    if failed.exists():
        NOTICED.add(mutant, by)
    return Outcome(mutant, code != 0, by)


def quietly(log: Path) -> None:
    """What this process prints goes to a file."""
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 1)
    os.dup2(stream, 2)


# Reporting


def report(
    outcomes: list[Outcome], explained: list[tuple[Mutant, str]], stale: list[tuple[str, str]], seconds: float
) -> int:
    tried, noticed = (
        Counter(outcome.mutant.path for outcome in outcomes),
        Counter(outcome.mutant.path for outcome in outcomes if outcome.noticed),
    )
    print("\nMutants that no test noticed:")
    for outcome in sorted(outcomes, key=lambda o: (o.mutant.path, o.mutant.line)):
        if not outcome.noticed:
            m = outcome.mutant
            print(f"  {m.path}:{m.line} in {m.scope or 'module'}\n    - {m.before}\n    + {m.after}")
    print("\nMutants that no test can notice, with the reason:")
    for mutant, reason in sorted(explained, key=lambda pair: (pair[0].path, pair[0].line)):
        print(f"  {mutant.path}:{mutant.line} {mutant.key}\n    {reason}")
    for path, key in stale:
        print(f"  OUT OF DATE: {path} has no mutant {key!r} any more; remove it from survivors.yaml.")
    print("\nNoticed per file:")
    for path in sorted(tried):
        print(f"  {noticed[path] / tried[path]:6.1%}  {noticed[path]:4} of {tried[path]:4}  {path}")
    share = sum(noticed.values()) / max(1, len(outcomes))
    print(
        f"\n{share:.1%} of {len(outcomes)} mutants were noticed ({LEAST:.0%} are needed), {len(explained)} more are "
        f"explained; {seconds / 60:.1f} minutes."
    )
    return 1 if share < LEAST or stale else 0


if __name__ == "__main__":
    sys.exit(main())
