"""The daemon beside a Go plugin.

One probe (grpc-go) acts as the kubelet for three programs in the same run: the daemon, the daemon with
`settings.transport: grpcio`, and a typical Go plugin that syncs each allocation to disk before it answers. Allocate
is measured in short alternating rounds, because the clock and the load of a machine change; the table shows the
median of the rounds. Everything else is measured once. The daemon keeps its leases on a disk and commits each one
before it answers. Its devices are made up, in its own /sys and /dev. The 8 callers share one connection, like a
kubelet's calls. Memory is the resident memory (VmRSS) of the idle process. A wake-up is a voluntary context switch of
any thread. For a restart of the kubelet, the sockets are removed and a new kubelet.sock is created; the time ends
when the last resource is registered.
"""

import contextlib
import json
import operator
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from bench.baselines import probe, program
from bench.table import Cell, Goal, LeftOut, Table
from bench.tree import make_host

OURS, GRPCIO, GO = "nodeplug", "with grpcio", "Go"
LAUNCH = Path(__file__).with_name("launch.sh")


class Part(Struct, frozen=True):
    """One use of the probe: the numbers of resources and devices, its options, and the rounds for each program."""

    name: str
    resources: int
    devices: int
    options: tuple[str, ...]
    rounds: Mapping[str, int]


_ALLOCATE = "-calls 2000 -throughput 2s -idle 0 -settle 500ms -skip-restart"
_RESTART = "-skip-alloc -idle 0 -settle 0 -gap 100ms -restarts"
PARTS = (
    Part("allocate", 10, 10, tuple(_ALLOCATE.split()), {OURS: 5, GRPCIO: 5, GO: 5}),
    Part("idle", 10, 10, ("-idle", "30s", "-skip-alloc", "-skip-restart"), {OURS: 1, GRPCIO: 1, GO: 1}),
    Part("restarts", 10, 10, (*_RESTART.split(), "200"), {OURS: 1}),
    Part("restarts", 10, 10, (*_RESTART.split(), "40"), {GRPCIO: 1, GO: 1}),
    Part("large", 10, 500, ("-idle", "0", "-skip-alloc", "-skip-restart"), {OURS: 1, GRPCIO: 1, GO: 1}),
)


class Figure(Struct, frozen=True):
    """A figure of a part: its path in the probe's answer, and its goal."""

    what: str
    unit: str
    part: str
    path: tuple[str, ...]
    goal: Goal | None = None


FIGURES = (
    Figure("exec to all registered and listed", "ms", "allocate", ("startup_ms", "all_first_lists"), Goal(250)),
    Figure("Allocate on disk, p50", "us", "allocate", ("allocate_us", "p50"), Goal(1.3, GO)),
    Figure("Allocate on disk, p99", "us", "allocate", ("allocate_us", "p99")),
    Figure("Allocate on disk, 8 callers", "calls/s", "allocate", ("throughput", "per_s"), Goal(1.3, GO, at_least=True)),
    Figure("CPU of one call, 1 caller", "us", "allocate", ("allocate_sequential", "plugin_cpu_us_per_call")),
    Figure("CPU of one call, 8 callers", "us", "allocate", ("throughput", "plugin_cpu_us_per_call")),
    Figure("resident memory, idle", "MiB", "idle", ("idle_memory", "rss_mib"), Goal(29)),
    Figure("resident memory with 5,000 devices", "MiB", "large", ("idle_memory", "rss_mib"), Goal(33)),
    Figure("threads", "", "idle", ("idle_memory", "threads")),
    Figure("CPU in 30 s idle", "ms", "idle", ("idle_activity", "cpu_ms")),
    Figure("wake-ups in 30 s idle", "", "idle", ("idle_activity", "voluntary_switches")),
    Figure("restart of the kubelet, p50", "ms", "restarts", ("restart_ms", "all_registered", "p50"), Goal(10)),
    Figure("restart of the kubelet, p99", "ms", "restarts", ("restart_ms", "all_registered", "p99"), Goal(30)),
    Figure("restarts of the kubelet", "", "restarts", ("restart_ms", "rounds")),
)


def run() -> Iterator[Table]:
    """Measure start, memory, idling, Allocate and restarts."""
    program("probe")
    columns, notes = [OURS, GRPCIO, GO], []
    try:
        program("goplugin")
    except LeftOut as reason:
        columns.remove(GO)
        notes.append(f"Go: left out: {reason}")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        found: dict[tuple[str, str], list[Any]] = {}
        for number, part in enumerate(PARTS):
            commands = _commands(Path(folder) / str(number), part)
            size = ["-resources", str(part.resources), "-devices", str(part.devices), *part.options]
            for turn in range(max(part.rounds.values())):
                for name in columns:
                    if turn < part.rounds.get(name, 0):
                        found.setdefault((part.name, name), []).append(probe(size, commands[name]))
    header = ("", "unit", *columns, *([f"ratio to {GO}"] if GO in columns else []), "goal")
    yield Table(header, tuple(_row(figure, columns, found) for figure in FIGURES), tuple(notes))


def _commands(root: Path, part: Part) -> dict[str, list[str]]:
    globs = make_host(root, part.resources, part.devices)
    commands = {}
    for name, transport in ((OURS, "builtin"), (GRPCIO, "grpcio")):
        config = root / f"{transport}.yaml"
        config.write_text(_config(globs, transport))
        commands[name] = [str(LAUNCH), "{dir}", "{state}", str(root), str(config), sys.executable]
    size = ["-resources", str(part.resources), "-devices", str(part.devices)]
    with contextlib.suppress(LeftOut):
        commands[GO] = [str(program("goplugin")), "-dir", "{dir}", *size, "-fsync", "{state}/journal"]
    return commands


def _config(globs: list[str], transport: str) -> str:
    return json.dumps(
        {
            "settings": {
                "kubeletRoot": "@STATE@/kubelet",
                "stateDirectory": "@STATE@/leases",
                "cdiDirectory": "@STATE@/cdi",
                "logLevel": "warning",
                "transport": transport,
            },
            "resources": [{"name": f"example.com/res{n}", "select": {"id": glob}} for n, glob in enumerate(globs)],
        }
    )


def _row(figure: Figure, columns: Sequence[str], found: Mapping[tuple[str, str], list[Any]]) -> tuple[Cell, ...]:
    values = {name: _median(found.get((figure.part, name), []), figure.path) for name in columns}
    ours, theirs = values[OURS], values.get(GO)
    ratio = [ours / theirs if ours is not None and theirs else None] if GO in columns else []
    goal = figure.goal.judge(ours, values) if figure.goal else ""
    return (figure.what, figure.unit, *values.values(), *ratio, goal)


def _median(runs: Sequence[Any], path: tuple[str, ...]) -> float | None:
    return median(float(reduce(operator.getitem, path, run)) for run in runs) if runs else None
