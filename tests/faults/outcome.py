"""The result of one scenario with a fault."""

from msgspec import Struct


class Outcome(Struct):
    """The errors of its final state, the number of its starts, its log, and whether the fault occurred."""

    wrong: list[str]
    starts: int
    log: str
    met: bool
