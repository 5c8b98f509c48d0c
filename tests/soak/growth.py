"""Repeated measurements of a process and its files, and their growth: a slope with its standard error."""

import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct


class Measure(Struct, frozen=True):
    """One measurement: memory and files in KiB, all else as counts."""

    rss: float
    descriptors: float
    sockets: float
    threads: float
    database: float
    log: float

    @classmethod
    def of(cls, pid: int, state: Path, log: Path) -> "Measure":
        """Measure a process, its state directory and its log."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        kinds: Counter[str] = Counter()
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                kinds[os.readlink(f"/proc/{pid}/fd/{name}").partition(":")[0]] += 1
            except FileNotFoundError:  # closed meanwhile
                continue
        return cls(
            rss=float(fields["VmRSS"].split()[0]),
            descriptors=kinds.total(),
            sockets=kinds["socket"],
            threads=float(fields["Threads"]),
            database=sum(path.stat().st_size for path in state.glob("ledger.sqlite3*")) / 1024,
            log=log.stat().st_size / 1024,
        )


class Slope(Struct, frozen=True):
    """Growth per round, by least squares, with its standard error, and the first and last value."""

    first: float
    last: float
    most: float
    slope: float
    error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Slope":
        """Fit a line through the values of consecutive rounds. At least three are needed."""
        count = len(values)
        middle, mean = (count - 1) / 2, sum(values) / count
        spread = sum((at - middle) ** 2 for at in range(count))
        slope = sum((at - middle) * value for at, value in enumerate(values)) / spread
        rest = sum((value - mean - slope * (at - middle)) ** 2 for at, value in enumerate(values))
        return cls(values[0], values[-1], max(values), slope, math.sqrt(rest / (count - 2) / spread))
