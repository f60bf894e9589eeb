"""Mutants that a test has noticed, kept from run to run.

Each stays noticed for as long as the mutated file and the test that noticed it stand as they were. What the test calls
besides may have changed, so the number to tell comes from a run that tries them all.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from pathlib import Path

from mutations import Mutant


class Noticed:
    def __init__(self, root: Path, file: Path) -> None:
        self.root, self.file = root, file

    def add(self, mutant: Mutant, test: str) -> None:
        line = [mutant.path, mutant.key, test, self.digest(mutant.path, test)]
        with self.file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")

    def read(self) -> dict[tuple[str, str], str]:
        """Path and key of each mutant that is still noticed, and the test that does."""
        lines = map(json.loads, self.file.read_text().splitlines()) if self.file.exists() else []
        return {(path, key): test for path, key, test, digest in lines if digest == self.digest(path, test)}

    def digest(self, path: str, test: str) -> str:
        """Changes when the mutated file or the test changes; the test's neighbours may."""
        file, name = test.split("[")[0].split("::")
        told = [text(self.root / path), functions(self.root / file).get(name, "gone")]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


@functools.cache
def functions(file: Path) -> dict[str, str]:
    """The functions of a file, by name."""
    return {node.name: ast.unparse(node) for node in ast.parse(text(file)).body if isinstance(node, ast.FunctionDef)}


def text(file: Path) -> str:
    return file.read_text() if file.exists() else ""
