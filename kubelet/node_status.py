"""The node's numbers of devices, as its status shows them. They outlive the kubelet that wrote them.

Source: device manager specification, sections 6.2 and 6.4; observations 21, 47 and 52.
"""

from collections.abc import Callable, Iterable

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

    def now(self, devices: ManagerImpl) -> tuple[dict[str, int], dict[str, int]]:
        """Capacity and allocatable as they are at this moment; asking changes nothing."""
        return self._updated(*devices.state.count())

    def sync(self, devices: ManagerImpl) -> None:
        """Take over what the kubelet knows now; what is gone for too long leaves the node."""
        before = self.capacity, self.allocatable
        self.capacity, self.allocatable = self._updated(*devices.get_capacity())
        for resource in sorted(self.capacity.keys() | before[0].keys()):
            now = (self.capacity.get(resource), self.allocatable.get(resource))
            if now != (before[0].get(resource), before[1].get(resource)):
                self._notify(Event("capacity", resource, f"{now[0]} allocatable {now[1]}"))

    def _updated(
        self, capacity: dict[str, int], allocatable: dict[str, int], gone: Iterable[str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        every = self.capacity | capacity | dict.fromkeys(gone, 0)
        return every, every | allocatable
