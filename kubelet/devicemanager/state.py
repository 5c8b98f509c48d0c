"""The state of the device manager: lists, health, allocations. Pure; nothing here waits.

Health is stored twice, on purpose: in each device, where only the plugin's lists change it, and in two sets per
resource, which also change when the plugin is lost. Sets are dicts, so that they keep the order of the plugin's list.
Source: device manager specification, sections 0.3, 3.2 and 6.1.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from operator import itemgetter
from pathlib import Path

from checkpoint.fnv import Run
from checkpoint.kubelet_devices import WITHOUT_TOPOLOGY, DeviceCheckpoint, Part, assemble, registered_part
from kubelet.devicemanager.device import Device
from kubelet.devicemanager.endpoint import Endpoint
from kubelet.devicemanager.pod_devices import PodRecords, decode_response
from kubelet.errors import RegistrationError
from kubelet.release import LATEST, Release

Ids = dict[str, None]

_LONG_RUN = 20_000  # bytes whose checksum takes more than a millisecond


class DeviceState:
    """The tables of the device manager."""

    def __init__(self, release: Release = LATEST, choose: Callable[[list[Path]], Path] = itemgetter(0)) -> None:
        """Tables of a kubelet of `release`; `choose` selects the plugin of a resource that replaces a lost one."""
        self.endpoints: dict[str, Endpoint] = {}  # the current plugin of each resource, which is called
        self.instances: dict[str, dict[Path, Endpoint]] = {}  # the connected plugins of each resource
        self.all: dict[str, dict[str, Device]] = {}
        self.healthy: dict[str, Ids] = {}
        self.unhealthy: dict[str, Ids] = {}
        self.records = PodRecords()
        self.reusable: dict[str, dict[str, Ids]] = {}  # pod -> resource -> ids of its finished init containers
        self._release = release
        self._choose = choose
        self._aligned: set[str] = set()
        self._registered: dict[str, Part] = {}  # checkpoint parts of `healthy`

    @property
    def allocated(self) -> Mapping[str, Set[str]]:
        """Resource -> ids that are allocated to containers or reserved for them."""
        return self.records.in_use

    def connect(self, resource: str, endpoint: Endpoint) -> None:
        """Make a plugin the current one of its resource. Raises `RegistrationError` if its path is taken."""
        instances = self.instances.setdefault(resource, {})
        key = self._key(endpoint.socket)
        if self._release.distinguishes_instances and key in instances:
            raise RegistrationError(f"device plugin already connected: {endpoint.socket}")
        self.endpoints[resource] = instances[key] = endpoint

    def disconnect(self, resource: str, socket: Path) -> bool:
        """Remove a plugin. Another one takes over, or all devices of the resource become unhealthy.

        Returns False if the plugin was not connected.
        """
        instances = self.instances.get(resource, {})
        endpoint = instances.pop(self._key(socket), None)
        if endpoint is None:
            return False
        endpoint.stop()
        if instances:
            self.endpoints[resource] = instances[self._choose(list(instances))]
        else:
            del self.instances[resource]
            self.mark_unhealthy(resource)
        return True

    def update(self, resource: str, devices: Sequence[Device]) -> list[str]:
        """Replace the resource's list; return the uids of pods whose devices changed their health or came back."""
        before = self.all.get(resource, {})
        owners = self.records.owners(resource if self._release.finds_owner_by_resource else None)
        self.all[resource] = now = {}
        healthy: Ids = {}
        unhealthy: Ids = {}
        self.healthy[resource] = healthy
        self.unhealthy[resource] = unhealthy
        pods: dict[str, None] = {}
        aligned = False
        for device in devices:
            old = before.get(device.id)
            if device.id in owners and (old is None or old.health != device.health):
                pods[owners[device.id][0]] = None
            now[device.id] = device
            (healthy if device.is_healthy else unhealthy)[device.id] = None
            aligned = aligned or bool(device.nodes)
        (self._aligned.add if aligned else self._aligned.discard)(resource)
        self._registered.pop(resource, None)
        return list(pods)

    def mark_unhealthy(self, resource: str) -> None:
        """Mark all devices of a resource unhealthy, so that none can be allocated until a plugin is back."""
        healthy = self.healthy.get(resource, {})
        if resource in self.healthy:
            self.healthy[resource] = {}
        self.unhealthy[resource] = self.unhealthy.get(resource, {}) | healthy
        self._registered.pop(resource, None)

    def has_alignment(self, resource: str) -> bool:
        """Return whether any device of the resource names a NUMA node."""
        return resource in self._aligned

    def is_device_plugin_resource(self, resource: str) -> bool:
        """Return whether a device plugin ever provided the resource."""
        return resource in self.healthy or resource in self.allocated

    def count(self) -> tuple[dict[str, int], dict[str, int], list[str]]:
        """Return capacity, allocatable, and the resources to remove, whose plugin is gone for too long."""
        capacity: dict[str, int] = {}
        allocatable: dict[str, int] = {}
        gone: dict[str, None] = {}
        for resource, healthy in self.healthy.items():
            if self._has_expired(resource):
                gone[resource] = None
            else:
                capacity[resource] = allocatable[resource] = len(healthy)
        for resource, unhealthy in self.unhealthy.items():
            if self._has_expired(resource):
                gone[resource] = None
            else:
                capacity[resource] = capacity.get(resource, 0) + len(unhealthy)
        return capacity, allocatable, list(gone)

    def remove(self, resources: Iterable[str]) -> None:
        """Remove resources from the node."""
        for resource in resources:
            for table in (self.endpoints, self.healthy, self.unhealthy, self._registered):
                table.pop(resource, None)

    def group_by_node(self, resource: str, ids: Iterable[str]) -> dict[int, list[str]]:
        """Return NUMA node -> ids. A device is listed under each of its nodes, or under `WITHOUT_TOPOLOGY`."""
        known = self.all.get(resource, {})
        groups: dict[int, list[str]] = {}
        for id_ in ids:
            device = known.get(id_)
            for node in (device.nodes if device else ()) or (WITHOUT_TOPOLOGY,):
                groups.setdefault(node, []).append(id_)
        return groups

    def checkpoint(self) -> bytes:
        """Return the checkpoint's bytes."""
        for resource, ids in self.healthy.items():
            if resource not in self._registered:
                self._registered[resource] = registered_part(resource, list(ids))
        registered = {resource: self._registered[resource] for resource in self.healthy}
        return assemble(self.records.checkpoint_parts() or None, registered)

    def long_runs(self) -> list[Run]:
        """Return the parts of the checkpoint whose checksum is worth preparing, because it takes milliseconds."""
        runs = (part.dump for part in self._registered.values())
        return [run for run in runs if len(run.data) > _LONG_RUN and not run.is_complete]

    def restore(self, checkpoint: DeviceCheckpoint, stopped: Callable[[], Endpoint]) -> list[str]:
        """Restore a checkpoint: the allocations, and the resources without devices until their plugins are back.

        Returns a line for each entry that was skipped.
        """
        skipped = []
        for entry in checkpoint.entries or ():
            owner = f"pod {entry.pod_uid}, container {entry.container}, resource {entry.resource}"
            response = decode_response(entry.response)
            if response is None:
                skipped.append(f"{owner}: the recorded answer of the plugin cannot be read")
                continue
            by_node = {node: list(ids or ()) for node, ids in (entry.by_node or {}).items()}
            self.records.insert(entry.pod_uid, entry.container, entry.resource, by_node, response)
        for resource in checkpoint.registered or ():
            self.healthy[resource] = {}
            self.unhealthy[resource] = {}
            self.endpoints[resource] = stopped()
        return skipped

    def _key(self, socket: Path) -> Path:
        """Return the key of a plugin: before 1.37 a resource has one plugin, whatever its path."""
        return socket if self._release.distinguishes_instances else Path()

    def _has_expired(self, resource: str) -> bool:
        endpoint = self.endpoints.get(resource)
        return endpoint is None or endpoint.is_expired
