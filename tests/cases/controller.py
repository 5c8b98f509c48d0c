"""Runner for the ResourceSlice controller: `allocator/controller.json`.

Rules: the reference is release v0.37.2. One sync of every pool results in the expected objects, writes and errors. A
second sync writes nothing.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from dra_plugin.publishing.slices import DriverResources, InvalidPool, Owner, Pool, Slice
from dra_plugin.publishing.slices.dropped import content
from dra_plugin.publishing.slices.publisher import Publisher
from resourceapi.client import Refused
from resourceapi.objects import ObjectMeta, from_dict, to_dict, v1
from resourceapi.objects.core import NodeSelector
from tests.cases.allocator import RELEASE
from tests.cases.documents import Document
from tests.cases.results import Case, Format, Mismatch, Skipped, expect_equal

Plain = dict[str, Any]
MUTATION_TTL = 60.0
_TAINTED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(minutes=1)


class RecordedServer:
    """The simulated API server from the cases' README, with some features disabled."""

    def __init__(self, slices: list[v1.ResourceSlice], disabled: list[str], node_uid: str) -> None:
        self.objects = {each.metadata.name: each for each in slices}
        self._disabled, self._node_uid = disabled, node_uid
        self._created = 0

    async def create(self, wanted: v1.ResourceSlice, *, dry_run: bool = False) -> v1.ResourceSlice:
        """Store the slice with a name that counts the creations, as version 1."""
        name = f"{wanted.metadata.generate_name}{self._created}"
        self._created += 1
        if name in self.objects:
            raise Refused(409, "AlreadyExists", f'"{name}" already exists', {"name": name}, None)
        return self._store(replace(wanted.metadata, name=name, resource_version="1"), wanted)

    async def update(self, wanted: v1.ResourceSlice, *, dry_run: bool = False) -> v1.ResourceSlice:
        """Store the slice as the next version."""
        stored = await self.get(wanted.metadata.name)
        version = int(stored.metadata.resource_version or 0) + 1
        return self._store(replace(wanted.metadata, resource_version=str(version)), wanted)

    async def delete(self, stored: v1.ResourceSlice) -> None:
        """Delete the slice with this name."""
        await self.get(stored.metadata.name)
        del self.objects[stored.metadata.name]

    async def get(self, name: str) -> v1.ResourceSlice:
        """Return the slice with this name."""
        if name not in self.objects:
            raise Refused(404, "NotFound", f'resourceslices "{name}" not found', {"name": name}, None)
        return self.objects[name]

    async def node_uid(self, name: str) -> str:
        """Return the UID of the only node."""
        return self._node_uid

    def _store(self, metadata: ObjectMeta, wanted: v1.ResourceSlice) -> v1.ResourceSlice:
        spec = wanted.spec
        for feature in self._disabled:
            spec = _DROPS[feature](spec)
        spec = replace(spec, devices=tuple(map(_with_times, spec.devices)))
        stored = self.objects[metadata.name] = replace(wanted, metadata=metadata, spec=spec)
        return stored


def _with_times(device: v1.Device) -> v1.Device:
    return replace(device, taints=tuple(replace(x, time_added=x.time_added or _TAINTED_AT) for x in device.taints))


def _without(**fields: Any) -> Callable[[v1.ResourceSliceSpec], v1.ResourceSliceSpec]:
    """Return a function that removes fields from every device."""
    return lambda spec: replace(spec, devices=tuple(replace(device, **fields) for device in spec.devices))


def _without_partitions(spec: v1.ResourceSliceSpec) -> v1.ResourceSliceSpec:
    devices = tuple(
        replace(device, consumes_counters=(), node_name=None, node_selector=None, all_nodes=None)
        for device in spec.devices
    )
    return replace(spec, devices=devices, shared_counters=(), per_device_node_selection=None)


def _without_groups(spec: v1.ResourceSliceSpec) -> v1.ResourceSliceSpec:
    devices = []
    for device in spec.devices:
        consumptions = tuple(replace(each, compatibility_groups=()) for each in device.consumes_counters)
        devices.append(replace(device, consumes_counters=consumptions))
    return replace(spec, devices=tuple(devices))


