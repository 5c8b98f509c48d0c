"""`dry_run`: the answer of Allocate to a container that requests units of a resource; nothing is leased or changed."""

from collections.abc import Mapping

from msgspec import Struct

from checkpoint import LedgerUnavailable
from deviceplugin import AllocationRefused
from deviceplugin.dry_run import DryRun
from nodeplug.config.document import suggestion
from nodeplug.control.protocol import Refusal
from nodeplug.control.running import RunningDaemon
from resources.resource import Resource


class Question(Struct, frozen=True, tag_field="question", tag="dry_run"):
    """Which answer would a container get that requests `count` units, including these units or devices?"""

    resource: str
    count: int = 1
    devices: tuple[str, ...] = ()


class UnitView(Struct, frozen=True, rename="camel"):
    """A unit that the container would get, and the device that it is, or is a share of."""

    unit: str
    device: str
    numa_nodes: tuple[int, ...]


class MountView(Struct, frozen=True, rename="camel"):
    """A folder or file of the host that the container would see."""

    host_path: str
    container_path: str
    read_only: bool


class NodeView(Struct, frozen=True, rename="camel"):
    """A device node that the container would have."""

    host_path: str
    container_path: str
    permissions: str


class Answer(Struct, frozen=True, rename="camel"):
    """The units, how many are `free`, and the answer to Allocate, as in the device plugin API.

    `pre_start`: the kubelet would also call PreStartContainer; `reset`: that would reset the devices.
    """

    resource: str
    units: tuple[UnitView, ...]
    free: int
    envs: Mapping[str, str]
    annotations: Mapping[str, str]
    mounts: tuple[MountView, ...]
    nodes: tuple[NodeView, ...]
    cdi_devices: tuple[str, ...]
    pre_start: bool
    reset: bool


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `dry_run`. Raises `Refusal` with the message with which the container would be refused."""
    resource = next((x for x in running.offering.config.resources if x.name == question.resource), None)
    if resource is None:
        hint = suggestion(question.resource, (x.name for x in running.offering.config.resources))
        raise Refusal(f"there is no resource {question.resource}; {hint or '`nodeplug status` lists the resources'}")
    if resource.api == "dra":
        raise Refusal(f"{resource.name} is offered through DRA; `nodeplug allocate` shows what a claim would get")
    try:
        await running.ledger.known()
    except LedgerUnavailable as error:
        raise Refusal(str(error)) from None
    if question.resource not in running.plugins.devices():
        raise Refusal("the devices of this node are not read yet; try again")
    try:
        found = running.plugins.dry_run(resource.name, max(question.count, len(question.devices)), question.devices)
    except AllocationRefused as refusal:
        raise Refusal(str(refusal)) from None
    return _view(resource, found)


def _view(resource: Resource, found: DryRun) -> Answer:
    response = found.response
    return Answer(
        resource=resource.name,
        units=tuple(UnitView(unit, device.id, device.numa_nodes) for unit, device in found.units.items()),
        free=found.free,
        envs=dict(sorted(response.envs.items())),
        annotations=dict(sorted(response.annotations.items())),
        mounts=tuple(MountView(x.host_path, x.container_path, x.read_only) for x in response.mounts),
        nodes=tuple(NodeView(x.host_path, x.container_path, x.permissions) for x in response.devices),
        cdi_devices=tuple(x.name for x in response.cdi_devices),
        pre_start=found.pre_start,
        reset=resource.reset,
    )
