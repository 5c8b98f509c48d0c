"""The daemon against the Go plugin of the baselines, measured by the same probe in the same run.

Needs the baselines' programs (`$NODEPLUG_BASELINES`: the folder that their build.sh prints).
"""

import json
import operator
import os
import subprocess
import sys
import tempfile
from functools import reduce
from pathlib import Path
from typing import Any

from bench.table import show
from bench.tree import make_host

PROGRAMS = Path(os.environ.get("NODEPLUG_BASELINES", Path.home() / ".cache/nodeplug-baselines"))
LAUNCH = Path(__file__).with_name("launch.sh")
ROUNDS = 2


def run() -> dict[str, Any]:
    """Measure start, memory, idling, Allocate, restarts; print medians and ratios."""
    if not (PROGRAMS / "probe").exists():
        print(f"left out: no probe in {PROGRAMS}; build the baselines and set NODEPLUG_BASELINES")
        return {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        found: dict[str, Any] = {}
        for label, resources, devices, options in (
            ("10x10", 10, 10, ["-idle", "30s"]),
            ("20x5 restarts", 20, 5, ["-idle", "0", "-skip-alloc", "-restarts", "40"]),
            ("10x500", 10, 500, ["-idle", "0", "-restarts", "5", "-throughput", "0", "-calls", "1000"]),
        ):
            size = ["-resources", str(resources), "-devices", str(devices), *options]
            root = Path(folder) / label.replace(" ", "-")
            globs = make_host(root, resources, devices)
            go = [str(PROGRAMS / "goplugin"), "-dir", "{dir}", "-resources", str(resources), "-devices", str(devices)]
            config = root / "config.yaml"
            config.write_text(_config(globs))
            ours = [str(LAUNCH), "{dir}", "{state}", str(root), str(config), sys.executable]
            runs = [("nodeplug", ours), ("go with fsync", [*go, "-fsync", "{state}/journal"])]
            for _ in range(ROUNDS):
                for name, command in runs:
                    found.setdefault(f"{label} {name}", []).append(probe(size, command))
        rows = _rows(found)
        show(("what", "unit", "nodeplug", "go with fsync", "ratio"), rows)
        return {"rows": rows, "runs": found}


def _config(globs: list[str]) -> str:
    return json.dumps(
        {
            "settings": {
                "kubeletRoot": "@STATE@/kubelet",
                "stateDirectory": "@STATE@/leases",
                "cdiDirectory": "@STATE@/cdi",
                "logLevel": "warning",
            },
            "resources": [{"name": f"example.com/res{n}", "select": {"id": glob}} for n, glob in enumerate(globs)],
        }
    )


def probe(size: list[str], command: list[str]) -> Any:
    """Have the probe play the kubelet to a plugin; return what it measured."""
    done = subprocess.run(
        [str(PROGRAMS / "probe"), *size, "-log", "/dev/null", "--", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"probe: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


_FIGURES = (
    ("10x10", "exec to all registered and listed", "ms", ("startup_ms", "all_first_lists")),
    ("10x10", "resident memory, idle", "MiB", ("idle_memory", "rss_mib")),
    ("10x10", "Allocate p50, on disk", "us", ("allocate_us", "p50")),
    ("10x10", "Allocate p99, on disk", "us", ("allocate_us", "p99")),
    ("10x10", "8 callers", "calls/s", ("throughput", "per_s")),
    ("10x10", "idle 30 s: CPU", "ms", ("idle_activity", "cpu_ms")),
    ("10x10", "idle 30 s: voluntary switches", "", ("idle_activity", "voluntary_switches")),
    ("20x5 restarts", "kubelet restart to all registered p50", "ms", ("restart_ms", "all_registered", "p50")),
    ("20x5 restarts", "kubelet restart to all registered p99", "ms", ("restart_ms", "all_registered", "p99")),
    ("10x500", "exec to all registered and listed", "ms", ("startup_ms", "all_first_lists")),
    ("10x500", "resident memory", "MiB", ("idle_memory", "rss_mib")),
)


def _rows(found: dict[str, list[Any]]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for label, what, unit, path in _FIGURES:
        ours, theirs = (_median(found[f"{label} {name}"], path) for name in ("nodeplug", "go with fsync"))
        ratio = ours / theirs if ours is not None and theirs else None
        rows.append((f"{what} ({label.split()[0]})", unit, ours, theirs, ratio))
    return rows


def _median(runs: list[Any], path: tuple[str, ...]) -> float | None:
    values = sorted(float(reduce(operator.getitem, path, run)) for run in runs if path[0] in run)
    return values[len(values) // 2] if values else None
