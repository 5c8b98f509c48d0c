"""Two USB serial sticks that this machine does not have, and that exchange places when they are plugged in again.

The daemon reads a made-up host. The device nodes are real, because a runtime looks them up: they have the numbers of
/dev/null and /dev/zero, which distinguish them.
"""

import os
import shutil
import stat
from pathlib import Path

from tests.hostdevices.tree import Tree

SERIALS = ("A17C2D9E", "B28D3EAF")
FIRST, SECOND = "/dev/ttyUSB70 1:3", "/dev/ttyUSB71 1:5"
"""The places: a path and its device numbers."""


class Sticks:
    """The sticks exist from `plug` until `close`; `root` is the daemon's."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "host"

    def plug(self, *places: str) -> None:
        """Unplug them, and plug them in at these places."""
        shutil.rmtree(self.root, ignore_errors=True)
        tree = Tree(self.root)
        controller = tree.pci("0000:00:14.0", pci_class="0c0330", driver="xhci_hcd")
        for number, (serial, place) in enumerate(zip(SERIALS, places, strict=True)):
            path, _, numbers = place.partition(" ")
            node, port = Path(path).name, f"1-{number + 2}"
            device = tree.usb(
                controller, port, devnum=number + 4, vendor="10c4", product="ea60", serial=serial, interfaces=("ff",)
            )
            adapter = tree.device(f"{device}/{port}:1.0/{node}", driver="usb-serial/cp210x", port_number=0)
            tree.child(adapter, f"tty/{node}", group="class/tty", node=node, numbers=numbers)
            if not os.path.exists(path):
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(*map(int, numbers.split(":"))))

    def close(self) -> None:
        """Unplug them."""
        for place in (FIRST, SECOND):
            Path(place.partition(" ")[0]).unlink(missing_ok=True)
