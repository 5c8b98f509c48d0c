"""A made-up host with many devices of the misc class, so that the daemon can be measured at any size."""

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
        (root / "dev" / name).write_text(f"c {numbers}\n")
    return [f"misc-res{n}-dev*" for n in range(resources)]
