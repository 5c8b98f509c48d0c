"""What containers get: the device plugins of a made-up host, and a kubelet that calls them."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from deviceplugin import DevicePlugins, Paths
from folderwatch import FolderWatcher
from hostdevices import Host, scan
from hostdevices.presence import Presence
from hostdevices.readers import READERS, paths_reader
from kubelet.node import Node
from nodeplug.config import Config
from resources.assignment import assign
from resources.resource import Resource
from tests.checkpoint.build import opened
from tests.deviceplugin.node import pod
from tests.running import running
from userspace import NvidiaUserspace


class Allocated(NamedTuple):
    """The ids for the kubelet, and the container's content; nodes include those of our CDI specs."""

    ids: list[str]
    env: dict[str, str]
    nodes: list[str]
    mounts: list[str]
    cdi: list[str]


class Offering(NamedTuple):
    """A node whose kubelet knows all units, and the folder of the CDI specs."""

    node: Node
    specs: Path

    async def allocate(self, name: str, resource: str, count: int = 1) -> Allocated:
        """Admit a pod with one container that requests this many units of a resource."""
        assert (await self.node.admit(pod(name, resource, count))).phase == "Running"
        ((*ids,),) = self.node.allocations(name, "c").values()
        options = await self.node.run_container_options(name, "c")
        names = [x.name for x in options.cdi_devices]
        edits = list(self._edits(names))
        nodes = {x.path_in_container for x in options.devices}
        nodes |= {x["path"] for each in edits for x in each.get("deviceNodes", ())}
        mounts = [x["containerPath"] for each in edits for x in each.get("mounts", ())]
        return Allocated(ids, {x.name: x.value for x in options.envs}, sorted(nodes), mounts, names)

    def _edits(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield our specs' edits for these names; names of other specs are skipped."""
        for spec in (json.loads(path.read_text()) for path in self.specs.glob("*.json")):
            yield from (x["containerEdits"] for x in spec["devices"] if f"{spec['kind']}={x['name']}" in names)


@asynccontextmanager
async def plugins_of(host: Host, resources: Sequence[Resource], folder: Path, sockets: Path) -> AsyncIterator[Offering]:
    """A node whose kubelet has the units of these resources on a host."""
    presence = Presence(host)
    found = scan(host, (*READERS, paths_reader(Config(tuple(resources)).path_globs)))
    if any(each.userspace for each in resources):
        found = NvidiaUserspace(host, "/", folder / "userspace").enrich(found)
    devices = assign(found, resources).devices
    presence.update(found.devices, [x for each in devices.values() for x in each])
    paths = Paths(
        device_plugins=sockets / "device-plugins",
        plugins_registry=sockets / "plugins_registry",
        cdi=folder / "cdi",
        device_info=folder / "devinfo",
    )
    for at in (paths.device_plugins, paths.plugins_registry):
        at.mkdir()
    ledger, watcher = await opened(folder / "state", "boot"), FolderWatcher()
    ledger.is_complete = True
    plugins = DevicePlugins(list(resources), host, presence, ledger, paths, watcher)
    plugins.update(devices)
    async with Node(sockets) as node, running(plugins.run()):
        expected = {name for name, each in devices.items() if each}
        await node.until(lambda: expected <= {x for x, count in node.allocatable().items() if count}, 30)
        yield Offering(node, paths.cdi)
    watcher.close()
    await ledger.close()
