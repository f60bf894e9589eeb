"""One kind of error for everything a user can put right, each with one clear sentence."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable
from typing import Any

MANY = 12  # names in a sentence that can still be read
LISTED_BY = {
    "claim": "efcil claims",
    "data set": "efcil data list",
    "field in classifier": "efcil settings",
    "grid": "efcil grids",
    "method": "efcil methods",
    "preset": "efcil presets",
    "setting": "efcil settings",
}


class UserError(ValueError):
    """Something outside the program is wrong; the message says what, and what to do."""


class TooLarge(UserError):
    """What was given has more of something than a limit allows."""


class WrongType(UserError):
    """What was given is a file of another kind than what is wanted."""


class Busy(UserError):
    """Somebody else is at work on it."""


class CannotWrite(UserError, OSError):
    """A file cannot be written: the disk is full, or nobody may write there; what was in its place is still whole."""

    def __str__(self) -> str:
        return str(self.args[0])  # the sentence alone, without the number of the error


def cannot_write(path: str | os.PathLike[str], error: OSError) -> CannotWrite:
    """The sentence on a file that could not be written, with what to do."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "make room" if full else "choose another place"
    why = error.strerror or str(error)
    told = CannotWrite(f"{os.fspath(path)} cannot be written ({why}); {remedy}.")
    told.errno, told.strerror, told.filename = error.errno, why, os.fspath(path)
    return told


def invalid_yaml(what: str, error: Exception) -> UserError:
    """The sentence on a file that is no YAML: where it breaks off, and what was being read there."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    context, start = getattr(error, "context", None), getattr(error, "context_mark", None)
    where = f", line {mark.line + 1}" if mark else ""
    begun = f" ({context} that begins in line {start.line + 1})" if context and start else ""
    return UserError(f"{what} is not valid YAML{where}: {problem or 'a character that no text has'}{begun}.")


class Notice(UserWarning):
    """Something that the user may not have meant, said once; the work goes on."""


def plain_notice(message: Any, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """A Notice as the command line shows it; other warnings with the place that they come from, as usual."""
    if issubclass(category, Notice):
        return f"efcil: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def unknown(kind: str, name: object, choices: Iterable[str]) -> UserError:
    """An error for a name that does not exist, with the nearest ones that do, or else what there is."""
    choices = in_order(choices)
    near = nearest(str(name), choices)
    hint = f"did you mean {' or '.join(near)}?" if near else listed(kind, choices)
    return UserError(f"There is no {kind} called {str(name)!r}; {hint}")


def listed(kind: str, choices: list[str]) -> str:
    """All choices, or where they are too many for a sentence, how to see them."""
    if len(choices) <= MANY:
        return f"there are: {', '.join(choices)}." if choices else "there is none."
    if kind in LISTED_BY:
        return f"`{LISTED_BY[kind]}` lists all {len(choices)}."
    return f"there are: {', '.join(choices[:MANY])} and {len(choices) - MANY} more."


def nearest(name: str, choices: Iterable[str], likeness: float = 0.5) -> list[str]:
    """Up to three of the choices that may have been meant, the likeliest first."""
    return difflib.get_close_matches(name, list(choices), n=3, cutoff=likeness)


def in_order(names: Iterable[str]) -> list[str]:
    """Sorted as people count: cold5 before cold10."""
    return sorted(names, key=lambda name: [int(p) if p.isdecimal() else p for p in re.split(r"([0-9]+)", name)])
