"""The kernel's side of a made-up tree: the effects and errors of writes to the PCI bus's driver files.

Sources: drivers/base/bus.c (bind, unbind), drivers/pci/pci-driver.c (driver_override, drivers_probe), drivers/vfio
(groups, cdevs; unbinding waits until every process has closed the device).
"""

import errno
import os
import shutil
import threading
from pathlib import Path

from hostdevices import Host
from hostdevices.tree import Folder
from tests.hostdevices.tree import Tree

_PCI = "/sys/bus/pci"
VFIO = "vfio-pci"


class PciKernel(Folder):
    """A tree whose PCI functions change drivers. What a driver created for a function comes and goes with it."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.made = Tree(root)
        self.takes: dict[str, str] = {}  # by address: the driver that matches the function
        self.writes: list[str] = []
        self.left: int | None = None  # writes that succeed before all others fail
        self.held = threading.Event()  # set while no process has a vfio device open
        self.held.set()
        self.has_cdevs = True
        self._links: dict[str, list[tuple[str, str]]] = {}
        self._minor = 500
        for file in ("drivers_probe",):
            self.made.file(f"{_PCI}/{file}", "")
        self.made.node("/dev/vfio/vfio", "10:196")
        self.made.node("/dev/iommu", "10:127")
        self.load(VFIO)

    @property
    def host(self) -> Host:
        return Host(self.made.root, self)

    def load(self, driver: str) -> None:
        """Load a driver without binding it to a function."""
        for file in ("bind", "unbind"):
            self.made.file(f"{_PCI}/drivers/{driver}/{file}", "")

    def unload(self, driver: str) -> None:
        shutil.rmtree(self.made.path(f"{_PCI}/drivers/{driver}"))

    def function(self, address: str, group: int | None, driver: str = "", **facts: object) -> str:
        """Add a function that matches `driver`, and bind it."""
        if driver and not self.made.path(f"{_PCI}/drivers/{driver}").exists():
            self.load(driver)
        syspath = self.made.pci(address, driver=driver, driver_override="(null)", **facts)  # type: ignore[arg-type]
        if group is not None:
            self.made.iommu_group(group, syspath)
        self.takes[address] = driver
        return syspath

    def drivers(self) -> dict[str, tuple[str, str]]:
        """The driver and the override of each function."""
        return {x: (self._driver(x) or "", self._override(x)) for x in self.takes}

    def reboot(self) -> None:
        """Restore the state after a boot."""
        self.left = None
        for address, driver in self.takes.items():
            self.made.file(f"{self._folder(address)}/driver_override", "(null)")
            if self._driver(address) != driver:
                self._unbind(address)
                self._bind(address, driver)
        self.writes.clear()

    def write(self, path: str, data: bytes) -> None:
        """React to a write as the kernel does."""
        text, file = data.decode(), path.rpartition("/")[2]
        if self.left == 0:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.left = None if self.left is None else self.left - 1
        self.writes.append(f"{file} {text.strip()}".strip())
        if file == "driver_override":
            self.made.file(path, text.strip() or "(null)")
        elif file == "drivers_probe":
            self._probe(text)
        elif file == "unbind":
            if self._driver(text) != path.split("/")[-2]:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), path)
            if self._driver(text) == VFIO:
                self.held.wait(30)
            self._unbind(text)
        elif file == "bind":
            driver = path.split("/")[-2]
            if self._driver(text) or (self._override(text) or self.takes[text]) != driver:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), path)
            self._bind(text, driver)
        else:
            super().write(path, data)

    def _probe(self, address: str) -> None:
        driver = self._override(address) or self.takes[address]
        if not self._driver(address) and driver and self.made.path(f"{_PCI}/drivers/{driver}").exists():
            self._bind(address, driver)

    def _bind(self, address: str, driver: str) -> None:
        folder = self._folder(address)
        if driver:
            self.made.link(f"{folder}/driver", f"{_PCI}/drivers/{driver}")
        if driver == VFIO:
            self._minor += 1
            number = self._minor - 501
            if self.has_cdevs:
                cdev = f"{folder}/vfio-dev/vfio{number}"
                self.made.device(cdev, group="class/vfio-dev", node=f"vfio/devices/vfio{number}")
                self.made.link(f"{cdev}/device", folder)
            group = self._group(address)
            if not self.made.path(f"/sys/class/vfio/{group}").is_symlink():
                self.made.device(f"/sys/devices/virtual/vfio/{group}", group="class/vfio", node=f"vfio/{group}")
        elif (away := self._away(address)).exists():
            for each in away.iterdir():
                each.rename(self.made.path(folder) / each.name)
            away.rmdir()
            for link, target in self._links.pop(address):
                self.made.path(link).symlink_to(target)

    def _unbind(self, address: str) -> None:
        folder = self.made.path(self._folder(address))
        if (driver := self._driver(address)) is None:
            return
        (folder / "driver").unlink()
        if driver == VFIO:
            for cdev in (folder / "vfio-dev").glob("*"):
                self.made.path(f"/sys/class/vfio-dev/{cdev.name}").unlink()
                self.made.path(f"/dev/vfio/devices/{cdev.name}").unlink()
            shutil.rmtree(folder / "vfio-dev", ignore_errors=True)
            group = self._group(address)
            if not any(self._driver(x) == VFIO for x in self.takes if self._group(x) == group):
                self.made.path(f"/sys/class/vfio/{group}").unlink()
                self.made.path(f"/dev/vfio/{group}").unlink()
                shutil.rmtree(self.made.path(f"/sys/devices/virtual/vfio/{group}"))
            return
        away = self._away(address)
        away.mkdir(parents=True)
        self._links[address] = []
        for name in ("net", "drm", "nvme"):
            if not (folder / name).is_dir():
                continue
            for link in self.made.path("/sys/class").glob("*/*"):
                if Path(os.path.realpath(link)).is_relative_to(folder / name):
                    path = f"/{link.relative_to(self.made.root)}"
                    self._links[address].append((path, str(link.readlink())))
                    link.unlink()
            (folder / name).rename(away / name)

    def _driver(self, address: str) -> str | None:
        return self.host.link(f"{_PCI}/devices/{address}/driver")

    def _override(self, address: str) -> str:
        text = self.host.read(f"{_PCI}/devices/{address}/driver_override")
        return "" if text in (None, "(null)") else str(text)

    def _group(self, address: str) -> str | None:
        return self.host.link(f"{_PCI}/devices/{address}/iommu_group")

    def _folder(self, address: str) -> str:
        return self.host.resolve(f"{_PCI}/devices/{address}") or ""

    def _away(self, address: str) -> Path:
        return self.made.root / "away" / address
