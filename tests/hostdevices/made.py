"""Devices for tests, and their assignment."""

from collections.abc import Iterable, Mapping

from hostdevices import HEALTHY, AttributeValue, Device, Devnode, Health, Inventory
from resources.assignment import Assignment, assign
from resources.resource import Resource


def device(
    id: str,  # noqa: A002 - the field's name
    kind: str = "misc",
    *nodes: str,
    parents: tuple[str, ...] = (),
    attributes: Mapping[str, AttributeValue] = {},
    numa: tuple[int, ...] = (),
    health: Health = HEALTHY,
    numbers: tuple[int, int] = (240, 0),
    node_kind: str = "c",
) -> Device:
    return Device(
        id=id,
        kind=kind,
        name=id,
        attributes={"name": id, **attributes},
        devnodes=tuple(
            Devnode(path, "b" if node_kind == "b" else "c", numbers[0], numbers[1] + i) for i, path in enumerate(nodes)
        ),
        numa_nodes=numa,
        parents=parents,
        health=health,
    )


def assigned(devices: Iterable[Device], *resources: Resource) -> Assignment:
    return assign(Inventory.of(devices), resources)


def ids(assignment: Assignment, resource: str) -> list[str]:
    return [found.id for found in assignment.devices[resource]]


def unassigned_reason(assignment: Assignment, device_id: str) -> str:
    return next(found.reason for found in assignment.rest if found.device.id == device_id)
