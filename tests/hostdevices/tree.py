"""Builds small /sys, /proc and /dev trees for `Host(root)`, laid out as the kernel lays them out.

Syspaths are given as the host has them (/sys/devices/...). Nodes are text files as a capture writes them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostdevices import Host


class Tree:
    """A tree below a folder of a test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._minor = 0
        for folder in ("sys/devices", "proc", "dev"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    @property
    def host(self) -> Host:
        """The host that has this tree."""
        return Host(self.root)

    def path(self, path: str) -> Path:
        """Where the host's `path` lies on this machine."""
        return self.root / path.removeprefix("/")

    def file(self, path: str, content: str | bytes | int) -> None:
        """Write a file; text ends with a newline as the kernel's does."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())

    def link(self, path: str, target: str) -> None:
        """Make a relative link from one host path to another."""
        link = self.path(path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.path(target), link.parent))

    def node(self, path: str, numbers: str, kind: str = "c") -> None:
        """Make a device node."""
        self.file(path, f"{kind} {numbers}")

    def device(
        self,
        syspath: str,
        *,
        group: str = "",
        node: str = "",
        numbers: str = "",
        kind: str = "c",
        driver: str = "",
        uevent: Mapping[str, str] | None = None,
        **files: str | bytes | int,
    ) -> str:
        """Make a device and return its syspath.

        `group` is where it is listed ("class/net", "bus/pci/devices"), `node` its name below /dev, `driver` is
        "bus/name" ("pci/nvme"). Names of files may have `__` for a slash.
        """
        self.path(syspath).mkdir(parents=True, exist_ok=True)
        name = syspath.rpartition("/")[2]
        variables = dict(uevent or {})
        if group:
            self.link(f"/sys/{group}/{name}", syspath)
            self.link(f"{syspath}/subsystem", f"/sys/{group.removesuffix('/devices')}")
        if node:
            numbers = numbers or f"240:{self._next_minor()}"
            variables = {"MAJOR": numbers.split(":")[0], "MINOR": numbers.split(":")[1], "DEVNAME": node, **variables}
            self.file(f"{syspath}/dev", numbers)
            self.node(f"/dev/{node}", numbers, kind)
            self.link(f"/sys/dev/{'char' if kind == 'c' else 'block'}/{numbers}", syspath)
        if driver:
            bus, _, driver_name = driver.partition("/")
            self.link(f"{syspath}/driver", f"/sys/bus/{bus}/drivers/{driver_name}")
        self.file(f"{syspath}/uevent", "\n".join(f"{key}={value}" for key, value in variables.items()))
        for file, content in files.items():
            self.file(f"{syspath}/{file.replace('__', '/')}", content)
        return syspath

    def child(self, parent: str, below: str, **facts: Any) -> str:
        """Make a class device below `parent` with its `device` link: `child(pci, "net/eth0", group="class/net")`."""
        syspath = self.device(f"{parent}/{below}", **facts)
        self.link(f"{syspath}/device", parent)
        return syspath

    def pci(
        self,
        address: str,
        *,
        root: str = "pci0000:00",
        bridges: tuple[str, ...] = (),
        vendor: str = "8086",
        device: str = "1234",
        pci_class: str = "ff0000",
        driver: str = "",
        numa_node: int = -1,
        **files: Any,
    ) -> str:
        """Make a PCI function and return its syspath."""
        return self.device(
            "/".join(("/sys/devices", root, *bridges, address)),
            group="bus/pci/devices",
            driver=driver and f"pci/{driver}",
            vendor=f"0x{vendor}",
            device=f"0x{device}",
            subsystem_vendor="0x1028",
            subsystem_device="0x0001",
            revision="0x01",
            numa_node=numa_node,
            config=bytes.fromhex(vendor)[::-1] + bytes.fromhex(device)[::-1] + b"\x06\x04\x10\x00",
            **{**files, "class": f"0x{pci_class}"},
        )

    def virtual_function(self, physical: str, address: str, index: int, **facts: Any) -> str:
        """Make a virtual function of `physical` beside it and return its syspath."""
        syspath = self.pci(address, root=physical.split("/")[3], **facts)
        self.link(f"{syspath}/physfn", physical)
        self.link(f"{physical}/virtfn{index}", syspath)
        return syspath

    def iommu_group(self, number: int, *members: str) -> None:
        """Put devices into an IOMMU group."""
        for member in members:
            self.link(f"/sys/kernel/iommu_groups/{number}/devices/{member.rpartition('/')[2]}", member)
            self.link(f"{member}/iommu_group", f"/sys/kernel/iommu_groups/{number}")

    def usb(
        self,
        controller: str,
        name: str,
        *,
        devnum: int = 0,
        vendor: str = "1a86",
        product: str = "7523",
        interfaces: tuple[str, ...] = (),
        **files: Any,
    ) -> str:
        """Make a USB device below its hubs (`1-2.3` is below `1-2`) with interfaces of the given classes."""
        bus, _, chain = name.partition("-")
        devnum = devnum or self._next_minor()
        ports = chain.split(".")
        hubs = [f"{bus}-{'.'.join(ports[: depth + 1])}" for depth in range(len(ports))]
        syspath = self.device(
            "/".join((controller, f"usb{bus}", *hubs)),
            group="bus/usb/devices",
            node=f"bus/usb/{int(bus):03}/{devnum:03}",
            numbers=f"189:{(int(bus) - 1) * 128 + devnum - 1}",
            driver="usb/usb",
            uevent={"DEVTYPE": "usb_device"},
            idVendor=vendor,
            idProduct=product,
            bDeviceClass="00",
            bcdDevice="0264",
            speed="12",
            **files,
        )
        for number, interface_class in enumerate(interfaces):
            self.device(f"{syspath}/{name}:1.{number}", group="bus/usb/devices", bInterfaceClass=interface_class)
        return syspath

    def _next_minor(self) -> int:
        self._minor += 1
        return self._minor
