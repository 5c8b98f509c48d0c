"""The node's numbers of devices, as its status shows them. They outlive the kubelet that wrote them.

Source: device manager specification, sections 6.2 and 6.4; observations 21, 47 and 52.
"""

from collections.abc import Callable

from kubelet.devicemanager import ManagerImpl
from kubelet.events import Event


class NodeStatus:
    """Capacity and allocatable by resource; what left the node stays as zero."""

    def __init__(self, notify: Callable[[Event], None]) -> None:
        """No devices; `notify` is told of each number that changes."""
        self.capacity: dict[str, int] = {}
        self.allocatable: dict[str, int] = {}
        self._notify = notify

    def begin(self, devices: ManagerImpl) -> None:
        """A kubelet has started; one that lost its state does not believe the old numbers."""
        if devices.should_reset_extended_resource_capacity():
            self.capacity = dict.fromkeys(self.capacity, 0)
        self.sync(devices)

    def sync(self, devices: ManagerImpl) -> None:
        """Take over what the kubelet knows now."""
        before = (dict(self.capacity), self.allocatable)
        capacity, allocatable, removed = devices.get_capacity()
        self.capacity.update(capacity)
        self.capacity.update(dict.fromkeys(removed, 0))
        self.allocatable = self.capacity | allocatable
        for resource in sorted(self.capacity.keys() | before[0].keys()):
            now = (self.capacity.get(resource), self.allocatable.get(resource))
            if now != (before[0].get(resource), before[1].get(resource)):
                self._notify(Event("capacity", resource, f"{now[0]} allocatable {now[1]}"))
