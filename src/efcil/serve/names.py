"""What a class that is taught or renamed here may be called."""

from __future__ import annotations

import unicodedata

from efcil.errors import TooLarge, UserError

MARKUP = "<>"
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # make a reader see another order
INVISIBLE = ("Cc", "Cs", "Zl", "Zp")


def class_name(given: str, most: int) -> str:
    """The name as it is kept, or one sentence on why it cannot be one."""
    if len(given) > most:  # before anything looks at all of it
        raise TooLarge(f"A class name has at most {most} characters, this one has {len(given):,}; shorten it.")
    name = unicodedata.normalize("NFC", given).strip()  # letters typed in two ways are one letter
    if not name:
        raise UserError("The name of the class is empty; give it one.")
    if any(letter in MARKUP for letter in name):
        raise UserError("A class name must not hold < or >; leave them out.")
    if any(letter in TURNING or unicodedata.category(letter) in INVISIBLE for letter in name):
        raise UserError("A class name must not hold control characters; leave them out.")
    if name in (".", ".."):
        raise UserError("A class cannot be called . or .., which mean folders; choose another name.")
    return name
