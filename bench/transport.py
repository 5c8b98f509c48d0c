"""The transports beside Go: a bare plugin on ours, on grpcio, and the Go plugin, measured by the same probe in one run.

Needs the baselines' programs, as `bench.daemon` does. Rounds alternate, for the machine's clock and load change; only
ratios within one run mean something.
"""

import sys
from statistics import median
from typing import Any

from bench.daemon import PROGRAMS, probe
from bench.table import show

ROUNDS = 3
SIZE = ["-resources", "10", "-devices", "10", "-calls", "3000", "-throughput", "4s", "-idle", "10s", "-skip-restart"]

_FIGURES = (
    ("exec to all registered and listed", "ms", ("startup_ms", "all_first_lists")),
    ("Allocate p50", "us", ("allocate_us", "p50")),
    ("Allocate p99", "us", ("allocate_us", "p99")),
    ("Allocate min", "us", ("allocate_us", "min")),
    ("8 callers", "calls/s", ("throughput", "per_s")),
    ("the plugin's CPU a call, one caller", "us", ("allocate_sequential", "plugin_cpu_us_per_call")),
    ("the plugin's CPU a call, 8 callers", "us", ("throughput", "plugin_cpu_us_per_call")),
    ("resident memory, idle", "MiB", ("idle_memory", "rss_mib")),
    ("resident memory after load", "MiB", ("memory_after_load", "rss_mib")),
    ("threads", "", ("idle_memory", "threads")),
    ("idle 10 s: voluntary switches", "", ("idle_activity", "voluntary_switches")),
)


def run() -> dict[str, Any]:
    """Measure and print medians."""
    if not (PROGRAMS / "probe").exists():
        print(f"left out: no probe in {PROGRAMS}; build the baselines and set NODEPLUG_BASELINES")
        return {}
    python = [sys.executable, "-m", "bench.bare_plugin", "{dir}"]
    commands = {
        "go": [str(PROGRAMS / "goplugin"), "-dir", "{dir}", "-resources", "10", "-devices", "10"],
        "builtin": [*python, "builtin", "10", "10"],
        "grpcio": [*python, "grpcio", "10", "10"],
    }
    found: dict[str, list[Any]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            found[name].append(probe(SIZE, command))
    rows = [
        (what, unit, *(median(float(run[kind][name]) for run in runs) for runs in found.values()))
        for what, unit, (kind, name) in _FIGURES
    ]
    show(("what", "unit", *found), rows)
    return {"rows": rows, "runs": found}
