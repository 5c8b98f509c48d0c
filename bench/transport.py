"""The transports beside Go.

A bare plugin on ours and on grpcio, and the Go plugin, measured by the same probe in one run. Rounds
alternate, because the machine's clock and load change; medians of three rounds. Nothing is kept on disk.
"""

import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

from bench.baselines import probe, program
from bench.table import Cell, Table

ROUNDS = 3
SIZE = ["-resources", "10", "-devices", "10", "-calls", "3000", "-throughput", "4s", "-idle", "10s", "-skip-restart"]

_FIGURES = (
    ("exec to all registered and listed", "ms", ("startup_ms", "all_first_lists")),
    ("Allocate p50", "us", ("allocate_us", "p50")),
    ("Allocate p99", "us", ("allocate_us", "p99")),
    ("Allocate min", "us", ("allocate_us", "min")),
    ("8 callers", "calls/s", ("throughput", "per_s")),
    ("CPU of the plugin per call, one caller", "us", ("allocate_sequential", "plugin_cpu_us_per_call")),
    ("CPU of the plugin per call, 8 callers", "us", ("throughput", "plugin_cpu_us_per_call")),
    ("resident memory, idle", "MiB", ("idle_memory", "rss_mib")),
    ("resident memory after load", "MiB", ("memory_after_load", "rss_mib")),
    ("threads", "", ("idle_memory", "threads")),
    ("idle 10 s: voluntary switches", "", ("idle_activity", "voluntary_switches")),
)


def run() -> Iterator[Table]:
    """Measure; medians."""
    python = [sys.executable, "-m", "bench.bare_plugin", "{dir}"]
    commands = {
        "go": [str(program("goplugin")), "-dir", "{dir}", "-resources", "10", "-devices", "10"],
        "builtin": [*python, "builtin", "10", "10"],
        "grpcio": [*python, "grpcio", "10", "10"],
    }
    found: dict[str, list[Any]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            found[name].append(probe(SIZE, command))
    rows: list[tuple[Cell, ...]] = [
        (what, unit, *(median(float(run[kind][name]) for run in runs) for runs in found.values()))
        for what, unit, (kind, name) in _FIGURES
    ]
    yield Table(("", "unit", *found), tuple(rows))
