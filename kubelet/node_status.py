"""Capacity and allocatable of devices in the node's status, which outlives the kubelet that wrote it.

Source: device manager specification, sections 6.2 and 6.4; observations 21, 47 and 52.
"""

from collections.abc import Callable, Iterable

from kubelet.devicemanager import ManagerImpl
from kubelet.events import Event


class NodeStatus:
    """Capacity and allocatable by resource; a resource that left the node stays as zero."""

    def __init__(self, notify: Callable[[Event], None]) -> None:
        """Start without devices; `notify` is called for each number that changes."""
        self.capacity: dict[str, int] = {}
        self.allocatable: dict[str, int] = {}
        self._notify = notify

    def sync_at_start(self, devices: ManagerImpl) -> None:
        """Update the status at the start of a kubelet; if the kubelet lost its state, the old numbers become zero."""
        if devices.should_reset_extended_resource_capacity():
            self.capacity = dict.fromkeys(self.capacity, 0)
        self.sync(devices)

    def current(self, devices: ManagerImpl) -> tuple[dict[str, int], dict[str, int]]:
        """Return the current capacity and allocatable without changing the status."""
        return self._merge(*devices.state.count())

    def sync(self, devices: ManagerImpl) -> None:
        """Update the status from the device manager; resources whose plugin is gone for too long become zero."""
        before = self.capacity, self.allocatable
        self.capacity, self.allocatable = self._merge(*devices.get_capacity())
        for resource in sorted(self.capacity.keys() | before[0].keys()):
            now = (self.capacity.get(resource), self.allocatable.get(resource))
            if now != (before[0].get(resource), before[1].get(resource)):
                self._notify(Event("capacity", resource, f"{now[0]} allocatable {now[1]}"))

    def _merge(
        self, capacity: dict[str, int], allocatable: dict[str, int], gone: Iterable[str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        every = self.capacity | capacity | dict.fromkeys(gone, 0)
        return every, every | allocatable
