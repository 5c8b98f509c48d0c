"""The disk's own write time, to compare other measurements with."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def synced_writes(path: Path, size: int, count: int, sync: Callable[[int], None] = os.fsync) -> list[float]:
    """Return the seconds of each of `count` synced writes of `size` bytes, to a hundred offsets in turn."""
    times = []
    with path.open("wb", buffering=0) as file:
        for n in range(count):
            started = time.perf_counter()
            os.pwrite(file.fileno(), bytes(size), n % 100 * size)
            sync(file.fileno())
            times.append(time.perf_counter() - started)
    return times