def _without_policies(spec: v1.ResourceSliceSpec) -> v1.ResourceSliceSpec:
    devices = []
    for device in spec.devices:
        capacity = {name: replace(each, request_policy=None) for name, each in device.capacity.items()}
        devices.append(replace(device, capacity=capacity, allow_multiple_allocations=None))
    return replace(spec, devices=tuple(devices))


_DROPS: dict[str, Callable[[v1.ResourceSliceSpec], v1.ResourceSliceSpec]] = {
    "DeviceTaints": _without(taints=()),
    "PartitionableDevices": _without_partitions,
    "BindingConditions": _without(binds_to_node=None, binding_conditions=(), binding_failure_conditions=()),
    "ConsumableCapacity": _without_policies,
    "CompatibilityGroups": _without_groups,
    "NodeAllocatableResources": _without(node_allocatable_resources={}),
    "OptionalNodeOperations": lambda spec: replace(spec, skip_node_operations=()),
}


def _is_controller(document: Document) -> bool:
    return document.has_cases_with("driverResources", "initialSlices", "expect")


def _cases(document: Document) -> Iterator[Case]:
    for entry in document.cases:
        yield Case(entry["id"], partial(_run, entry))


def _run(entry: Plain) -> None:
    if RELEASE not in entry["versions"]:
        raise Skipped(f"not a case of {RELEASE}")
    unknown = set(entry["disabledFields"]) - _DROPS.keys()
    if unknown:
        raise Mismatch(f"no rule for what a server without {', '.join(sorted(unknown))} drops")
    asyncio.run(_sync_twice(entry))


async def _sync_twice(entry: Plain) -> None:
    slices = [from_dict(v1.ResourceSlice, value) for value in entry["initialSlices"]]
    owner = _owner(entry["owner"])
    server = RecordedServer(slices, entry["disabledFields"], owner.uid if owner else "")
    errors: set[str] = set()
    publisher = Publisher(
        server,
        entry["driverName"],
        owner,
        reconcile_pool=entry["reconcilePoolWithName"] or "",
        mutation_ttl=MUTATION_TTL,
        on_error=lambda error, message: errors.add(f"{message}: {error}"),
    )
    pools = publisher.listed(tuple(slices), "").changed_pools | publisher.set_desired(
        _resources(entry["driverResources"])
    )
    for _ in range(2):
        for pool in sorted(pools):
            try:
                await publisher.sync(pool)
            except InvalidPool as error:
                errors.add(f"pool validation failed: {error}")
        expect_equal(_comparable(entry["expect"]), _found(publisher, server))
    expect_equal(sorted(set(entry["expect"]["errors"])), sorted(errors))


def _found(publisher: Publisher, server: RecordedServer) -> Plain:
    written = publisher.statistics
    stats = {"numCreates": written.creates, "numUpdates": written.updates, "numDeletes": written.deletes}
    return {"slices": [to_dict(each) for _, each in sorted(server.objects.items())], "stats": stats}


def _comparable(expected: Plain) -> Plain:
    slices = sorted(expected["slices"], key=lambda each: str(each["metadata"]["name"]))
    return {"slices": [to_dict(from_dict(v1.ResourceSlice, each)) for each in slices], "stats": expected["stats"]}


def _owner(value: Plain | None) -> Owner | None:
    return None if value is None else Owner(value["apiVersion"], value["kind"], value["name"], value.get("uid") or "")


def _resources(value: Plain | None) -> DriverResources:
    pools = ((value or {}).get("pools") or {}).items()
    return DriverResources({name: _pool(pool) for name, pool in pools})


def _pool(value: Plain) -> Pool:
    selector = value.get("nodeSelector")
    return Pool(
        node_selector=None if selector is None else from_dict(NodeSelector, selector),
        all_nodes=bool(value.get("allNodes")),
        generation=value.get("generation") or 0,
        slices=tuple(_slice(each) for each in value.get("slices") or ()),
    )


def _slice(value: Plain) -> Slice:
    """Decode a desired slice, which has the fields of a spec."""
    return content(from_dict(v1.ResourceSliceSpec, value))


FORMATS = [Format("ResourceSlice controller", _is_controller, _cases)]
