"""What argparse finds wrong, as one sentence with the nearest name that exists instead of the usage."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from efcil.errors import UserError, in_order, nearest

MANY = 20  # names that are better read in the help than in a sentence
LIKE = 0.6  # words as short as these resemble each other by chance


class Parser(argparse.ArgumentParser):
    """Of the program or of one of its commands, whose parser is made with this class too."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Each parser looks after its own unknown words, so that it is the right command that is spoken of."""
        parsed, unknown = super().parse_known_args(args, namespace)
        many = [action for action in self._get_positional_actions() if action.nargs == "*"]
        # Of `table 2 --format csv PRESET`: argparse gave PRESET up when it met the option.
        if many and unknown and not getattr(parsed, many[0].dest) and not any(word[:1] == "-" for word in unknown):
            setattr(parsed, many[0].dest, self._get_values(many[0], unknown))
            unknown = []
        if unknown:
            raise self.unknown_words(unknown)
        return parsed, unknown

    def unknown_words(self, words: Sequence[str]) -> UserError:
        options = [word.partition("=")[0] for word in words if word.startswith("-")]
        if not options:
            return UserError(f"There is no place for {words[0]!r}; `{self.prog} --help` shows what it takes.")
        known = {name.lstrip("-"): name for name in self._option_string_actions}
        near = [known[name] for name in nearest(options[0].lstrip("-"), known, LIKE)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"`{self.prog} --help` lists them."
        return UserError(f"There is no option {options[0]} of {self.prog}; {hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = in_order(action.choices)
        if not isinstance(action, argparse._SubParsersAction):
            name = action.option_strings[-1] if action.option_strings else action.metavar or action.dest
            raise UserError(f"{name} takes {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}.")
        near = [] if value.isdecimal() else nearest(value, choices, LIKE)  # a number is near to any other
        listed = f"`{self.prog} --help` lists them." if len(choices) > MANY else f"there are: {', '.join(choices)}."
        hint = f"did you mean {' or '.join(near)}?" if near else listed
        raise UserError(f"There is no {str(action.metavar).lower()} called {value!r}; {hint}")

    def error(self, message: str) -> NoReturn:
        _, required, names = message.partition("arguments are required: ")
        sentence = f"{names} must be given" if required else f"{message[:1].upper()}{message[1:]}"
        raise UserError(f"{sentence}; `{self.prog} --help` shows what it takes.")
