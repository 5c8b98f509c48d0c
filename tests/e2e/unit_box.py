"""The unit with its DRA drop-in in a box that systemd has booted, beside a cluster of stand-ins in this process.

The kubelet's folder has the same path for both. The devices are misc devices of this machine, in a made-up /sys.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from controlplane.apiserver import write_kubeconfig
from tests.controlplane.scheduler.kit import claim, device_class, pod, request
from tests.e2e.conftest import CHECKOUT
from tests.e2e.debian_box import DebianBox
from tests.nodeplug.cluster import NODE, ClusterStand, using

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
    """Make a /sys with the devices; it is returned."""
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


class UnitBox:
    """The unit in a `box` that has the package unpacked, and `stand`, whose kubelet's folder is `kubelet`."""

    def __init__(self, box: DebianBox, stand: ClusterStand, kubelet: Path) -> None:
        self.stand = stand
        self._box = box
        self._kubelet = kubelet
        self._made: dict[str, str] = {}  # by function, the pod of this start
        self._starts = 0
        self._unit = "\n".join(self._text(x) for x in ("systemd/nodeplug.service", "systemd/drop-ins/dra.conf"))

    def rights(self) -> set[tuple[str, str]]:
        """The rights of the unit with its drop-in: directives with one of their values each."""
        return {(x, value.replace(str(self._kubelet), USUAL)) for x in _RIGHTS for value in self._values(x)}

    def without(self, right: tuple[str, str]) -> str:
        """Return a drop-in that leaves the unit all rights but one."""
        directive, taken = right[0], right[1].replace(USUAL, str(self._kubelet))
        left = " ".join(x for x in self._values(directive) if x != taken)
        # the box's /run is a mount of its own, which ProtectSystem=strict does not reach with systemd 252
        return f"ReadOnlyPaths=/run\n{directive}=\n{directive}={left}"

    def _values(self, directive: str) -> list[str]:
        lines = re.findall(rf"(?m)^{directive}=(.*)$", self._unit)
        return [value for line in lines for value in line.split()]

    async def prepare(self) -> None:
        """Install the unit, the configuration and the DeviceClass."""
        scratch = self._kubelet.parent
        write_kubeconfig(scratch / "kubeconfig", self.stand.server.url, self.stand.server.token)
        settings = {"kubeletRoot": str(self._kubelet), "nodeName": NODE, "kubeconfig": "/etc/nodeplug/kubeconfig"}
        files = {
            "/etc/systemd/system/nodeplug.service": self._text("systemd/nodeplug.service"),
            f"{_DROP_INS}/dra.conf": self._text("systemd/drop-ins/dra.conf"),
            "/etc/nodeplug/config.yaml": json.dumps({"settings": settings, "resources": _RESOURCES}),
            "/etc/nodeplug/kubeconfig": (scratch / "kubeconfig").read_text(),
        }
        for path, text in files.items():
            await self.run(f"mkdir -p $(dirname {path}) && cat >{path}", text)
        selector = 'device.attributes["nodeplug.dev"].resource == "example.com/kvm"'
        await self.stand.create(device_class("kvm.example.com", selector))
        await self.stand.until(lambda: self.stand.get("Node", NODE))

    async def start(self, drop_in: str) -> None:
        """Start the unit with nothing of a life before, and with one more drop-in."""
        self._starts += 1
        await self.run(f"cat >{_DROP_INS}/zz.conf", f"[Service]\n{drop_in}\n")
        await self.run("systemctl daemon-reload && systemctl start --no-block nodeplug")

    async def stop(self) -> None:
        """End the unit, and all that it has written; what its pods leave at the kubelet the next one gives back."""
        for name in self._made.values():
            await self.stand.delete("Pod", name)
        self._made.clear()
        await self.run("systemctl stop nodeplug; systemctl reset-failed nodeplug; journalctl --rotate --vacuum-time=1s")
        await self.run("rm -rf /var/lib/nodeplug /run/cdi/nodeplug*")
        for each in await self.stand.all("ResourceSlice"):
            await self.stand.delete("ResourceSlice", each["metadata"]["name"])

    async def log(self) -> str:
        """What the daemon and systemd have said since the start."""
        return await self.run("journalctl -u nodeplug -o cat --no-pager", fails=True)

    async def until_said(self, words: str) -> None:
        """Return once a line of the log has words, which are a regular expression."""

        async def said() -> bool:
            return re.search(words, await self.log()) is not None

        await self.until(said, words)

    async def run(self, command: str, answers: str = "", *, fails: bool = False) -> str:
        """Run a command in the box; return what it prints."""
        done = await asyncio.to_thread(self._box.run, command, "/", answers)
        assert fails or done.returncode == 0, (command, done.stdout)
        return done.stdout

    async def until(self, holds: Callable[[], Awaitable[object]], what: str) -> None:
        """Let the kubelet's time go on until it is so. Raises AssertionError with what was waited for, and the log."""
        try:
            async with asyncio.timeout(60):
                while not await holds():
                    await self.stand.clock.advance(1.0)
                    await asyncio.sleep(0.05)  # the daemon is another process
        except TimeoutError as error:
            raise AssertionError(f"{what}\n{await self.log()}") from error

    def functions(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """What is to work, each with what is true once it does; asking makes it happen."""
        return {
            "units": lambda: self._runs("fuse", "example.com/fuse"),
            "units with CDI": lambda: self._runs("tun", "example.com/tun"),
            "slices": lambda: self.stand.all("ResourceSlice"),
            "claims": self._claim_runs,
            "status": self._has_status,
            "events": self._hears,
        }

    async def _runs(self, name: str, resource: str) -> bool:
        if name not in self._made:
            self._made[name] = f"{name}-{self._starts}"
            await self.stand.create(pod(self._made[name], limits=[{resource: "1"}]))
        return await self._is_running(name)

    async def _claim_runs(self) -> bool:
        if "kvm" not in self._made:
            name = self._made["kvm"] = f"kvm-{self._starts}"
            made = claim(name, request(deviceClassName="kvm.example.com"))
            await self.stand.create(made, using(name, ["mine"], claims={"mine": name}))
        return await self._is_running("kvm")

    async def _is_running(self, name: str) -> bool:
        found = await self.stand.get("Pod", self._made[name])
        return bool(found.get("status", {}).get("phase") == "Running")

    async def _has_status(self) -> bool:
        return "example.com/fuse" in await self.run("/opt/nodeplug/bin/nodeplug status", fails=True)

    async def _hears(self) -> bool:
        return "registered" in (said := await self.log()) and "wait for a rescan" not in said

    def _text(self, file: str) -> str:
        return (CHECKOUT / file).read_text().replace(USUAL, str(self._kubelet))
