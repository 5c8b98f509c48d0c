"""Plans the writes that turn the stored slices of one pool into the desired ones: as few as possible, in a safe order.

Consumers use the slices of the highest generation if their number is the one that each of them states. So one changed
slice is updated in place. Any larger change increments the generation, and the pool is incomplete until the last write.
Source: DRA node specification, 3.4 and 3.5.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_plugin.publishing.slices.compare import is_as_desired
from dra_plugin.publishing.slices.desired import Pool, Slice
from dra_plugin.publishing.slices.naming import NoIndex, generate_name, index_length, index_of
from dra_plugin.publishing.slices.owner import Owner
from resourceapi.objects import ObjectMeta, v1

TaintTimes = dict[tuple[str, str, str, str], v1.DeviceTaint]


class Origin(Struct, frozen=True):
    """The driver and the owner of slices. Without a node name the slices are not local to the owner."""

    driver: str
    owner: Owner | None = None
    node_name: str = ""


class Plan(Struct, frozen=True):
    """What to write, in this order; a number is the index of a slice in its pool."""

    delete: tuple[v1.ResourceSlice, ...] = ()
    update: tuple[tuple[int, v1.ResourceSlice], ...] = ()
    create: tuple[tuple[int, v1.ResourceSlice], ...] = ()


def plan(origin: Origin, name: str, pool: Pool | None, stored: Sequence[v1.ResourceSlice]) -> Plan:
    """Return the writes that make the pool of this name as desired; None: the pool is not desired.

    New slices have no owner reference yet.
    """
    if pool is None:
        return Plan(delete=tuple(stored))
    newest = max((each.spec.pool.generation for each in stored), default=0)
    current, obsolete = _assigned(stored, newest, len(pool.slices))
    missing = [index for index in range(len(pool.slices)) if index not in current]
    now = v1.ResourcePool(name=name, generation=newest, resource_slice_count=len(pool.slices))
    changed = [
        index for index in sorted(current) if not _is_unchanged(current[index].spec, now, pool, pool.slices[index])
    ]
    if pool.generation > newest:
        generation = pool.generation
    elif not missing and len(changed) <= 1:
        generation = newest
    else:
        generation = newest + 1
    if generation != newest:
        changed = sorted(current)
    wanted = replace(now, generation=generation)
    times = _taint_times(stored)
    return Plan(
        delete=tuple(obsolete),
        update=tuple(
            (
                index,
                replace(
                    current[index], spec=_with_content(current[index].spec, wanted, pool, pool.slices[index], times)
                ),
            )
            for index in changed
        ),
        create=tuple((index, _new_slice(origin, wanted, pool, index, times)) for index in missing),
    )


def _assigned(
    stored: Sequence[v1.ResourceSlice], newest: int, count: int
) -> tuple[dict[int, v1.ResourceSlice], list[v1.ResourceSlice]]:
    """Return the stored slice of each index, and the slices without one."""
    length = index_length(count)
    current: dict[int, v1.ResourceSlice] = {}
    obsolete = []
    for each in sorted(stored, key=lambda each: each.metadata.name):
        try:
            index = index_of(each.metadata.name, length)
        except NoIndex:
            index = -1
        if 0 <= index < count and index not in current and each.spec.pool.generation == newest:
            current[index] = each
        else:
            obsolete.append(each)
    return current, obsolete


def _is_unchanged(stored: v1.ResourceSliceSpec, now: v1.ResourcePool, pool: Pool, desired: Slice) -> bool:
    return (
        stored.pool == now
        and stored.node_selector == pool.node_selector
        and bool(stored.all_nodes) == pool.all_nodes
        and is_as_desired(desired, stored)
    )


def _new_slice(origin: Origin, wanted: v1.ResourcePool, pool: Pool, index: int, times: TaintTimes) -> v1.ResourceSlice:
    owner = origin.owner.name if origin.owner else ""
    name = generate_name(index, index_length(len(pool.slices)), origin.driver, owner)
    spec = v1.ResourceSliceSpec(driver=origin.driver, node_name=origin.node_name or None)
    return v1.ResourceSlice(
        metadata=ObjectMeta(generate_name=name), spec=_with_content(spec, wanted, pool, pool.slices[index], times)
    )


def _with_content(
    spec: v1.ResourceSliceSpec, wanted: v1.ResourcePool, pool: Pool, desired: Slice, times: TaintTimes
) -> v1.ResourceSliceSpec:
    """Return the spec with the desired content; driver and node name stay, because they are immutable."""
    return replace(
        spec,
        pool=wanted,
        node_selector=pool.node_selector,
        all_nodes=pool.all_nodes or None,
        devices=tuple(_with_times(device, times) for device in desired.devices),
        shared_counters=desired.shared_counters,
        per_device_node_selection=desired.per_device_node_selection,
        skip_node_operations=desired.skip_node_operations,
        partition_type_attribute=desired.partition_type_attribute,
    )


def _taint_times(stored: Sequence[v1.ResourceSlice]) -> TaintTimes:
    """Return the taints of the pool's devices: a taint keeps its time when its device moves to another slice."""
    return {
        (device.name, taint.key, taint.value, taint.effect): taint
        for each in stored
        for device in each.spec.devices
        for taint in device.taints
        if taint.time_added is not None
    }


def _with_times(device: v1.Device, times: TaintTimes) -> v1.Device:
    if all(taint.time_added for taint in device.taints):
        return device
    taints = tuple(
        taint if taint.time_added else times.get((device.name, taint.key, taint.value, taint.effect), taint)
        for taint in device.taints
    )
    return replace(device, taints=taints)
