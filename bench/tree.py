"""A simulated host with many devices of the misc class, so that the daemon can be measured at any size."""

import os
import stat
from pathlib import Path


def make_host(root: Path, resources: int, devices: int) -> list[str]:
    """Write sys/, proc/ and dev/ below `root`; return the globs that select each resource's device ids."""
    for folder in ("sys/class/misc", "sys/dev/char", "dev", "proc/sys/kernel/random"):
        (root / folder).mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("bench\n")
    for number in range(resources * devices):
        name, numbers = f"res{number // devices}-dev{number % devices}", f"10:{256 + number}"
        device = root / "sys/devices/virtual/misc" / name
        device.mkdir(parents=True)
        (device / "dev").write_text(f"{numbers}\n")
        (device / "uevent").write_text(f"MAJOR=10\nMINOR={256 + number}\nDEVNAME={name}\n")
        (root / "sys/class/misc" / name).symlink_to(f"../../devices/virtual/misc/{name}")
        (root / "sys/dev/char" / numbers).symlink_to(f"../../devices/virtual/misc/{name}")
        _make_node(root / "dev" / name, 256 + number)
    return [f"misc-res{n}-dev*" for n in range(resources)]


def _make_node(path: Path, minor: int) -> None:
    """Create a real device node, or its placeholder if that is not permitted."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(10, minor))
    except PermissionError:
        path.write_text(f"c 10:{minor}\n")
