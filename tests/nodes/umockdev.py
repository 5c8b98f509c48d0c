"""Build a tree for `Host(root)` from an umockdev recording. Its text format has lines for a path (P), device node (N),
property (E), attribute as text or hexadecimal digits (A, H), link (L), and symlink below /dev (S).

Recordings are made on machines with udevd. Properties that the kernel did not write are left out of the uevent files.
"""

import os
import re
from pathlib import Path

_BUSES = {"hid", "i2c", "pci", "platform", "scsi", "serio", "spi", "usb", "virtio"}  # all others are classes
_NOT_THE_KERNELS = re.compile(
    r"SUBSYSTEM|TAGS|CURRENT_TAGS|DEVLINKS|USEC_INITIALIZED|(ID|FPRINT|SYSTEMD|UDEV|LIBSANE|COLORD|GPHOTO|ADB|libsane|adb|GVFS|UPOWER|UDISKS)_.*"
)


def build(recording: Path, root: Path) -> None:
    """Write the recording's tree below `root`."""
    for folder in ("sys/devices", "proc", "dev"):
        (root / folder).mkdir(parents=True)
    for block in recording.read_text().split("\n\n"):
        lines = [(line[0], line[3:]) for line in block.splitlines() if line[1:3] == ": "]
        if lines:
            _device(root, lines)


def _device(root: Path, lines: list[tuple[str, str]]) -> None:
    syspath = next(root / f"sys{value}" for letter, value in lines if letter == "P")
    properties = dict(value.split("=", 1) for letter, value in lines if letter == "E")
    syspath.mkdir(parents=True, exist_ok=True)
    for letter, value in lines:
        name, _, content = value.partition("=")
        if letter == "A":
            _write(syspath / name, content.encode().decode("unicode_escape").encode("latin-1"))
        elif letter == "H":
            _write(syspath / name, bytes.fromhex(content))
        elif letter == "L" and not (syspath / name).is_symlink():
            (syspath / name).parent.mkdir(parents=True, exist_ok=True)
            (syspath / name).symlink_to(content)
        elif letter == "N":
            kind = "b" if properties["SUBSYSTEM"] == "block" else "c"
            node = root / "dev" / name
            _write(node, f"{kind} {properties['MAJOR']}:{properties['MINOR']}\n".encode())
    for letter, value in lines:
        if letter == "S":
            _link(root / "dev" / value, node)
    kernels = {key: value for key, value in properties.items() if not _NOT_THE_KERNELS.fullmatch(key)}
    if "DEVNAME" in kernels:
        kernels["DEVNAME"] = kernels["DEVNAME"].removeprefix("/dev/")
        _write(syspath / "dev", f"{kernels['MAJOR']}:{kernels['MINOR']}\n".encode())
    _write(syspath / "uevent", "".join(f"{key}={value}\n" for key, value in kernels.items()).encode())
    subsystem = properties["SUBSYSTEM"]
    listed = f"bus/{subsystem}/devices" if subsystem in _BUSES else f"class/{subsystem}"
    _link(root / "sys" / listed / syspath.name, syspath)
    _link(syspath / "subsystem", root / "sys" / listed.removesuffix("/devices"))


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))
