"""What a driver wants published: pools of slices of devices, and the rules that a pool must keep.

One `Slice` becomes one ResourceSlice object. Nothing here splits lists of devices: the caller keeps the API's limits
per object. The order of devices in a slice and of slices in a pool matters (the allocator takes the first fit).
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from resourceapi.objects import v1
from resourceapi.objects.core import NodeSelector


class Slice(Struct, frozen=True):
    """The content of one ResourceSlice: devices or shared counters. The last two fields are alpha in 1.37."""

    devices: tuple[v1.Device, ...] = ()
    shared_counters: tuple[v1.CounterSet, ...] = ()
    per_device_node_selection: bool | None = None
    skip_node_operations: tuple[str, ...] = ()
    partition_type_attribute: str | None = None


class Pool(Struct, frozen=True):
    """Slices that belong together, and where they can be used if not on the owner node.

    `generation` is the lowest one that the driver accepts; the controller increments it by itself.
    """

    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    generation: int = 0
    slices: tuple[Slice, ...] = ()


class DriverResources(Struct, frozen=True):
    """All pools that a driver has on this node, by name."""

    pools: Mapping[str, Pool] = {}


class InvalidPool(Exception):
    """A pool that must not be sent to a server; the text names the broken rule."""


def normalized(resources: DriverResources) -> DriverResources:
    """Return a copy whose taint times have whole seconds, as the API stores them."""
    return DriverResources(
        {
            name: replace(pool, slices=tuple(map(_with_whole_seconds, pool.slices)))
            for name, pool in resources.pools.items()
        }
    )


def validate(resources: DriverResources) -> None:
    """Check names and counters across each pool (the API server validates slices singly). Raises InvalidPool."""
    for name, pool in resources.pools.items():
        _validate_pool(name, pool)


def _validate_pool(name: str, pool: Pool) -> None:
    counter_sets: dict[str, v1.CounterSet] = {}
    for counter_set in (each for one in pool.slices for each in one.shared_counters):
        if counter_set.name in counter_sets:
            raise InvalidPool(f'found duplicate counter set "{counter_set.name}" in pool "{name}"')
        counter_sets[counter_set.name] = counter_set
    seen: set[str] = set()
    for device in _devices(pool):
        if device.name in seen:
            raise InvalidPool(f'found duplicate device "{device.name}" in pool "{name}"')
        seen.add(device.name)
        for consumption in device.consumes_counters:
            drawn_on = counter_sets.get(consumption.counter_set)
            if drawn_on is None:
                raise InvalidPool(
                    f'counter set "{consumption.counter_set}" referenced by device "{device.name}" not found'
                )
            for counter in consumption.counters:
                if counter not in drawn_on.counters:
                    raise InvalidPool(
                        f'counter "{counter}" referenced by device "{device.name}" not found'
                        f' in counter set "{drawn_on.name}"'
                    )


def _devices(pool: Pool) -> Iterator[v1.Device]:
    for one in pool.slices:
        yield from one.devices


def _with_whole_seconds(one: Slice) -> Slice:
    if not any(taint.time_added and taint.time_added.microsecond for device in one.devices for taint in device.taints):
        return one
    return replace(one, devices=tuple(replace(x, taints=tuple(map(_whole_second, x.taints))) for x in one.devices))


def _whole_second(taint: v1.DeviceTaint) -> v1.DeviceTaint:
    moment = taint.time_added
    return replace(taint, time_added=moment.replace(microsecond=0)) if moment is not None else taint
