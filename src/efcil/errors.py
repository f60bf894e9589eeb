"""One kind of error for everything a user can put right, each with one clear sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something outside the program is wrong; the message says what, and what to do."""


def unknown(kind: str, name: object, choices: Iterable[str]) -> UserError:
    """An error for a name that does not exist, with the nearest ones that do."""
    choices = sorted(choices)
    near = difflib.get_close_matches(str(name), choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(choices)}."
    return UserError(f"There is no {kind} called {str(name)!r}; {hint}")
