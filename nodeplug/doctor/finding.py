"""A finding: the outcome of a check, in words, and what to do about it."""

from typing import Literal

from msgspec import Struct

Outcome = Literal["ok", "note", "wrong"]


class Finding(Struct, frozen=True):
    """One thing that was looked at. `note`: it can be as it is meant to be, or cannot be judged from here."""

    outcome: Outcome
    subject: str
    says: str
    do: str = ""
