"""Runner for allocator problems: `allocator/allocator.json` and `allocator/random.jsonl.gz`.

Rules: the reference is release v0.37.2; features that are alpha in it are out of scope. The answer must be exactly that
of upstream's experimental implementation (devices, order, configuration, node selector, error text), both with and
without pruning, and without it in the same number of steps.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from controlplane.structured import (
    AllocatedState,
    AllocationError,
    Allocator,
    ClassNotFound,
    DeviceClasses,
    DeviceID,
    Features,
    NodeError,
    SharedDeviceID,
    SliceIndex,
)
from resourceapi.objects import Quantity
from resourceapi.objects.codec import from_dict, to_dict
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import DeviceClass, ResourceClaim, ResourceSlice
from tests.cases.documents import Document
from tests.cases.results import Case, Format, Mismatch, Skipped, expect_equal

RELEASE = "v0.37.2"
MAX_STEPS = 20_000  # problems with more upstream steps only run with pruning
OUT_OF_SCOPE = ("CompatibilityGroups", "DerivedAttributes", "FractionalCapacityRange", "OptionalNodeOperations")

_FEATURES = {
    "AdminAccess": "admin_access",
    "ConsumableCapacity": "consumable_capacity",
    "DeviceBindingAndStatus": "device_binding_and_status",
    "DeviceTaints": "device_taints",
    "ListTypeAttributes": "list_type_attributes",
    "PartitionableDevices": "partitionable_devices",
    "PrioritizedList": "prioritized_list",
}
_CAPACITY_FAULT = re.compile(r".*: checking capacity for device [^ ]*: capacity ")
_SHARE_ID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


class Problem(NamedTuple):
    """A decoded allocation problem."""

    features: Features
    state: AllocatedState
    classes: "RecordedClasses"
    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    node: Node


class Answer(NamedTuple):
    """An allocator's answer, as JSON values that can be compared."""

    results: list[Any] | None
    error: str | None
    error_is_on_node: bool
    steps: int


class RecordedClasses(DeviceClasses):
    """Device classes with the error text of upstream's tests for missing ones."""

    def get(self, name: str) -> DeviceClass:
        try:
            return super().get(name)
        except ClassNotFound as error:
            error.args = (' "not found" not found',)
            raise


def read_problem(problem: dict[str, Any]) -> Problem:
    """Decode the problem of a case; raises DecodeError."""
    state = problem.get("allocatedState") or {}
    return Problem(
        Features(**{field: bool(problem["features"].get(name)) for name, field in _FEATURES.items()}),
        AllocatedState(
            allocated_devices=frozenset(map(_device_id, state.get("allocatedDevices") or ())),
            allocated_shared_device_ids=frozenset(
                SharedDeviceID(_device_id(share), share["shareID"])
                for share in state.get("allocatedSharedDeviceIDs") or ()
            ),
            aggregated_capacity={
                _device_id(held): {name: Quantity.parse(str(text)) for name, text in held["capacity"].items()}
                for held in state.get("aggregatedCapacity") or ()
            },
        ),
        RecordedClasses([from_dict(DeviceClass, x) for x in problem.get("classes") or ()]),
        tuple(from_dict(ResourceSlice, x) for x in problem.get("slices") or ()),
        tuple(from_dict(ResourceClaim, x) for x in problem.get("claims") or ()),
        from_dict(Node, problem["node"]),
    )


def answer(
    problem: Problem,
    *,
    prune: bool,
    context: str = "",
    failures_before_pruning: int = 0,
    max_steps: int | None = None,
    index: SliceIndex | None = None,
) -> Answer:
    """Our allocator's answer to a problem. `context` is the recorded state of the caller's context."""
    allocator = Allocator(
        problem.features,
        problem.state,
        problem.classes,
        problem.slices,
        prune=prune,
        failures_before_pruning=failures_before_pruning,
        index=index,
    )
    checks = count()
    is_cancelled: Callable[[], bool] | None = None
    if "cancel" in context:
        is_cancelled = partial(bool, True)
    elif max_steps is not None:
        is_cancelled = partial(lambda limit: next(checks) > limit, max_steps)
    timeout = 0 if context not in ("", "none") and is_cancelled is None else None
    try:
        results = allocator.allocate(problem.node, problem.claims, timeout=timeout, is_cancelled=is_cancelled)
    except AllocationError as error:
        return Answer(None, str(error), isinstance(error, NodeError), allocator.stats.num_allocate_one_invocations)
    plain = None if results is None else [_comparable(to_dict(result)) for result in results]
    return Answer(plain, None, False, allocator.stats.num_allocate_one_invocations)


