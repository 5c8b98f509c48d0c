"""The kubelet of a simulation: its memory, its files, and its answers.

It reproduces the real kubelet's ambiguities. After a start it serves pod-resources, but knows only static pods until
its API server has listed the others. It forgets ended pods in memory when it looks at them, and in its file with its
next write. It does not list the devices of plain init containers.
Source: device manager specification 4, 7, 9; DRA specification 4.4.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from checkpoint import kubelet_claims, kubelet_devices
from checkpoint.kubelet_claims import ClaimState, DriverState, PreparedDevice
from checkpoint.kubelet_devices import PodDevices
from dra_plugin.driver import PreparedDevice as Prepared
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from kubeletapi.podresources.v1 import api_pb2 as podresources
from tests.nodeplug.simulation.disk import Disk
from tests.nodeplug.simulation.host import HardwareUse

FalseAnswer = Literal[
    "", "no pods", "no device file", "bad device file", "no claim file", "bad claim file", "no cgroups"
]


class Container(Struct, eq=False):
    """A container and its answer."""

    name: str
    units: tuple[str, ...]
    answer: api.ContainerAllocateResponse
    is_init: bool = False
    needs_pre_start: bool = False
    devices: frozenset[str] = frozenset()  # the allocated ones
    opened: frozenset[str] = frozenset()  # those that it has open
    paths: Mapping[str, str] = {}  # by device: its path at the first start; "" means the host's path


class Pod(Struct, eq=False):
    """A pod with units of a resource, and the number of shares and the kind of names at that time.

    `is_recorded` once the kubelet has written the answer, `is_over` once no container runs.
    """

    name: str
    uid: str
    resource: str
    shares: int
    ids: str
    containers: list[Container] = []
    takes: dict[str, HardwareUse] = {}  # by unit, as allocated
    devices: dict[str, frozenset[str]] = {}  # by unit, the devices
    is_recorded: bool = False
    is_over: bool = False

    @property
    def units(self) -> tuple[str, ...]:
        """The units of its containers."""
        return tuple(dict.fromkeys(unit for container in self.containers for unit in container.units))

    def opened(self, unit: str) -> frozenset[str]:
        """The devices that the containers of a unit have open."""
        return frozenset[str]().union(*(x.opened for x in self.containers if unit in x.units))


class KnownClaim(Struct, frozen=True):
    """A claim in the kubelet's records, for a pod."""

    name: str
    uid: str
    pod: str
    devices: tuple[Prepared, ...] = ()  # our answer, written before the first container starts


class Kubelet:
    """The kubelet of a node: memory, files in `folder`, and its events."""

    def __init__(self, folder: Path, driver: str, node: str, disk: Disk) -> None:
        self.is_up = self.knows_pods = True
        self.false_answer: FalseAnswer = ""
        self.pods: list[Pod] = []  # including ended ones that it still remembers
        self.claims: dict[str, KnownClaim] = {}
        self.healthy: dict[str, list[str]] = {}
        self._folder = folder
        self._driver = driver
        self._node = node
        self._disk = disk
        self._written: list[Pod] = []
        (folder / "device-plugins").mkdir(parents=True, exist_ok=True)
        (folder / "pod-resources").mkdir(exist_ok=True)
        self.socket = folder / "pod-resources/kubelet.sock"
        self.socket.touch()

    def stop(self) -> None:
        """Stop; unwritten records are lost."""
        self.is_up = self.knows_pods = False
        with self._disk.unwatched():
            self.socket.unlink()
        for pod in self.pods:
            if not pod.is_recorded:
                pod.is_over = True

    def start(self) -> None:
        """Start with the records on disk."""
        self.is_up = True
        self.socket.touch()
        self.pods = list(self._written)

    def record(self, pod: Pod) -> None:
        """Record a pod's devices."""
        pod.is_recorded = True
        if pod not in self.pods:
            self.pods.append(pod)
        self.write()

    def forget(self) -> None:
        """Forget ended pods, in memory only, and only once it knows its pods."""
        if self.knows_pods:
            self.pods = [pod for pod in self.pods if not pod.is_over]

    def taken(self, resource: str) -> set[str]:
        """The units that it does not allocate now."""
        self.forget()
        return {unit for pod in self.pods if pod.resource == resource for unit in pod.units}

    def listens(self, resource: str, units: Sequence[str]) -> None:
        """Receive a plugin's list, which makes it write its file."""
        self.healthy[resource] = list(units)
        self.write()

    def write(self) -> None:
        """Write the device manager's file from memory."""
        self._written = [pod for pod in self.pods if pod.is_recorded]
        entries = [
            PodDevices(
                pod.uid, x.name, pod.resource, {-1: list(x.units)}, x.answer.SerializeToString(deterministic=True)
            )
            for pod in self._written
            for x in pod.containers
        ]
        content = {"no device file": b"", "bad device file": b"{"}.get(self.false_answer)
        if content is None:
            content = kubelet_devices.encode(entries, self.healthy)
        self._replace(self._folder / "device-plugins" / kubelet_devices.FILE_NAME, content)

    def write_claims(self) -> None:
        """Write the DRA manager's file from memory."""
        states = [
            ClaimState(x.uid, x.name, "default", {x.pod: {}}, {self._driver: _state(x)}) for x in self.claims.values()
        ]
        content = {"no claim file": b"", "bad claim file": b'{"Data": "{}", "Checksum": 1}'}.get(self.false_answer)
        if content is None:
            content = kubelet_claims.encode(states)
        self._replace(self._folder / kubelet_claims.FILE_NAME, content)

    def list_units(self) -> Iterator[podresources.PodResources]:
        """Yield pod-resources' list of the device plugin API."""
        static = podresources.PodResources(name=f"etcd-{self._node}", namespace="kube-system")
        yield static
        if self.knows_pods:
            self.forget()
            yield podresources.PodResources(name="proxy-x7k2p", namespace="kube-system")
            for pod in (x for x in self.pods if x.is_recorded and not x.is_over and self.false_answer != "no pods"):
                containers = [
                    podresources.ContainerResources(
                        name=x.name,
                        devices=[podresources.ContainerDevices(resource_name=pod.resource, device_ids=x.units)],
                    )
                    for x in pod.containers
                    if not x.is_init
                ]
                yield podresources.PodResources(name=pod.name, namespace="default", containers=containers)

    def _replace(self, path: Path, content: bytes) -> None:
        """Replace a file, as the kubelet does; without content, remove it."""
        with self._disk.unwatched():
            if not content:
                path.unlink(missing_ok=True)
                return
            written = path.with_name(f".{path.name}")
            written.write_bytes(content)
            written.rename(path)


def _state(claim: KnownClaim) -> DriverState:
    return DriverState([PreparedDevice(device_name=x.device, share_id=x.share_id) for x in claim.devices] or None)
