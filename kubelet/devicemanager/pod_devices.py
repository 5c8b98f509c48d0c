"""The allocations of devices: pod -> container -> resource -> record.

A record is *reserved* while its devices are being chosen and the plugin is called, and *committed* after that. A
reservation withholds its devices from other containers and is otherwise invisible. Source: device manager
specification, 4.10.
"""

from collections.abc import Iterable, Iterator, Mapping, Set

from google.protobuf.message import DecodeError
from msgspec import Struct, field

from checkpoint.kubelet_devices import WITHOUT_TOPOLOGY, Part, PodDevices, entry_part
from kubelet.devicemanager.device import Device
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

ByNode = Mapping[int, list[str]]


class Record(Struct):
    """The devices of one resource of one container. `response` is None while the record is a reservation."""

    by_node: dict[int, list[str]] = field(default_factory=dict)
    response: api.ContainerAllocateResponse | None = None
    part: Part | None = None  # the checkpoint's entry, created when it is first written

    @property
    def ids(self) -> dict[str, None]:
        """The distinct ids."""
        return {id_: None for ids in self.by_node.values() for id_ in ids}


def decode_response(encoded: bytes | None) -> api.ContainerAllocateResponse | None:
    """Decode a plugin's response from the checkpoint; None if the bytes are invalid."""
    try:
        return api.ContainerAllocateResponse.FromString(encoded or b"")
    except DecodeError:
        return None


class PodRecords:
    """All records."""

    def __init__(self) -> None:
        self._records: dict[str, dict[str, dict[str, Record]]] = {}
        self._in_use: dict[str, set[str]] = {}  # resource -> ids of all records, kept to avoid iterating over them

    def reserve(self, pod: str, container: str, resource: str) -> bool:
        """Create a reservation; return False if there is a record already."""
        resources = self._records.setdefault(pod, {}).setdefault(container, {})
        if resource in resources:
            return False
        resources[resource] = Record()
        return True

    def add_to_reservation(self, pod: str, container: str, resource: str, ids: Iterable[str]) -> bool:
        """Reserve `ids`; return False if there is no reservation."""
        record = self._find(pod, container, resource)
        if record is None or record.response is not None:
            return False
        held = record.by_node.setdefault(WITHOUT_TOPOLOGY, [])
        held.extend(id_ for id_ in dict.fromkeys(ids) if id_ not in held)
        self._in_use.setdefault(resource, set()).update(held)
        return True

    def commit(
        self, pod: str, container: str, resource: str, by_node: ByNode, response: api.ContainerAllocateResponse
    ) -> bool:
        """Turn a reservation into an allocation; return False if there is no reservation."""
        record = self._find(pod, container, resource)
        if record is None or record.response is not None:
            return False
        self.insert(pod, container, resource, by_node, response)
        return True

    def roll_back(self, pod: str, container: str, resource: str, *, frees: bool = True) -> bool:
        """Drop a reservation; return False if there is none. Without `frees`, its ids stay in use until a recount."""
        record = self._find(pod, container, resource)
        if record is None or record.response is not None:
            return False
        containers = self._records[pod]
        del containers[container][resource]
        if not containers[container]:
            del containers[container]
        if not containers:
            del self._records[pod]
        if frees:
            self._recount()
        return True

    def insert(
        self, pod: str, container: str, resource: str, by_node: ByNode, response: api.ContainerAllocateResponse
    ) -> None:
        """Record an allocation."""
        record = Record({node: list(ids) for node, ids in by_node.items()}, response)
        resources = self._records.setdefault(pod, {}).setdefault(container, {})
        before = resources.get(resource)
        resources[resource] = record
        if before is not None and not before.ids.keys() <= record.ids.keys():
            self._recount()
        elif record.by_node:
            self._in_use.setdefault(resource, set()).update(record.ids)

    def delete(self, pods: Iterable[str]) -> list[str]:
        """Drop the committed records of `pods`; return the pods that still have reservations."""
        holding = []
        for pod in pods:
            kept: dict[str, dict[str, Record]] = {}
            for container, resources in self._records.pop(pod, {}).items():
                reserved = {name: record for name, record in resources.items() if record.response is None}
                if reserved:
                    kept[container] = reserved
            if kept:
                self._records[pod] = kept
                holding.append(pod)
        self._recount()
        return holding

    def pods(self) -> set[str]:
        """Return the pods that have an allocation."""
        return {pod for pod, _, _, _ in self._committed()}

    def has_pod(self, pod: str) -> bool:
        """Return whether `pod` has an allocation."""
        containers = self._records.get(pod, {})
        return any(r.response is not None for resources in containers.values() for r in resources.values())

    def pod_devices(self, pod: str, resource: str) -> dict[str, None]:
        """Return the ids of `resource` that the pod's containers have."""
        containers = self._records.get(pod, {})
        return {id_: None for name in containers for id_ in self.container_devices(pod, name, resource) or ()}

    def container_devices(self, pod: str, container: str, resource: str) -> dict[str, None] | None:
        """Return the ids that the container has; None if nothing was allocated."""
        record = self._find(pod, container, resource)
        return None if record is None or record.response is None else record.ids

    @property
    def in_use(self) -> Mapping[str, Set[str]]:
        """Resource -> ids in use, including reserved ones."""
        return self._in_use

    def owners(self, resource: str | None) -> dict[str, tuple[str, str]]:
        """Return id -> (pod, container) for the allocated devices of `resource`, or of all resources if None."""
        return {
            id_: (pod, container)
            for pod, container, name, record in self._committed()
            if resource in (name, None)
            for id_ in record.ids
        }

    def responses(self, pod: str, container: str) -> dict[str, api.ContainerAllocateResponse]:
        """Return resource -> the plugin's response, for the container's allocations."""
        resources = self._records.get(pod, {}).get(container, {})
        return {name: record.response for name, record in resources.items() if record.response is not None}

    def devices(self, pod: str, container: str) -> dict[str, dict[str, Device]] | None:
        """Return resource -> id -> device with its NUMA nodes at the allocation; None if the container has none."""
        resources = self._records.get(pod, {}).get(container, {})
        found = {
            name: {id_: Device(id_, "", _nodes_of(record.by_node, id_)) for id_ in record.ids}
            for name, record in resources.items()
            if record.response is not None and record.by_node
        }
        return found or None

    def checkpoint_parts(self) -> list[Part]:
        """Return the entries of the checkpoint."""
        parts = []
        for pod, container, resource, record in self._committed():
            if record.part is None and record.response is not None:
                response = record.response.SerializeToString(deterministic=True)
                record.part = entry_part(PodDevices(pod, container, resource, record.by_node, response))
            if record.part is not None:
                parts.append(record.part)
        return parts

    def _recount(self) -> None:
        self._in_use = {}
        for containers in self._records.values():
            for resources in containers.values():
                for name, record in resources.items():
                    if record.by_node:
                        self._in_use.setdefault(name, set()).update(record.ids)

    def _find(self, pod: str, container: str, resource: str) -> Record | None:
        return self._records.get(pod, {}).get(container, {}).get(resource)

    def _committed(self) -> Iterator[tuple[str, str, str, Record]]:
        for pod, containers in self._records.items():
            for container, resources in containers.items():
                for resource, record in resources.items():
                    if record.response is not None:
                        yield pod, container, resource, record


def _nodes_of(by_node: ByNode, id_: str) -> tuple[int, ...] | None:
    nodes = tuple(sorted(node for node, ids in by_node.items() if id_ in ids))
    return None if nodes in ((), (WITHOUT_TOPOLOGY,)) else nodes
