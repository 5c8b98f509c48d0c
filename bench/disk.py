"""What the disk takes at best: the anchor of whatever is written to it."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def synced_writes(path: Path, size: int, count: int, sync: Callable[[int], None] = os.fsync) -> list[float]:
    """Return the seconds that each of `count` writes of `size` bytes took with its sync, a hundred places in turn."""
    times = []
    with path.open("wb", buffering=0) as file:
        for n in range(count):
            started = time.perf_counter()
            os.pwrite(file.fileno(), bytes(size), n % 100 * size)
            sync(file.fileno())
            times.append(time.perf_counter() - started)
    return times
