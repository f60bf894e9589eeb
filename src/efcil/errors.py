"""One kind of error for everything a user can put right, each with one clear sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """Something outside the program is wrong; the message says what, and what to do."""


class Notice(UserWarning):
    """Something that the user may not have meant, said once; the work goes on."""


def plain_notice(message: Any, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """A Notice as the command line shows it; other warnings with the place that they come from, as usual."""
    if issubclass(category, Notice):
        return f"efcil: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def unknown(kind: str, name: object, choices: Iterable[str]) -> UserError:
    """An error for a name that does not exist, with the nearest ones that do."""
    choices = sorted(choices)
    near = difflib.get_close_matches(str(name), choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(choices)}."
    return UserError(f"There is no {kind} called {str(name)!r}; {hint}")
