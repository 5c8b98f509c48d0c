"""Two sticks return in the opposite order: a restarted container has its own stick, or does not start."""

import asyncio
import json
import shutil
import signal
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest

from kubelet.node import Node
from kubelet.pods import container
from kubelet.pods import pod as a_pod
from resourceapi.objects.core import ContainerStatus
from tests.hostdevices.tree import Tree
from tests.kubelet.kit import state_details
from tests.nodeplug.conftest import StartDaemon, until_logged

STICK = "home.lan/zigbee"
BOTH = ("A17C2D9E", "B28D3EAF")


def plug_in(root: Path, *serials: str) -> None:
    """Plug in exactly these sticks, numbered in this order."""
    shutil.rmtree(root, ignore_errors=True)
    tree = Tree(root)
    controller = tree.pci("0000:00:14.0", pci_class="0c0330", driver="xhci_hcd")
    for number, serial in enumerate(serials):
        port = 2 + BOTH.index(serial)  # their ports do not change
        stick = tree.usb(
            controller,
            f"1-{port}",
            devnum=4 + number,
            vendor="10c4",
            product="ea60",
            serial=serial,
            interfaces=("ff",),
        )
        name = f"ttyUSB{number}"
        serial_port = tree.device(f"{stick}/1-{port}:1.0/{name}", driver="usb-serial/cp210x", port_number=0)
        tree.child(serial_port, f"tty/{name}", group="class/tty", node=name, numbers=f"188:{number}")


class Sticks:
    """A node with the two sticks, and a pod that has the first."""

    def __init__(self, node: Node, start: StartDaemon, root: Path, cdi_folder: Path, cdi: Any) -> None:
        self.node = node
        self.cdi_folder = cdi_folder
        self._start = start
        self._root = root
        self._cdi = cdi
        self._process: Process | None = None

    async def run(self, *serials: str, healthy: int = 1) -> None:
        """Plug in these sticks, in this order, and restart the daemon."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()
        plug_in(self._root, *serials)
        resource = {
            "name": STICK,
            "select": {"preset": "usb-serial", "attributes": {"serial": BOTH[0]}},
            "cdi": self._cdi,
        }
        self._process = await self._start([resource], rescanSeconds=1)
        await until_logged(self._process, '"registered"')
        await self.node.until(lambda: STICK in self.node.devices() and self.node.allocatable()[STICK] == healthy, 30)

    async def restart_container(self) -> ContainerStatus:
        """End the container, and return the status after its restart."""
        await self.node.exit_container("p", "c", 1)
        (status,) = self.node.status("p").container_statuses
        return status

    def described(self) -> dict[str, list[str]]:
        """The nodes that a runtime finds, by name."""
        specs = [json.loads(path.read_text()) for path in self.cdi_folder.glob("*.json")]
        return {
            f"{spec['kind']}={device['name']}": [node["path"] for node in device["containerEdits"]["deviceNodes"]]
            for spec in specs
            for device in spec["devices"]
        }


@pytest.mark.parametrize("cdi", [False, "auto", True])
async def test_container_has_its_own_stick_or_is_refused_when_order_changes(
    start: StartDaemon, tmp_path: Path, socket_dir: Path, cdi: bool | str
) -> None:
    async with Node(socket_dir) as node:
        sticks = Sticks(node, start, tmp_path / "host", tmp_path / "cdi", cdi)
        await sticks.run(*BOTH)
        await node.admit(a_pod("p", container("c", {STICK: 1})))
        options = await node.run_container_options("p", "c")
        names = [x.name for x in options.cdi_devices]
        assert [x.path_on_host for x in options.devices] == ([] if cdi is True else ["/dev/ttyUSB0"])
        shutil.rmtree(tmp_path / "cdi", ignore_errors=True)
        await sticks.run(*reversed(BOTH))
        await node.restart()
        await node.until(lambda: node.allocatable().get(STICK) == 1, 30)
        status = await sticks.restart_container()
        if cdi is True:
            assert status.state.running is not None
            assert [sticks.described()[name] for name in names] == [["/dev/ttyUSB1"]]
        else:
            reason, message = state_details(status)
            assert reason == "CreateContainerConfigError"
            assert "the container was allocated /dev/ttyUSB0, which is" in message
            assert "its device is at /dev/ttyUSB1; delete the pod, or set `cdi: true`" in message
        await sticks.run(*BOTH)
        await node.until(lambda: node.allocatable().get(STICK) == 1, 30)
        async with asyncio.timeout(30):
            while (await sticks.restart_container()).state.running is None:
                pass
        if cdi is not False:
            assert [sticks.described()[name] for name in names] == [["/dev/ttyUSB0"]]


async def test_container_is_refused_when_another_stick_has_its_path(
    start: StartDaemon, tmp_path: Path, socket_dir: Path
) -> None:
    async with Node(socket_dir) as node:
        sticks = Sticks(node, start, tmp_path / "host", tmp_path / "cdi", True)
        await sticks.run(*BOTH)
        await node.admit(a_pod("p", container("c", {STICK: 1})))
        await sticks.run(BOTH[1], healthy=0)
        status = await sticks.restart_container()
        reason, message = state_details(status)
        assert reason == "CreateContainerConfigError"
        assert "is gone; the container starts when the device is back" in message
        assert not any("ttyUSB0" in node for nodes in sticks.described().values() for node in nodes)