def compare(problem: dict[str, Any], expected: dict[str, Any], steps: int | None, *, context: str = "") -> None:
    """Raise Mismatch unless our answer is the expected one, with and without pruning, and the inputs are unchanged."""
    read = read_problem(problem)
    for prune in (True,) if steps is not None and steps > MAX_STEPS else (False, True):
        got = answer(read, prune=prune, context=context)
        _compare_errors(expected.get("error"), got.error)
        expect_equal(bool(expected.get("errorIsOnNode")), got.error_is_on_node)
        results = expected["results"]
        expect_equal(None if results is None else [_comparable(result) for result in results], got.results)
        if steps is not None and not prune:
            expect_equal({"steps": steps}, {"steps": got.steps})
    reread = read_problem(problem)
    if (reread.claims, reread.slices, reread.node, reread.state) != (read.claims, read.slices, read.node, read.state):
        raise Mismatch("the inputs were changed")


def _is_table(document: Document) -> bool:
    return document.has_cases_with("claims", "allocatedState", "actual")


def _is_random(document: Document) -> bool:
    return document.has_cases_with("problem", "result") and "claims" in document.cases[0]["problem"]


def _table(document: Document) -> Iterator[Case]:
    for entry in document.cases:
        yield Case(entry["id"], partial(_run_entry, entry))


def _random(document: Document) -> Iterator[Case]:
    for entry in document.cases:
        yield Case(entry["problem"]["name"], partial(_run_random, entry))


def _run_entry(entry: dict[str, Any]) -> None:
    if RELEASE not in entry["versions"]:
        raise Skipped(f"not a case of {RELEASE}")
    _skip_out_of_scope(entry["features"])
    for implementation in ("experimental", "incubating", "stable"):
        outcomes = [x for x in entry["actual"]["outcomes"] if implementation in x["implementations"]]
        if outcomes:
            break
    else:
        raise Skipped("upstream gave no answer")
    steps = entry["actual"]["numAllocateOneInvocations"].get(implementation)
    compare(entry, outcomes[0], steps if isinstance(steps, int) else None, context=entry.get("context") or "")


def _run_random(entry: dict[str, Any]) -> None:
    _skip_out_of_scope(entry["problem"]["features"])
    compare(entry["problem"], entry["result"], entry["result"]["numAllocateOneInvocations"])


def _skip_out_of_scope(features: dict[str, bool]) -> None:
    for name in OUT_OF_SCOPE:
        if features.get(name):
            raise Skipped(f"{name} is alpha in {RELEASE}")


def _compare_errors(expected: str | None, actual: str | None) -> None:
    if expected is not None and "for device &Device{" in expected:
        # Upstream prints the whole struct there, including pointers.
        expected = re.sub(r"for device &Device\{Name:([^,]*),.* in slice ", r"for device \1 in slice ", expected)
    if expected is not None and actual is not None and (found := _CAPACITY_FAULT.match(expected)):
        # Upstream visits a device's capacities in random order, which decides the fault that it reports.
        expected, actual = found[0], (_CAPACITY_FAULT.match(actual) or [actual])[0]
    mark = "Syntax error"
    if expected is not None and actual is not None and mark in expected:
        # The text after the mark depends on the parser. The text before it, with the position, must agree.
        expected, actual = expected.partition(mark)[0], actual.partition(mark)[0]
    expect_equal({"error": expected}, {"error": actual})


def _comparable(result: Any) -> Any:
    """An AllocationResult with equal share IDs, and with quantities in canonical form."""
    devices = result.get("devices", {})
    results = []
    for device in devices.get("results", ()):
        plain = dict(device)
        if plain.get("shareID"):
            plain["shareID"] = _SHARE_ID
        if "consumedCapacity" in plain:
            plain["consumedCapacity"] = {
                name: Quantity.parse(str(text)).nanos for name, text in plain["consumedCapacity"].items()
            }
        results.append(plain)
    return {**result, "devices": {**devices, "results": results}}


def _device_id(value: dict[str, str]) -> DeviceID:
    return DeviceID(value["driver"], value["pool"], value["device"])


FORMATS = [Format("allocator table", _is_table, _table), Format("random allocator problems", _is_random, _random)]
