"""The delay before a request is repeated."""

import os

MAX_WAIT = 30.0
"""The longest delay in seconds, even if the server requests more; jitter is added to it."""
_FIRST_WAIT = 0.5
_JITTER = 0.25  # fraction of the delay, so that clients do not all reconnect at once when a server returns


def delay(failures: int, retry_after: float | None = None) -> float:
    """Return the delay in seconds after the n-th failure, or `retry_after`, plus up to a quarter of random jitter."""
    wait = retry_after if retry_after is not None else _FIRST_WAIT * 2.0 ** min(failures - 1, 16)
    return min(wait, MAX_WAIT) * (1.0 + _JITTER * chance())


def chance() -> float:
    """Return a random number from 0 to 1, 1 excluded. The module `random` would take 0.3 MiB."""
    return int.from_bytes(os.urandom(4)) / 2**32
