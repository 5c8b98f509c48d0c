"""What one life with a fault in it showed."""

from msgspec import Struct


class Outcome(Struct):
    """What was wrong at its end, how often its process was started, its log, and whether the fault was met at all."""

    wrong: list[str]
    starts: int
    log: str
    met: bool
