"""Shared and partitioned devices, and what an allocator answers about them: a line a device."""

from collections.abc import Iterable, Sequence
from typing import Any

from controlplane.structured import AllocatedState, DeviceID
from resourceapi.objects import Quantity, to_dict
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import ResourceClaim, ResourceSlice
from tests.controlplane.structured.build import DRIVER, Json, allocator, counters, device, node, slice_, wants

NODE = node(planet="earth", region="region-1")
HERE: Json = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node"]}]}]}


def value(amount: str, *, default: str | None = None, values: Iterable[str] = ()) -> Json:
    """A capacity; with a default it has a policy, which may list the only amounts that can be had."""
    listed = {"validValues": list(values)} if values else {}
    return {"value": amount, **({} if default is None else {"requestPolicy": {"default": default, **listed}})}


def even(amount: str) -> Json:
    """A capacity of which 2 or 4 can be had, and 2 is."""
    return {"value": amount, "requestPolicy": {"default": "2", "validRange": {"min": "2", "max": "4", "step": "2"}}}


def shared(name: str, **fields: Any) -> Json:
    """A device for several claims; `c` is its capacity."""
    capacity = {"capacity": {"c": fields.pop("c")}} if "c" in fields else {}
    return device(name, allowMultipleAllocations=True, **capacity, **fields)


def takes(amount: str, *selectors: str, count: int | None = 1, **fields: Any) -> Json:
    """What a request for that much of the capacity `c` asks for."""
    return wants(count, *selectors, capacity={"requests": {"c": amount}}, **fields)


def consumed(**amounts: str) -> AllocatedState:
    """The state in which other claims consume that much of the capacity `c` of these devices."""
    return AllocatedState(
        aggregated_capacity={
            DeviceID(DRIVER, "pool", name): {"c": Quantity.parse(amount)} for name, amount in amounts.items()
        }
    )


def partitioned(devices: Iterable[Json], **amounts: str) -> list[ResourceSlice]:
    """A pool with devices that draw on one counter set."""
    return [slice_("devices", devices, count=2), counters("counters", **amounts)]


def allocated(
    slices: Sequence[ResourceSlice], *claims: ResourceClaim, on: Node = NODE, **options: Any
) -> list[Json] | None:
    """The allocations as JSON, all share ids different. Pruning or not, they are the same but for the share ids."""
    pruned, plain = (
        None if results is None else [to_dict(result) for result in results]
        for results in (
            allocator(slices, prune=prune, patience=0, **options).allocate(on, claims) for prune in (True, False)
        )
    )
    ids = [x["shareID"] for each in pruned or () for x in each["devices"]["results"] if "shareID" in x]
    assert len(ids) == len(set(ids))
    assert [_without_ids(each) for each in plain or ()] == [_without_ids(each) for each in pruned or ()]
    assert (plain is None) == (pruned is None)
    return pruned


def found(slices: Sequence[ResourceSlice], *claims: ResourceClaim, on: Node = NODE, **options: Any) -> list[str] | None:
    """The devices as `request=pool/device`, with ` shared` and what they consume; they are bound to the node.

    Anything else that an allocation says fails the test. Claims follow each other without a sign.
    """
    results = allocated(slices, *claims, on=on, **options)
    here = {"key": "metadata.name", "operator": "In", "values": [on.metadata.name]}
    for each in results or ():
        assert each["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": [here]}]}
        assert each.keys() == {"devices", "nodeSelector"}
        assert each["devices"].keys() == {"results"}
    return None if results is None else [line(x) for each in results for x in each["devices"]["results"]]


def line(result: Json) -> str:
    """One device of an allocation, of which nothing else may be said."""
    assert result.keys() <= {"request", "driver", "pool", "device", "shareID", "consumedCapacity"}
    share = " shared" if "shareID" in result else ""
    amounts = "".join(f" {name}={amount}" for name, amount in sorted(result.get("consumedCapacity", {}).items()))
    return f"{result['request']}={result['pool']}/{result['device']}{share}{amounts}"


def _without_ids(allocation: Json) -> Json:
    results = [{**each, "shareID": "shareID" in each} for each in allocation["devices"]["results"]]
    return {**allocation, "devices": {**allocation["devices"], "results": results}}
