"""Two drivers with a class each, two nodes, and checks for every allocation on them."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from resourceapi.objects import to_dict
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from tests.controlplane.structured.build import (
    Json,
    allocator,
    claim,
    class_,
    device,
    held,
    match,
    names,
    node,
    request,
    slice_,
    wants,
)

CLASSES = (class_("class-a", 'device.driver == "driver-a"'), class_("class-b", 'device.driver == "driver-b"'))
NODE_1 = node("node-1", region="region-1", planet="earth")
NODE_2 = node("node-2", region="region-2", planet="earth")

slice_a = partial(slice_, driver="driver-a", pool="pool-1", node="node-1")
slice_b = partial(slice_, driver="driver-b", pool="pool-1", node="node-1")
wants_a = partial(wants, deviceClassName="class-a")
wants_b = partial(wants, deviceClassName="class-b")
held_a = partial(held, driver="driver-a", pool="pool-1")
match_a = partial(match, driver="driver-a")

ONE = claim(request("r", wants_a()))
ALL = claim(request("r", wants_a(None)))


def sized(name: str, memory: str, **fields: Any) -> Json:
    """A device with this amount of memory."""
    return device(name, capacity={"memory": {"value": memory}}, **fields)


def at_least(memory: str) -> str:
    """A selector for devices of driver-a with at least this amount of memory."""
    return f'device.capacity["driver-a"].memory.compareTo(quantity("{memory}")) >= 0'


def allocated(
    slices: Sequence[ResourceSlice],
    *claims: ResourceClaim,
    on: Node = NODE_1,
    classes: Iterable[DeviceClass] = CLASSES,
    **options: Any,
) -> list[AllocationResult] | None:
    """The allocator's results. Checks that pruning does not change the devices."""
    plain, pruned = (
        allocator(slices, classes=classes, prune=prune, **options).allocate(on, claims) for prune in (False, True)
    )
    assert names(plain) == names(pruned)
    return pruned


def found(
    slices: Sequence[ResourceSlice], *claims: ResourceClaim, on: Node = NODE_1, **options: Any
) -> list[list[str]] | None:
    """The devices of each claim as `request=pool/device`. Checks the node selector and the absence of configuration."""
    results = allocated(slices, *claims, on=on, **options)
    for result in results or ():
        plain = to_dict(result)
        assert plain.pop("nodeSelector") == where(matchFields=[is_in("metadata.name", on.metadata.name)])
        assert plain.keys() == {"devices"}
        assert plain["devices"].keys() == {"results"}
    return names(results)


def is_in(key: str, *values: str) -> Json:
    """A requirement of a node selector."""
    return {"key": key, "operator": "In", "values": list(values)}


def where(*expressions: Json, **fields: Any) -> Json:
    """A node selector of one term."""
    return {"nodeSelectorTerms": [{**({"matchExpressions": list(expressions)} if expressions else {}), **fields}]}
