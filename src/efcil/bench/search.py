"""What `efcil tune --search` takes: a field of the config, and the values that may be tried for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from efcil.bench.scenarios import SECTIONS, flat, number_settings, resolve
from efcil.errors import UserError

FORMS = "field=0.01..1, field=1e-4..1e-2:log or field=ridge|efm"


@dataclass(frozen=True)
class Dimension:
    """One field with its range, or with its choices."""

    field: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False  # values of every order of magnitude are as likely
    whole: bool = False
    choices: tuple[str, ...] = ()

    def values(self) -> list[str]:
        """What can be tried, as far as it shows whether the field takes it: every choice, or both ends."""
        return list(self.choices) or [self._text(self.low), self._text(self.high)]

    def suggest(self, trial: Any) -> str:
        """The value that this trial tries, as ``field=value``; asked again, it is the same."""
        if self.choices:
            value = trial.suggest_categorical(self.field, self.choices)
        elif self.whole:
            value = str(trial.suggest_int(self.field, int(self.low), int(self.high), log=self.log))
        else:
            value = self._text(trial.suggest_float(self.field, self.low, self.high, log=self.log))
        return f"{self.field}={value}"

    def _text(self, value: float) -> str:
        return str(int(value)) if self.whole or value.is_integer() else f"{value:.6g}"


def parse_search(text: str) -> Dimension:
    """``options.eta=0.01..1:log`` or ``options.drift=ridge|efm``."""
    field, equals, rest = text.partition("=")
    if not field or not equals or not ("|" in rest or ".." in rest):
        raise UserError(f"--search takes {FORMS}, not {text!r}.")
    if "|" in rest:
        choices = tuple(part.strip() for part in rest.split("|"))
        if "" in choices or len(set(choices)) < len(choices):
            raise UserError(f"--search {text}: every choice must be there, and once.")
        return Dimension(field, choices=choices)
    ends, _, kind = rest.partition(":")
    try:
        low, high = map(float, ends.split(".."))
    except ValueError:
        raise UserError(f"--search {text}: a range is two numbers, such as 0.01..1.") from None
    if kind not in ("", "log"):
        raise UserError(f"--search {text}: after a range only :log may stand, not :{kind}.")
    if not low < high or not all(abs(end) < float("inf") for end in (low, high)):
        raise UserError(f"--search {text}: a range goes from the smaller to the greater number.")
    if kind and low <= 0:
        raise UserError(f"--search {text}: a range with :log begins above 0.")
    return Dimension(field, low, high, bool(kind))


def checked(dimension: Dimension, preset: str, method: str, seed: int, changes: Sequence[str]) -> Dimension:
    """The dimension, with whole numbers where its field has them, if the field is one that can be tuned."""
    name = dimension.field if dimension.field.split(".")[0] in SECTIONS else f"classifier.{dimension.field}"
    if name.startswith("stream.") or name in ("data.name", "data.held_out", "classifier.seed", "classifier.method"):
        raise UserError(f"--search {dimension.field}: what is measured would change with it; choose it yourself.")

    def found(value: str) -> Any:
        try:
            settings = flat(number_settings(resolve(preset, method, seed, [*changes, f"{dimension.field}={value}"])))
        except UserError as error:
            raise UserError(f"--search {dimension.field}: {error}") from None
        if name not in settings:
            raise UserError(f"--search {dimension.field}: no number of a run depends on it, or it is a whole section.")
        return settings[name]

    if not dimension.choices and dimension.low.is_integer() and dimension.high.is_integer():
        dimension = replace(dimension, whole=type(found(str(int(dimension.low)))) is int)
    for value in dimension.values():
        found(value)
    return dimension


def distinct(dimensions: Sequence[Dimension]) -> None:
    names = [dimension.field.removeprefix("classifier.") for dimension in dimensions]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--search {name} is given twice; a field has one range or one list of choices.")
