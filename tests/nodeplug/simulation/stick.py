"""A USB stick that becomes another device at its port, as if a firmware were loaded.

A resource that identifies devices by themselves has one of the two faces; with `identity: port` it has the port.
"""

import shutil
from pathlib import Path

PORT = "usb-port-0000-00-14-0-0-2"
STICK_IDS = ("usb-1a6e-089a-0000-00-14-0-0-2", "usb-18d1-9302-0000-00-14-0-0-2")
STICK = (PORT, *STICK_IDS)
_HUB = Path("sys/devices/pci0000:00/0000:00:14.0/usb1")


class Stick:
    """The stick's files below a host's root; the kernel increases its number each time it is plugged in."""

    def __init__(self, root: Path) -> None:
        self.stick_id = STICK_IDS[0]
        self.is_there = False
        self._root, self._number = root, 1
        for folder in ("sys/bus/usb/devices", "dev/bus/usb/001", "sys/dev/char", str(_HUB)):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "sys/bus/usb/devices/usb1").symlink_to(f"../../../../{_HUB}")

    @property
    def path(self) -> str:
        """The path of its node while it is present."""
        return f"/dev/bus/usb/001/{self._number:03}"

    @property
    def numbers(self) -> str:
        """Its device number while it is present."""
        return f"c 189:{self._number - 1}" if self.is_there else ""

    def come(self) -> None:
        """Plug it in."""
        self._number, self.is_there = self._number + 1, True
        folder = self._root / _HUB / "1-2"
        folder.mkdir()
        _, vendor, product, *_ = self.stick_id.split("-")
        name, numbers = self.path.removeprefix("/dev/"), self.numbers.removeprefix("c ")
        files = {"idVendor": vendor, "idProduct": product, "busnum": "1", "devnum": str(self._number), "dev": numbers}
        for file, text in {**files, "uevent": f"DEVNAME={name}"}.items():
            (folder / file).write_text(f"{text}\n")
        (self._root / "dev" / name).write_text(f"{self.numbers}\n")
        (self._root / "sys/bus/usb/devices/1-2").symlink_to(f"../../../../{_HUB}/1-2")
        (self._root / "sys/dev/char" / numbers).symlink_to(f"../../../{_HUB}/1-2")

    def go(self) -> None:
        """Unplug it."""
        (self._root / self.path.removeprefix("/")).unlink()
        (self._root / "sys/dev/char" / self.numbers.removeprefix("c ")).unlink()
        (self._root / "sys/bus/usb/devices/1-2").unlink()
        shutil.rmtree(self._root / _HUB / "1-2")
        self.is_there = False

    def change_identity(self) -> None:
        """Unplug it, and plug in the other face."""
        self.go()
        self.stick_id = STICK_IDS[self.stick_id == STICK_IDS[0]]
        self.come()
