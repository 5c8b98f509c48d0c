"""The container runtime of a simulation: the nodes that a container opens when it starts with a stored answer.

With CDI, a name is looked up in the current files, and its node replaces a plain one with the same container path. A
name without a file prevents the start. Without CDI, names are ignored.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import cdi
from dra_plugin.driver import PreparedDevice
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.nodeplug.simulation.daemon import Folder
from tests.nodeplug.simulation.host import SimulatedHost

Opened: TypeAlias = Mapping[str, str]
"""The device numbers of a container's nodes, and the container path of each; "" means the host's path."""


class NotStarted(Exception):
    """The runtime refuses to start a container; the message says why."""


class Runtime:
    """The runtime of a node, with CDI enabled or disabled."""

    def __init__(self, folder: Folder, host: SimulatedHost, has_cdi: bool) -> None:
        self.has_cdi = has_cdi
        self._folder, self._host = folder, host

    def start(self, answer: api.ContainerAllocateResponse) -> Opened:
        """Return the nodes of a pod's container. Raises `NotStarted`."""
        nodes = {x.container_path: x.host_path for x in answer.devices}
        if self.has_cdi:
            nodes |= self._named(x.name for x in answer.cdi_devices)
        return self._open(nodes)

    def start_claimed(self, devices: Iterable[PreparedDevice]) -> Opened:
        """Return the nodes of a container that uses a claim. Raises `NotStarted`."""
        return self._open(self._named(i for x in devices for i in x.cdi_device_ids))

    def finds(self, names: Iterable[str]) -> frozenset[str]:
        """The current device numbers of these names; names without a description are skipped."""
        known = self.described()
        return frozenset(map(self._host.opens, self._named(x for x in names if x in known).values()))

    def described(self) -> dict[str, cdi.Device]:
        """The described devices by qualified name."""
        paths = self._folder.cdi.glob("*.json") if self._folder.cdi.exists() else ()
        specs = [cdi.decode(path.read_bytes()) for path in paths]
        return {cdi.qualified_name(spec.kind, device.name): device for spec in specs for device in spec.devices}

    def _named(self, names: Iterable[str]) -> dict[str, str]:
        found = self.described()
        nodes: dict[str, str] = {}
        for name in names:
            if name not in found:
                raise NotStarted(f"unresolvable CDI devices {name}")
            nodes.update((x.path, x.host_path or x.path) for x in found[name].container_edits.device_nodes)
        return nodes

    def _open(self, nodes: Mapping[str, str]) -> Opened:
        opened = {inside: (self._host.opens(path), path == inside) for inside, path in nodes.items()}
        if missing := [nodes[inside] for inside, (numbers, _) in opened.items() if not numbers]:
            raise NotStarted(f"no such file: {missing}")
        return {numbers: "" if is_same else inside for inside, (numbers, is_same) in opened.items()}
