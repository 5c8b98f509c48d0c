"""A finding: the outcome of a check, in words, and what to do about it."""

from typing import Literal

from msgspec import Struct

Outcome = Literal["ok", "note", "wrong"]


class Finding(Struct, frozen=True):
    """The result of one check. `note`: it can be as intended, or cannot be judged from here."""

    outcome: Outcome
    subject: str
    message: str
    hint: str = ""
