"""Small builders for claims, slices and other objects, with defaults for fields that a test does not need."""

from collections.abc import Iterable
from typing import Any

from controlplane.structured import AllocatedState, Allocator, DeviceClasses, DeviceID, Features
from resourceapi.objects import from_dict
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice

Json = dict[str, Any]
DRIVER = "drv"


def device(name: str, **fields: Any) -> Json:
    """A device; `attributes` can contain plain values."""
    attributes = {key: _attribute(value) for key, value in fields.pop("attributes", {}).items()}
    return {"name": name, **({"attributes": attributes} if attributes else {}), **fields}


def equal_devices(count: int, prefix: str = "d", **fields: Any) -> list[Json]:
    """Devices that differ only in their names."""
    return [device(f"{prefix}{number:03}", **fields) for number in range(count)]


def slice_(
    name: str, devices: Iterable[Json] = (), *, pool: str = "pool", count: int = 1, node: str = "node", **fields: Any
) -> ResourceSlice:
    """A slice for `node` unless `fields` contain another; `generation` and `driver` are also accepted."""
    driver, generation = fields.pop("driver", DRIVER), fields.pop("generation", 1)
    place = {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"}
    spec = {
        "driver": driver,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": list(devices),
        **({} if place & fields.keys() else {"nodeName": node}),
        **fields,
    }
    return from_dict(ResourceSlice, {"metadata": {"name": name}, "spec": spec})


def counters(slice_name: str, **amounts: str) -> ResourceSlice:
    """The second of two slices of a pool, with the counter set `set`."""
    return slice_(slice_name, count=2, sharedCounters=[counter_set(**amounts)])


def counter_set(name: str = "set", **amounts: str) -> Json:
    """A counter set of a pool."""
    return {"name": name, "counters": {counter: {"value": amount} for counter, amount in amounts.items()}}


def consumes(**amounts: str) -> Json:
    """A device's consumption of the counter set `set`."""
    return {"consumesCounters": [draw("set", **amounts)]}


def draw(counter_set: str, **amounts: str) -> Json:
    """A device's consumption of one of several counter sets."""
    return {"counterSet": counter_set, "counters": {name: {"value": amount} for name, amount in amounts.items()}}


def wants(count: int | None = 1, *selectors: str, **fields: Any) -> Json:
    """The content of a request or alternative; a count of None means mode All."""
    mode: Json = {"allocationMode": "All"} if count is None else {"allocationMode": "ExactCount", "count": count}
    chosen = {"selectors": [{"cel": {"expression": x}} for x in selectors]} if selectors else {}
    return {"deviceClassName": "any", **mode, **chosen, **fields}


def request(name: str, wanted: Json | None = None) -> Json:
    """A request without alternatives."""
    return {"name": name, "exactly": wanted or wants()}


def first_of(name: str, *wanted: Json) -> Json:
    """A request with alternatives s0, s1, ..."""
    return {"name": name, "firstAvailable": [{"name": f"s{n}", **each} for n, each in enumerate(wanted)]}


def claim(*requests: Json, name: str = "claim", **fields: Any) -> ResourceClaim:
    """A claim in the namespace `ns`; `fields` can contain `constraints` and `config`."""
    devices = {"requests": list(requests), **fields}
    return from_dict(ResourceClaim, {"metadata": {"name": name, "namespace": "ns"}, "spec": {"devices": devices}})


def match(attribute: str, *requests: str, driver: str = DRIVER) -> Json:
    """A matchAttribute constraint."""
    return {"matchAttribute": f"{driver}/{attribute}", **({"requests": list(requests)} if requests else {})}


def distinct(attribute: str, *requests: str) -> Json:
    """A distinctAttribute constraint."""
    return {"distinctAttribute": f"{DRIVER}/{attribute}", **({"requests": list(requests)} if requests else {})}


def node(name: str = "node", **labels: str) -> Node:
    """A node."""
    return from_dict(Node, {"metadata": {"name": name, "labels": labels}})


def class_(name: str = "any", *selectors: str, **fields: Any) -> DeviceClass:
    """A device class."""
    spec = {"selectors": [{"cel": {"expression": x}} for x in selectors], **fields}
    return from_dict(DeviceClass, {"metadata": {"name": name}, "spec": spec})


def held(*names: str, pool: str = "pool", driver: str = DRIVER) -> AllocatedState:
    """The state with these devices in exclusive use."""
    return AllocatedState(allocated_devices=frozenset(DeviceID(driver, pool, name) for name in names))


def allocator(
    slices: Iterable[ResourceSlice],
    *,
    state: AllocatedState | None = None,
    classes: Iterable[DeviceClass] = (),
    features: Features | None = None,
    **options: Any,
) -> Allocator:
    """An allocator; a class `any` that selects all devices always exists."""
    known = DeviceClasses([*classes, class_()])
    return Allocator(features or Features(), state or AllocatedState(), known, tuple(slices), **options)


def names(results: list[AllocationResult] | None) -> list[list[str]] | None:
    """The devices of each claim as `request=pool/device`."""
    if results is None:
        return None
    return [[f"{x.request}={x.pool}/{x.device}" for x in result.devices.results] for result in results]


def _attribute(value: Any) -> Json:
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        return {{int: "ints", bool: "bools", str: "strings"}[type(value[0])]: value}
    return {{int: "int", bool: "bool", str: "string"}[type(value)]: value}
