"""The first scan of a device: faults that are present then count at once."""

import json
from pathlib import Path

import pytest

from hostdevices import Host
from nodeplug.config import loads
from nodeplug.config_file import ConfigFile
from nodeplug.daemon import Daemon
from nodeplug.offering import Offered
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.tree import Tree
from tests.running import running, until

FUSE = {"name": "example.com/fuse", "select": "fuse"}
CARD = {"name": "example.com/card", "select": {"kind": "pci"}}
PAIR = {
    "name": "example.com/card",
    "select": {"kind": "misc"},
    "group": {"paths": [{"path": "/dev/left*"}, {"path": "/dev/right*"}]},
}
BROKEN = "its power management failed (runtime status: error)"


class OfferedHealth:
    """A daemon, and the health of cards in each of its updates."""

    def __init__(self, folder: Path, kubelet: Path, root: Path) -> None:
        self.path = folder / "config.yaml"
        self.reasons: list[str] = []
        self.changes = 0
        self._settings = {
            "kubeletRoot": str(kubelet),
            "stateDirectory": str(folder / "state"),
            "cdiDirectory": str(folder / "cdi"),
            "rescanSeconds": 1,
        }
        self._tree = Tree(root)
        self._host = Host(root)

    def write(self, *resources: object) -> None:
        self.path.write_text(json.dumps({"settings": self._settings, "resources": resources}))

    def daemon(self, *resources: object) -> Daemon:
        self.write(*resources)
        content = self.path.read_bytes()
        config = loads(content, str(self.path))
        return Daemon(config, self._host, self._note, ConfigFile(self.path, config, content))

    def _note(self, offered: Offered, _: object) -> None:
        self.reasons += [device.health.reason for device in offered.assignment.devices.get("example.com/card", ())]
        self.changes += 1

    def plug_in(self, status: str = "error") -> str:
        """Plug in a broken card; return its syspath."""
        self.set_status(status)
        return self._tree.pci("0000:00:05.0")

    def set_status(self, status: str) -> None:
        self._tree.file("/sys/devices/pci0000:00/0000:00:05.0/power/runtime_status", status)

    def remove(self, name: str) -> None:
        self._tree.path(f"/sys/class/misc/{name}").unlink()
        self._tree.path(f"/dev/{name}").unlink()

    def add(self, below: str, name: str) -> None:
        self._tree.device(f"{below}/misc/{name}", group="class/misc", node=name)


@pytest.fixture
def offering(made_up: MadeUpHost, tmp_path: Path, socket_dir: Path) -> OfferedHealth:
    return OfferedHealth(tmp_path, socket_dir, made_up.root)


async def test_faulty_device_is_never_healthy_after_hotplug(offering: OfferedHealth) -> None:
    async with running(offering.daemon(FUSE, CARD).run()):
        await until(lambda: offering.changes)
        offering.plug_in()
        await until(lambda: BROKEN in offering.reasons)
    assert set(offering.reasons) == {BROKEN}


async def test_faulty_device_is_never_healthy_when_newly_configured(
    offering: OfferedHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeplug.config_file.DEBOUNCE", 0.01)
    offering.plug_in()
    async with running(offering.daemon(FUSE).run()):
        await until(lambda: offering.changes)
        offering.write(FUSE, CARD)
        await until(lambda: BROKEN in offering.reasons)
    assert set(offering.reasons) == {BROKEN}


async def test_faulty_device_is_never_healthy_when_its_group_becomes_complete(
    offering: OfferedHealth,
) -> None:
    offering.add(offering.plug_in("active"), "left0")
    offering.add("/sys/devices/virtual", "other")
    async with running(offering.daemon(PAIR).run()):
        await until(lambda: offering.changes)
        offering.remove("other")  # facts about missing devices are dropped after a while
        await until(lambda: offering.changes >= 2)
        assert not offering.reasons
        offering.set_status("error")
        offering.add("/sys/devices/virtual", "right0")
        await until(lambda: any(BROKEN in reason for reason in offering.reasons))
    assert all(BROKEN in reason for reason in offering.reasons)
