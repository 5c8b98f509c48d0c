"""A small made-up host: misc devices with nodes, in the format of a capture."""

from pathlib import Path

from hostdevices import Device, Host, scan


class MadeUpHost:
    """A tree below `root`; devices can be added and removed."""

    def __init__(self, root: Path, *names: str) -> None:
        self.root = root
        for folder in ("sys/class/misc", "sys/dev/char", "dev", "proc"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(names):
            self.add(name, minor=number)

    @property
    def host(self) -> Host:
        return Host(self.root)

    def add(self, name: str, minor: int) -> None:
        device = self.root / "sys/devices/virtual/misc" / name
        device.mkdir(parents=True)
        (device / "dev").write_text(f"10:{minor}\n")
        (device / "uevent").write_text(f"MAJOR=10\nMINOR={minor}\nDEVNAME={name}\n")
        (self.root / "sys/class/misc" / name).symlink_to(f"../../devices/virtual/misc/{name}")
        self.renumber(name, minor)

    def renumber(self, name: str, minor: int) -> None:
        """Change the device that the node opens, after a scan."""
        (self.root / "dev" / name).write_text(f"c 10:{minor}\n")
        link = self.root / f"sys/dev/char/10:{minor}"
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../devices/virtual/misc/{name}")

    def remove_node(self, name: str) -> None:
        (self.root / "dev" / name).unlink()

    def unplug(self, name: str) -> None:
        (self.root / "sys/class/misc" / name).unlink()
        self.remove_node(name)

    def devices(self) -> dict[str, Device]:
        return dict(scan(self.host).devices)
