"""The kubelet of a life: what it remembers, what of that is on disk, and what it says.

It is faithful in what makes its words hard to read. After a start it serves pod-resources and knows no pods until its
API server has told it of them; only static ones are there at once. What it has recorded of a pod it forgets in memory,
when it looks, and on disk with the next thing that it writes. Plain init containers have devices that it does not list.
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
from tests.nodeplug.two_fronts.disk import Disk
from tests.nodeplug.two_fronts.host import Takes

Lie = Literal["", "no pods", "no device file", "bad device file", "no claim file", "bad claim file", "no cgroups"]


class Container(Struct, eq=False):
    """A container and what it was answered."""

    name: str
    units: tuple[str, ...]
    answer: api.ContainerAllocateResponse
    is_init: bool = False
    needs_pre_start: bool = False
    devices: frozenset[str] = frozenset()  # that it was given
    opened: frozenset[str] = frozenset()  # that it has open
    paths: Mapping[str, str] = {}  # by device: where it has it, when it started first; empty: where it is on the host


class Pod(Struct, eq=False):
    """A pod that got units of a resource, of which every device had so many shares, and names of that sort.

    `is_recorded` once the kubelet has written down the answer, `is_over` once no container of it runs.
    """

    name: str
    uid: str
    resource: str
    shares: int
    ids: str
    containers: list[Container] = []
    takes: dict[str, Takes] = {}  # by unit, what it was given
    devices: dict[str, frozenset[str]] = {}  # by unit, what is behind it
    is_recorded: bool = False
    is_over: bool = False

    @property
    def units(self) -> tuple[str, ...]:
        """What its containers have."""
        return tuple(dict.fromkeys(unit for container in self.containers for unit in container.units))

    def opened(self, unit: str) -> frozenset[str]:
        """The devices that containers that have a unit have open."""
        return frozenset[str]().union(*(x.opened for x in self.containers if unit in x.units))


class KnownClaim(Struct, frozen=True):
    """A claim that the kubelet has in its records, for a pod."""

    name: str
    uid: str
    pod: str
    devices: tuple[Prepared, ...] = ()  # our answer, written down before the first container starts


class Kubelet:
    """One node's kubelet: memory, files in `folder`, and what happens to it."""

    def __init__(self, folder: Path, driver: str, node: str, disk: Disk) -> None:
        self.is_up = self.knows_pods = True
        self.lie: Lie = ""
        self.pods: list[Pod] = []  # also those that are over, for as long as it remembers them
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
        """End: what was not written down is forgotten."""
        self.is_up = self.knows_pods = False
        with self._disk.unwatched():
            self.socket.unlink()
        for pod in self.pods:
            if not pod.is_recorded:
                pod.is_over = True

    def start(self) -> None:
        """Start again, from what is on disk."""
        self.is_up = True
        self.socket.touch()
        self.pods = list(self._written)

    def record(self, pod: Pod) -> None:
        """Write down what a pod has."""
        pod.is_recorded = True
        if pod not in self.pods:
            self.pods.append(pod)
        self.write()

    def forget(self) -> None:
        """Let go of pods that are over, in memory alone; before it knows its pods it cannot tell."""
        if self.knows_pods:
            self.pods = [pod for pod in self.pods if not pod.is_over]

    def taken(self, resource: str) -> set[str]:
        """The units that it does not give out now."""
        self.forget()
        return {unit for pod in self.pods if pod.resource == resource for unit in pod.units}

    def listens(self, resource: str, units: Sequence[str]) -> None:
        """Take a list of a plugin's: that makes it write its file."""
        self.healthy[resource] = list(units)
        self.write()

    def write(self) -> None:
        """Write the device manager's file as it is in memory."""
        self._written = [pod for pod in self.pods if pod.is_recorded]
        entries = [
            PodDevices(
                pod.uid, x.name, pod.resource, {-1: list(x.units)}, x.answer.SerializeToString(deterministic=True)
            )
            for pod in self._written
            for x in pod.containers
        ]
        content = {"no device file": b"", "bad device file": b"{"}.get(self.lie)
        if content is None:
            content = kubelet_devices.encode(entries, self.healthy)
        self._replace(self._folder / "device-plugins" / kubelet_devices.FILE_NAME, content)

    def write_claims(self) -> None:
        """Write the DRA manager's file as it is in memory."""
        states = [
            ClaimState(x.uid, x.name, "default", {x.pod: {}}, {self._driver: _state(x)}) for x in self.claims.values()
        ]
        content = {"no claim file": b"", "bad claim file": b'{"Data": "{}", "Checksum": 1}'}.get(self.lie)
        if content is None:
            content = kubelet_claims.encode(states)
        self._replace(self._folder / kubelet_claims.FILE_NAME, content)

    def list_units(self) -> Iterator[podresources.PodResources]:
        """What pod-resources lists of the device plugin API."""
        static = podresources.PodResources(name=f"etcd-{self._node}", namespace="kube-system")
        yield static
        if self.knows_pods:
            self.forget()
            yield podresources.PodResources(name="proxy-x7k2p", namespace="kube-system")
            for pod in (x for x in self.pods if x.is_recorded and not x.is_over and self.lie != "no pods"):
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
        """Write a file as the kubelet does: another one takes its place; without content there is none."""
        with self._disk.unwatched():
            if not content:
                path.unlink(missing_ok=True)
                return
            written = path.with_name(f".{path.name}")
            written.write_bytes(content)
            written.rename(path)


def _state(claim: KnownClaim) -> DriverState:
    return DriverState([PreparedDevice(device_name=x.device, share_id=x.share_id) for x in claim.devices] or None)
