"""Short constructors for devices, slices and pools."""

from datetime import UTC, datetime
from typing import Any

from dra_plugin.publishing.slices import DriverResources, Pool, Slice
from resourceapi.objects import ObjectMeta, from_dict, v1

DRIVER = "driver.example.com"
NODE = "owner"
POOL = "pool"
TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def device(name: str = "device", **fields: Any) -> v1.Device:
    """A device; fields as in JSON."""
    return from_dict(v1.Device, {"name": name, **fields})


def changed(name: str) -> v1.Device:
    """The device of this name, with an attribute."""
    return device(name, attributes={"changed": {"bool": True}})


def taint(key: str, effect: str = v1.NO_EXECUTE, time: datetime | None = None) -> v1.DeviceTaint:
    """A taint."""
    return v1.DeviceTaint(key=key, effect=effect, time_added=time)


def tainted(*taints: v1.DeviceTaint) -> v1.Device:
    """The device `device` with taints."""
    return v1.Device(name="device", taints=taints)


def slices(*devices: v1.Device) -> tuple[Slice, ...]:
    """Desired slices of one device each."""
    return tuple(Slice(devices=(each,)) for each in devices)


def one_pool(*content: Slice, **fields: Any) -> DriverResources:
    """Resources with the single pool `pool`."""
    return DriverResources({POOL: Pool(slices=content, **fields)})


def stored(
    name: str, *devices: v1.Device, generation: int = 1, count: int = 1, pool: str = POOL, **fields: Any
) -> v1.ResourceSlice:
    """A slice on the server before a test; local to the node unless `fields` of its spec say otherwise."""
    if not {"node_selector", "all_nodes"} & fields.keys():
        fields["node_name"] = NODE
    numbers = v1.ResourcePool(name=pool, generation=generation, resource_slice_count=count)
    spec = v1.ResourceSliceSpec(driver=DRIVER, pool=numbers, devices=devices, **fields)
    return v1.ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def indexed(index: int, *devices: v1.Device, **fields: Any) -> v1.ResourceSlice:
    """A slice with a name as the controller generates it."""
    return stored(f"{index:05x}-{DRIVER}-{NODE}-{index}", *devices, **fields)
