"""How long to wait before asking again."""

import os

MAX_WAIT = 30.0
"""Seconds that are waited at the most, whatever the server asks for; jitter comes on top."""
_FIRST_WAIT = 0.5
_JITTER = 0.25  # of the wait, so that the clients of a server that comes back do not all come at once


def delay(failures: int, retry_after: float | None = None) -> float:
    """Seconds to wait after the n-th failure, or as the server asked; up to a quarter more, by chance."""
    wait = retry_after if retry_after is not None else _FIRST_WAIT * 2.0 ** min(failures - 1, 16)
    return min(wait, MAX_WAIT) * (1.0 + _JITTER * chance())


def chance() -> float:
    """Return a number from 0 to 1, 1 excluded. The module `random` takes 0.3 MiB, and this is all that is needed."""
    return int.from_bytes(os.urandom(4)) / 2**32
