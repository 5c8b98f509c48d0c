"""A scripted kubelet: pod-resources at a real socket, and the two state files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from checkpoint import kubelet_claims, kubelet_devices
from grpcunix import UnixServer, handler
from kubeletapi.podresources.v1 import api_pb2 as podresources

DRIVER = "nodeplug.dev"
_SERVICE = podresources.DESCRIPTOR.services_by_name["PodResourcesLister"]


def pod(
    name: str, units: Mapping[str, Sequence[str]] | None = None, claims: Mapping[str, Sequence[str]] | None = None
) -> podresources.PodResources:
    """A pod in the namespace default with one container `c`: its units by resource, and its devices by claim.

    A claim's device is `<device>` or `<device>/<share id>`.
    """
    dynamic = []
    for claim, devices in (claims or {}).items():
        found = [device.partition("/") for device in devices]
        mine = [
            podresources.ClaimResource(driver_name=DRIVER, device_name=device, share_id=share)
            if share
            else podresources.ClaimResource(driver_name=DRIVER, device_name=device)
            for device, _, share in found
        ]
        dynamic.append(podresources.DynamicResource(claim_name=claim, claim_namespace="default", claim_resources=mine))
    container = podresources.ContainerResources(
        name="c",
        devices=[podresources.ContainerDevices(resource_name=x, device_ids=ids) for x, ids in (units or {}).items()],
        dynamic_resources=dynamic,
    )
    return podresources.PodResources(name=name, namespace="default", containers=[container])


class ScriptedKubelet:
    """The folders of one kubelet below `root`. Its socket exists after `start`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.device_plugins = root / "device-plugins"
        self.socket = root / "pod-resources/kubelet.sock"
        self.answer: list[podresources.PodResources] | bytes | Exception = []
        self.lists = 0
        self._server: UnixServer | None = None
        self._writes = 0
        for folder in (self.device_plugins, self.socket.parent):
            folder.mkdir(parents=True, exist_ok=True)

    async def start(self) -> None:
        self._server = UnixServer(self.socket, [handler(_SERVICE, self)])
        await self._server.start()

    async def stop(self) -> None:
        """Stop, and remove the socket."""
        if self._server is not None:
            await self._server.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def list(
        self, request: podresources.ListPodResourcesRequest, context: object
    ) -> podresources.ListPodResourcesResponse | bytes:
        self.lists += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, bytes):
            return self.answer
        return podresources.ListPodResourcesResponse(pod_resources=self.answer)

    def write_devices(self, *entries: kubelet_devices.PodDevices) -> None:
        """Replace the device manager's file, as a kubelet does."""
        self.write(self.device_plugins / kubelet_devices.FILE_NAME, kubelet_devices.encode(entries, {}))

    def write_claims(self, *claims: kubelet_claims.ClaimState) -> None:
        """Write the DRA manager's file."""
        self.write(self.root / kubelet_claims.FILE_NAME, kubelet_claims.encode(claims))

    def write(self, path: Path, content: bytes) -> None:
        self._writes += 1
        new = path.with_name(f".{path.name}{self._writes}")
        new.write_bytes(content)
        os.replace(new, path)


def devices(resource: str, *units: str, uid: str = "uid-1", container: str = "c") -> kubelet_devices.PodDevices:
    """An entry of the device manager's file."""
    return kubelet_devices.PodDevices(uid, container, resource, {-1: list(units)}, response=b"")


def claim_state(
    uid: str,
    name: str = "",
    *,
    pods: Sequence[str] = (),
    driver: str = DRIVER,
    answer: kubelet_claims.DriverState | None = None,
) -> kubelet_claims.ClaimState:
    """An entry of the DRA manager's file."""
    return kubelet_claims.ClaimState(
        claim_uid=uid,
        claim_name=name or uid,
        namespace="default",
        pod_uids={each: {} for each in pods},
        driver_state={driver: answer or kubelet_claims.DriverState()},
    )
