"""Builders for shared and partitioned devices, and allocation results with one line per device."""

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
    """A capacity. With a default it has a request policy, which can list the only valid amounts."""
    listed = {"validValues": list(values)} if values else {}
    return {"value": amount, **({} if default is None else {"requestPolicy": {"default": default, **listed}})}


def capacity_of_two_or_four(amount: str) -> Json:
    """A capacity whose valid amounts are 2 and 4, with the default 2."""
    return {"value": amount, "requestPolicy": {"default": "2", "validRange": {"min": "2", "max": "4", "step": "2"}}}


def shared(name: str, **fields: Any) -> Json:
    """A device that several claims can share; `c` is its capacity."""
    capacity = {"capacity": {"c": fields.pop("c")}} if "c" in fields else {}
    return device(name, allowMultipleAllocations=True, **capacity, **fields)


def wants_capacity(amount: str, *selectors: str, count: int | None = 1, **fields: Any) -> Json:
    """The content of a request for that much of the capacity `c`."""
    return wants(count, *selectors, capacity={"requests": {"c": amount}}, **fields)


def consumed(**amounts: str) -> AllocatedState:
    """The state in which other claims consume that much of the capacity `c` of these devices."""
    return AllocatedState(
        aggregated_capacity={
            DeviceID(DRIVER, "pool", name): {"c": Quantity.parse(amount)} for name, amount in amounts.items()
        }
    )


def partitioned(devices: Iterable[Json], **amounts: str) -> list[ResourceSlice]:
    """A pool whose devices consume one counter set."""
    return [slice_("devices", devices, count=2), counters("counters", **amounts)]


def allocated(
    slices: Sequence[ResourceSlice], *claims: ResourceClaim, on: Node = NODE, **options: Any
) -> list[Json] | None:
    """The allocations as JSON. Checks that share IDs are unique, and that pruning changes nothing else."""
    pruned, plain = (
        None if results is None else [to_dict(result) for result in results]
        for results in (
            allocator(slices, prune=prune, failures_before_pruning=0, **options).allocate(on, claims)
            for prune in (True, False)
        )
    )
    ids = [x["shareID"] for each in pruned or () for x in each["devices"]["results"] if "shareID" in x]
    assert len(ids) == len(set(ids))
    assert [_without_ids(each) for each in plain or ()] == [_without_ids(each) for each in pruned or ()]
    assert (plain is None) == (pruned is None)
    return pruned


def found(slices: Sequence[ResourceSlice], *claims: ResourceClaim, on: Node = NODE, **options: Any) -> list[str] | None:
    """The devices as `request=pool/device`, with ` shared` and the consumed capacity. Checks the node selector.

    Any other content of an allocation fails the test. The result does not separate the claims.
    """
    results = allocated(slices, *claims, on=on, **options)
    here = {"key": "metadata.name", "operator": "In", "values": [on.metadata.name]}
    for each in results or ():
        assert each["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": [here]}]}
        assert each.keys() == {"devices", "nodeSelector"}
        assert each["devices"].keys() == {"results"}
    return None if results is None else [line(x) for each in results for x in each["devices"]["results"]]


def line(result: Json) -> str:
    """One device of an allocation as text. Any other content fails the test."""
    assert result.keys() <= {"request", "driver", "pool", "device", "shareID", "consumedCapacity"}
    share = " shared" if "shareID" in result else ""
    amounts = "".join(f" {name}={amount}" for name, amount in sorted(result.get("consumedCapacity", {}).items()))
    return f"{result['request']}={result['pool']}/{result['device']}{share}{amounts}"


def _without_ids(allocation: Json) -> Json:
    results = [{**each, "shareID": "shareID" in each} for each in allocation["devices"]["results"]]
    return {**allocation, "devices": {**allocation["devices"], "results": results}}
