"""How long to wait before asking again."""

MAX_WAIT = 30.0
"""Seconds that are waited at the most, whatever the server asks for."""
_FIRST_WAIT = 0.5


def pause(failures: int, asked: float | None = None) -> float:
    """Seconds to wait after the n-th failure; as the server asked, if it did."""
    return float(min(asked if asked is not None else _FIRST_WAIT * 2 ** (failures - 1), MAX_WAIT))
