"""One device as a plugin lists it."""

from collections.abc import Iterable

from msgspec import Struct

from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


class Device(Struct, frozen=True, gc=False):  # there can be 10,000, and they cannot be part of a reference cycle
    """A device. `topology` is None if the plugin did not set it, and empty if the plugin named no node."""

    id: str
    health: str = HEALTHY
    topology: tuple[int, ...] | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether the health is exactly "Healthy"."""
        return self.health == HEALTHY

    @property
    def nodes(self) -> tuple[int, ...]:
        """The NUMA nodes; empty if unknown."""
        return self.topology or ()


def devices_of(response: api.ListAndWatchResponse) -> list[Device]:
    """Return the devices of a list in its order, including duplicates."""
    return [Device(each.ID, each.health, _topology(each)) for each in response.devices]


def to_message(devices: Iterable[Device]) -> api.ListAndWatchResponse:
    """Return the message with which a plugin sends these devices."""
    return api.ListAndWatchResponse(
        devices=[
            api.Device(
                ID=device.id,
                health=device.health,
                topology=None
                if device.topology is None
                else api.TopologyInfo(nodes=[api.NUMANode(ID=node) for node in device.topology]),
            )
            for device in devices
        ]
    )


def _topology(device: api.Device) -> tuple[int, ...] | None:
    if not device.HasField("topology"):
        return None
    return tuple(node.ID for node in device.topology.nodes)
