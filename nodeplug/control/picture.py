"""`picture`: the node and everything that it offers, for the page (nodeplug/page): places and holders of devices."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

from msgspec import Struct

from hostdevices import Device
from hostdevices.threads import in_thread
from nodeplug.config import node_name
from nodeplug.control.leases import LeaseView
from nodeplug.control.running import RunningDaemon
from nodeplug.control.status import Answer as Status
from nodeplug.control.status import DraView, ResourceView, WithheldView
from nodeplug.control.status import Question as StatusQuestion
from nodeplug.control.status import answer as status
from nodeplug.topology.layout import layout


class Question(Struct, frozen=True, tag_field="question", tag="picture"):
    """What is the present state?"""


class Tile(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A device: its location, its state and the reason, the resources that offer it, and its holders."""

    id: str
    kind: str
    numa: str = ""
    root: str = ""
    state: Literal["healthy", "unhealthy", "unavailable"] = "healthy"
    reason: str = ""
    resources: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    is_leased: bool = False


class NodeSummary(Struct, frozen=True, rename="camel"):
    """The daemon and what it offers, without the devices; `started_at` in seconds since the epoch."""

    node: str
    version: str
    started_at: float
    configuration: str
    problems: tuple[str, ...]
    resources: tuple[ResourceView, ...]
    dra: DraView | None
    withheld: tuple[WithheldView, ...]


class Answer(Struct, frozen=True):
    """The present state."""

    about: NodeSummary
    tiles: tuple[Tile, ...]
    leases: tuple[LeaseView, ...]


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `picture`."""
    del question
    found = await status(running, StatusQuestion())
    inventory = running.offering.inventory
    devices = inventory.devices if inventory is not None else {}
    name = node_name(running.offering.config.settings.node_name)
    return Answer(_about(found, name), await in_thread(partial(_tiles, devices, found)), found.leases)


def _about(found: Status, name: str) -> NodeSummary:
    daemon, configuration = found.daemon, found.configuration
    return NodeSummary(
        node=name,
        version=daemon.version,
        started_at=round(daemon.started_at),  # rounded, so that it stays the same
        configuration=configuration.file or "built in",
        problems=(*found.problems, *configuration.problems),
        resources=found.resources,
        dra=found.dra,
        withheld=found.withheld,
    )


def _tiles(devices: Mapping[str, Device], found: Status) -> tuple[Tile, ...]:
    return tuple(
        Tile(
            id=item.id,
            kind=item.kind,
            numa=numa.name,
            root=root.name,
            state=item.state,
            reason=item.reason,
            resources=item.resources,
            holders=item.holders,
            is_leased=item.is_leased,
        )
        for numa in layout(devices, found)
        for root in numa.roots
        for item in root.items
    )
