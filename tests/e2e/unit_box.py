"""The unit with its DRA drop-in on a machine booted by systemd, with a cluster of stand-ins in this process.

The kubelet's folder has the same path for both. The devices are misc devices of this machine, in a made-up /sys.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from controlplane.apiserver import write_kubeconfig
from tests.e2e.conftest import CHECKOUT
from tests.e2e.debian_box import DebianBox
from tests.e2e.functions import Functions
from tests.nodeplug.cluster import NODE, NodeCluster

USUAL = "/var/lib/kubelet"
DEVICES = {"fuse": 229, "tun": 200, "kvm": 232}
_RESOURCES = [
    {"name": "example.com/fuse", "select": "fuse"},
    {"name": "example.com/tun", "select": "tun", "cdi": True},
    {"name": "example.com/kvm", "select": "kvm", "api": "dra"},
]
_RIGHTS = ("ReadWritePaths", "StateDirectory", "RestrictAddressFamilies")
_DROP_INS = "/etc/systemd/system/nodeplug.service.d"


def made_up_sys(root: Path) -> Path:
    """Create a /sys with the devices, and return it."""
    for name, minor in DEVICES.items():
        device = root / "devices/virtual/misc" / name
        device.mkdir(parents=True)
        (device / "dev").write_text(f"10:{minor}\n")
        node = "net/tun" if name == "tun" else name
        (device / "uevent").write_text(f"MAJOR=10\nMINOR={minor}\nDEVNAME={node}\n")
        for folder, link in (("class/misc", name), ("dev/char", f"10:{minor}")):
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / link).symlink_to(f"../../devices/virtual/misc/{name}")
        (device / "subsystem").symlink_to("../../../../class/misc")
    return root


def debian_package(folder: Path) -> Path:
    """Build the package as `make deb` does."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    build = [sys.executable, "-m", "deploy.debian_package", str(wheel), str(folder)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (made,) = folder.glob("*.deb")
    return made


class UnitBox(Functions):
    """The unit in a `box` with the unpacked package; `kubelet` is the folder of the kubelet of `cluster`."""

    def __init__(self, box: DebianBox, cluster: NodeCluster, kubelet: Path) -> None:
        super().__init__(cluster)
        self._box = box
        self._kubelet = kubelet
        self._started = 0.0  # in seconds since the epoch
        self._unit = "\n".join(self._text(x) for x in ("systemd/nodeplug.service", "systemd/drop-ins/dra.conf"))

    def rights(self) -> set[tuple[str, str]]:
        """The rights of the unit with its drop-in: pairs of a directive and one of its values."""
        return {(x, value.replace(str(self._kubelet), USUAL)) for x in _RIGHTS for value in self._values(x)}

    def without(self, right: tuple[str, str]) -> str:
        """Return a drop-in that removes one of the unit's rights."""
        directive, taken = right[0], right[1].replace(USUAL, str(self._kubelet))
        left = " ".join(x for x in self._values(directive) if x != taken)
        # the box's /run is a separate mount, which ProtectSystem=strict of systemd 252 does not make read-only
        return f"ReadOnlyPaths=/run\n{directive}=\n{directive}={left}"

    def _values(self, directive: str) -> list[str]:
        lines = re.findall(rf"(?m)^{directive}=(.*)$", self._unit)
        return [value for line in lines for value in line.split()]

    async def prepare(self) -> None:
        """Install the unit, the configuration and the DeviceClass."""
        scratch = self._kubelet.parent
        write_kubeconfig(scratch / "kubeconfig", self.cluster.server.url, self.cluster.server.token)
        settings = {"kubeletRoot": str(self._kubelet), "nodeName": NODE, "kubeconfig": "/etc/nodeplug/kubeconfig"}
        files = {
            "/etc/systemd/system/nodeplug.service": self._text("systemd/nodeplug.service"),
            f"{_DROP_INS}/dra.conf": self._text("systemd/drop-ins/dra.conf"),
            "/etc/nodeplug/config.yaml": json.dumps({"settings": settings, "resources": _RESOURCES}),
            "/etc/nodeplug/kubeconfig": (scratch / "kubeconfig").read_text(),
        }
        for path, text in files.items():
            await self.run(f"mkdir -p $(dirname {path}) && cat >{path}", text)
        await self.prepare_claims()

    async def start(self, drop_in: str) -> None:
        """Start the unit without state of an earlier run, and with an additional drop-in."""
        self._starts += 1
        self._started = time.time()
        await self.run(f"cat >{_DROP_INS}/zz.conf", f"[Service]\n{drop_in}\n")
        await self.run("systemctl daemon-reload && systemctl start --no-block nodeplug")

    async def stop(self) -> None:
        """Stop the unit and remove its files. The next one unprepares what its pods leave at the kubelet."""
        await self.end_pods()
        await self.run("systemctl stop nodeplug; systemctl reset-failed nodeplug || :")  # it might not have failed
        await self.run("rm -rf /var/lib/nodeplug /run/cdi/nodeplug*")
        await self.forget_slices()

    async def log(self) -> str:
        """The log of the daemon and of systemd since the start."""
        return await self.run(f"journalctl -u nodeplug -o cat --no-pager --since @{self._started:.6f}", fails=True)

    async def run(self, command: str, answers: str = "", *, fails: bool = False) -> str:
        """Run a command in the box; return its output."""
        done = await asyncio.to_thread(self._box.run, command, "/", answers)
        assert fails or done.returncode == 0, (command, done.stdout)
        return done.stdout

    def functions(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """The functions of `Functions`, and `nodeplug status`."""
        return {**super().functions(), "status": self._has_status}

    async def _has_status(self) -> bool:
        return "example.com/fuse" in await self.run("/opt/nodeplug/bin/nodeplug status", fails=True)

    def _text(self, file: str) -> str:
        return (CHECKOUT / file).read_text().replace(USUAL, str(self._kubelet))
