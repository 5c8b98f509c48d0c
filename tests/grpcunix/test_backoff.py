"""Delays between attempts."""

import random

from grpcunix import Backoff


def test_backoff_grows_from_zero_to_thirty_seconds_and_can_be_reset() -> None:
    backoff = Backoff(random_source=random.Random(1))
    delays = [backoff.next() for _ in range(40)]
    assert delays[0] == 0
    assert 0 < delays[1] <= 0.01
    assert all(15 <= delay <= 30 for delay in delays[-5:])
    backoff.reset()
    assert backoff.next() == 0
