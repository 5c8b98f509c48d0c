"""The structured allocator beside upstream's.

The same problems in the same run. Upstream's program times and writes every problem; ours is timed on what it wrote:
a new allocator for each run, with an index that has seen the slices before (upstream's has its selectors compiled).
`$NODEPLUG_BENCH_LIMIT` is upstream's time limit for one problem (20s).
"""

import contextlib
import gzip
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.baselines import program
from bench.table import Table, show
from controlplane.structured import AllocatedState, Allocator, DeviceClasses, Features, NodeError, SliceIndex
from resourceapi.objects import from_dict
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice

LIMIT = os.environ.get("NODEPLUG_BENCH_LIMIT", "20s")
CHANNEL = "incubating"
FEATURES = Features(list_type_attributes=False)
TARGET_S = 0.1  # seconds for which one problem is repeated
MIB = 1024 * 1024


class Problem(NamedTuple):
    """A problem that upstream's program wrote."""

    set: str
    name: str
    node: Node
    classes: DeviceClasses
    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    answer: Any


class Row(NamedTuple):
    """The result of one problem; times are medians in microseconds, including the creation of the allocator."""

    name: str
    ours: float
    first: float  # with an empty index and no compiled selectors
    upstream: float
    finished: bool
    steps: int
    upstream_steps: int
    same: bool

    @property
    def ratio(self) -> float:
        """The ratio of our time to upstream's, or to its time limit if upstream did not finish."""
        return self.ours / self.upstream


def run() -> Iterator[Table]:
    """Print the ratio of every problem; yield the summary, with the memory of 10,000 devices."""
    allocbench = program("allocbench")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        upstream = _run_upstream(allocbench, Path(folder))
        problems = map(_read, sorted(Path(folder, "problems").glob("*.json.gz")))
        rows = {(problem.set, problem.name): _row(problem, upstream[problem.name]) for problem in problems}
    shown = [
        (row.name, row.ours, row.first, row.upstream if row.finished else f">{LIMIT}", row.ratio,
         row.steps, row.upstream_steps, "" if row.same else "DIFFERENT ANSWER")
        for _, row in sorted(rows.items())
    ]  # fmt: skip
    show(Table(("problem", "ours us", "first us", "upstream us", "ratio", "steps", "upstream", ""), tuple(shown)))
    ratios = [row.ratio for (kind, _), row in rows.items() if kind == "cluster"]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    slowest = max((row for (kind, _), row in rows.items() if kind != "cluster"), key=lambda row: row.ours)
    figures = (
        ("problems", "", len(rows)),
        ("answers other than upstream's", "", sum(not row.same for row in rows.values())),
        ("cluster-like problems, geometric mean", "of upstream's time", mean),
        ("cluster-like problems, best", "of upstream's time", min(ratios)),
        ("cluster-like problems, worst", "of upstream's time", max(ratios)),
        (f"slowest problem with a combinatorial search: {slowest.name}", "ms", slowest.ours / 1000),
        *((name, "MiB", value) for name, value in _memory().items()),
    )
    yield Table(("", "unit", "figure"), figures)


def _run_upstream(program: Path, folder: Path) -> dict[str, dict[str, Any]]:
    output = folder / "upstream.json"
    command = [str(program), "-no-cel", "-channels", CHANNEL, "-timeout", LIMIT]
    command += ["-dump", str(folder / "problems"), "-o", str(output)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return {row["problem"]: row for row in json.loads(output.read_bytes())["problems"]}


def _read(path: Path) -> Problem:
    data = json.loads(gzip.decompress(path.read_bytes()))
    return Problem(
        data["set"],
        data["name"],
        from_dict(Node, data["node"]),
        DeviceClasses([from_dict(DeviceClass, each) for each in data["classes"]]),
        tuple(from_dict(ResourceSlice, each) for each in data["slices"]),
        tuple(from_dict(ResourceClaim, each) for each in data["claims"]),
        data["answers"][CHANNEL],
    )


def _row(problem: Problem, upstream: dict[str, Any]) -> Row:
    index = SliceIndex()
    started = time.perf_counter()
    allocator, results = _allocate(problem, index)
    first = time.perf_counter() - started
    times: list[float] = []
    while len(times) < 3 or (sum(times) < TARGET_S and len(times) < 500):
        started = time.perf_counter()
        _allocate(problem, index)
        times.append(time.perf_counter() - started)
    devices = None
    if results is not None:
        devices = [[f"{x.request}={x.pool}/{x.device}" for x in each.devices.results] for each in results]
    finished = "allocate_us" in upstream
    return Row(
        problem.name,
        statistics.median(times) * 1e6,
        first * 1e6,
        upstream["new_us"] + upstream["allocate_us"] if finished else upstream["timeout_s"] * 1e6,
        finished,
        allocator.stats.num_allocate_one_invocations,
        upstream["allocate_one_calls"],
        not finished or problem.answer["devices"] == devices,
    )


def _allocate(problem: Problem, index: SliceIndex) -> tuple[Allocator, list[AllocationResult] | None]:
    allocator = Allocator(FEATURES, AllocatedState(), problem.classes, problem.slices, index=index)
    with contextlib.suppress(NodeError):
        return allocator, allocator.allocate(problem.node, problem.claims)
    return allocator, None


def _memory() -> dict[str, float]:
    """Measure the memory of 10,000 devices in 100 slices for all nodes, before and after a search over all of them."""
    tracemalloc.start()
    slices = tuple(_slice(number) for number in range(100))
    objects, _ = tracemalloc.get_traced_memory()
    selector = {"cel": {"expression": 'device.attributes["dra.example.com"].model == "y"'}}
    exactly = {"deviceClassName": "any", "selectors": [selector], "allocationMode": "ExactCount", "count": 1}
    claim = {"metadata": {"name": "claim"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    index = SliceIndex()
    problem = Problem(
        "memory",
        "memory",
        from_dict(Node, {"metadata": {"name": "node"}}),
        DeviceClasses([from_dict(DeviceClass, {"metadata": {"name": "any"}})]),
        slices,
        (from_dict(ResourceClaim, claim),),
        None,
    )
    _allocate(problem, index)
    total, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"10,000 devices as objects": objects / MIB, "what the index adds": (total - objects) / MIB}


def _slice(number: int) -> ResourceSlice:
    attributes = {"model": {"string": "x"}, "driverVersion": {"version": "1.2.3"}, "healthy": {"bool": True}}
    devices = [
        {
            "name": f"dev-{index:03}",
            "attributes": {**attributes, "numa": {"int": index % 2}, "index": {"int": index}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(100)
    ]
    name = f"pool-{number:03}"
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.example.com", "pool": pool, "allNodes": True, "devices": devices}
    return from_dict(ResourceSlice, {"metadata": {"name": name}, "spec": spec})
