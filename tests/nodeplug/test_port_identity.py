"""A device that becomes another one at its first use: its pod has the port, with whatever device is there."""

import asyncio
import json
import shutil
import signal
from pathlib import Path

from kubelet.node import Node
from kubelet.pods import container
from kubelet.pods import pod as a_pod
from tests.hostdevices.tree import Tree
from tests.nodeplug.conftest import StartDaemon, until_logged
from tests.running import until

CORAL = "home.lan/coral"
BEFORE, AFTER = ("1a6e", "089a"), ("18d1", "9302")
PORT = "usb-port-0000-00-14-0-0-2"


def plug_in(root: Path, face: tuple[str, str], devnum: int) -> None:
    """Plug an accelerator into the port, with its identity with or without firmware."""
    shutil.rmtree(root, ignore_errors=True)
    tree = Tree(root)
    controller = tree.pci("0000:00:14.0", pci_class="0c0330", driver="xhci_hcd")
    tree.device(f"{controller}/usb1", group="bus/usb/devices", idVendor="1d6b", idProduct="0002")
    tree.usb(controller, "1-2", devnum=devnum, vendor=face[0], product=face[1])


async def test_accelerator_keeps_its_pod_when_its_identity_changes(
    start: StartDaemon, tmp_path: Path, socket_dir: Path
) -> None:
    """The library loads it from the first container, which then loses the device, ends, and restarts with it."""

    def described() -> list[str]:
        specs = [json.loads(path.read_text()) for path in (tmp_path / "cdi").glob("*.json")]
        return [x["path"] for each in specs for y in each["devices"] for x in y["containerEdits"]["deviceNodes"]]

    plug_in(tmp_path / "host", BEFORE, 4)
    resource = {"name": CORAL, "select": "coral-usb", "identity": "port", "cdi": True}
    async with Node(socket_dir) as node:
        by_name = {"name": "home.lan/other", "select": {"kind": "pci"}, "ids": "auxiliary"}
        daemon = await start([by_name, resource], rescanSeconds=1)
        await until_logged(daemon, "device is not offered: home.lan/other: it has no auxiliary")
        await until_logged(daemon, '"registered"')
        await node.until(lambda: node.allocatable().get(CORAL) == 1, 30)
        assert list(node.devices()[CORAL]) == [PORT]
        await node.admit(a_pod("p", container("c", {CORAL: 1})))
        options = await node.run_container_options("p", "c")
        assert [x.name for x in options.cdi_devices] == [f"{CORAL}={PORT}"]
        await until(lambda: described() == ["/dev/bus/usb/001/004"])
        plug_in(tmp_path / "host", AFTER, 5)
        await until(lambda: described() == ["/dev/bus/usb/001/005"])
        async with asyncio.timeout(30):
            while (await node.exit_container("p", "c", 1)).container_statuses[0].state.running is None:
                pass
        assert node.devices()[CORAL].keys() == {PORT}
        assert (await node.admit(a_pod("other", container("c", {CORAL: 1})))).phase == "Failed"
        daemon.send_signal(signal.SIGTERM)
        await daemon.wait()
