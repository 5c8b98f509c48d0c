"""The DRA side between an API server and a kubelet, as in the daemon: real sockets, ledger and reconciler."""

import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

from checkpoint.reconciler import Reconciler
from dra_plugin import DraPlugin, DriverOptions, Folders
from dra_plugin.driver import ClaimFailed, ClaimRef, Prepared, PreparedDevice
from dra_plugin.serving.sockets import plugin_socket
from folderwatch import FolderWatcher
from hostdevices import Device
from hostdevices.pod_cgroups import running_pods
from hostdevices.presence import Presence
from resourceapi.client import AsyncClient
from resourceapi.objects import v1
from tests.checkpoint.build import opened
from tests.dra_plugin.kubelet_end import TIMEOUT, kubelet_end
from tests.dra_plugin.preparing.kubelet import Kubelet, started
from tests.dra_plugin.preparing.world import DRIVER, NODE, World, ref, resource
from tests.running import running, until
from witnesses import KubeletFiles, NodeWitnesses, PodResources


class Node(World):
    """A world whose claims are on an API server, and whose kubelet calls, lists and records. Tests start the passes.

    `kubelet` is the kubelet's evidence; its calls are `prepare` and `unprepare`.
    """

    def __init__(self, folder: Path, client: Callable[[], AsyncClient]) -> None:
        super().__init__(folder)
        self.resources = [resource("fuse"), resource("kvm", shares=4)]
        self.client = client
        self.recheck = 30.0
        self.root = folder / "kubelet"
        self.folders = Folders(self.root / "plugins_registry", self.root / "plugins" / DRIVER)
        self.folders.registry.mkdir(parents=True)
        self.metadata = self.folders.data / "dra-device-metadata"
        self.kubelet = Kubelet(self.root, self.made_up.root)

    async def begin(self, boot_id: str = "this-boot") -> None:
        """Start as the daemon does."""
        self.ledger = await opened(self.state, boot_id)
        self.presence = Presence(self.made_up.host)
        self._running = AsyncExitStack()
        watcher = self._running.enter_context(closing(FolderWatcher()))
        options = DriverOptions(DRIVER, NODE, self.folders, self.cdi, recheck=self.recheck)
        self.plugin = DraPlugin(
            self.resources, self.made_up.host, self.presence, self.ledger, self.client(), options, watcher
        )
        witnesses = NodeWitnesses(
            PodResources(self.kubelet.socket, lambda _: False, DRIVER, [NODE]),
            KubeletFiles(self.root / "device-plugins", self.root, lambda _: False, DRIVER),
            lambda: running_pods(self.made_up.host),
            self.plugin.wanted,
        )
        self.reconciler = Reconciler(self.ledger, witnesses, interval=3600.0, grace=0.0, max_wait=TIMEOUT)
        self.reconciler.claims = self.plugin.restorer
        self.scan()
        endpoint = plugin_socket(self.folders.data, DRIVER)
        self.work, _ = await self._running.enter_async_context(running(self.plugin.run(), self.reconciler.run()))
        await until(endpoint.exists)
        self._connected = AsyncExitStack()
        self._calls = await self._connected.enter_async_context(kubelet_end(endpoint))

    async def stop(self) -> None:
        """Stop as the daemon does. The kubelet stays connected, and receives the last answers.

        Raises the error that ended the daemon before.
        """
        try:
            await self._running.aclose()
        finally:
            await self.ledger.close()

    async def end(self, grace: float = 0.0) -> None:
        """Stop, and close the kubelet's connection. `grace` is not used: the plugin has its own."""
        try:
            await self.stop()
        finally:
            await self._connected.aclose()

    async def lose_ledger(self) -> None:
        """Restart without the ledger's files."""
        await self.end()
        shutil.rmtree(self.state)
        await self.begin()

    async def reconcile(self) -> None:
        """Run a pass of the reconciler."""
        await self.reconciler.refresh()

    def offer(self, assigned: Mapping[str, tuple[Device, ...]]) -> None:
        """Offer the devices of a scan."""
        self.plugin.update(assigned)

    async def outcomes(self, *wanted: v1.ResourceClaim) -> Mapping[str, Prepared]:
        """Prepare claims in one call of the kubelet."""
        answer = await self._calls.prepare(*map(ref, wanted))
        return {uid: ClaimFailed(entry.error) if entry.error else _devices(entry) for uid, entry in answer.items()}

    async def failures(self, *done: ClaimRef) -> Mapping[str, ClaimFailed | None]:
        """Unprepare claims in one call of the kubelet."""
        answer = await self._calls.unprepare(*done)
        return {uid: ClaimFailed(error) if error else None for uid, error in answer.items()}


def _devices(entry: Any) -> tuple[PreparedDevice, ...]:
    return tuple(
        PreparedDevice(
            tuple(x.request_names),
            x.pool_name,
            x.device_name,
            tuple(x.cdi_device_ids),
            x.share_id if x.HasField("share_id") else None,
        )
        for x in entry.devices
    )


@asynccontextmanager
async def node_in(folder: Path, client: Callable[[], AsyncClient]) -> AsyncIterator[Node]:
    """A running node with a kubelet that knows its pods."""
    node = Node(folder, client)
    async with started(node.kubelet), node:
        yield node
