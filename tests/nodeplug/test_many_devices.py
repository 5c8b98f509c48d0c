"""The daemon's memory for each of thousands of devices."""

import tracemalloc
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkpoint import Ledger
from deviceplugin import DevicePlugins, Paths
from deviceplugin.descriptions import Descriptions, SpecSettings
from folderwatch import FolderWatcher
from hostdevices import Health, Scanner
from hostdevices.health import HealthTracker
from hostdevices.presence import Presence
from resources.assignment import assign
from resources.resource import CdiPolicy, Resource
from resources.selector import Kinds
from tests.deviceplugin.host import MadeUpHost

DEVICES = 200


@pytest.mark.parametrize("cdi", ["auto", True, False])
async def test_memory_of_each_device_is_bounded(tmp_path: Path, cdi: CdiPolicy) -> None:
    """A device's strings, attributes and nodes take 850 bytes; all else must be shared, or created when needed."""
    made_up = MadeUpHost(tmp_path / "host", *(f"device-{number}" for number in range(DEVICES)))
    resource, host = Resource("example.com/many", Kinds(("misc",)), cdi=cdi, dangerous=True), made_up.host
    scanner, health, presence = Scanner(host), HealthTracker(), Presence(host)
    ledger, watcher = Ledger(tmp_path / "state", "boot"), FolderWatcher()
    paths = Paths(tmp_path / "device-plugins", tmp_path / "registry", tmp_path / "cdi")
    plugins = DevicePlugins([resource], host, presence, ledger, paths, watcher)
    Scanner(MadeUpHost(tmp_path / "other", "a").host).scan()  # imports, which are not the devices'
    tracemalloc.start()
    for _ in range(2):  # a second time, to find duplicates
        inventory = health.sample(host, scanner.scan())
        assignment = assign(inventory, [resource])
        presence.update(inventory.devices, assignment.devices[resource.name])
        plugins.update(assignment.devices)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(assignment.devices[resource.name]) == DEVICES
    assert kept / DEVICES < 1600
    assert not health._histories


def test_descriptions_differ_only_by_what_specs_contain(tmp_path: Path) -> None:
    devices = MadeUpHost(tmp_path, "a", "b").devices()
    terms = SpecSettings("rw", None, with_driver=False)
    ill = {i: replace(device, health=Health(False, "too hot")) for i, device in devices.items()}
    before = Descriptions("example.com/many", terms, devices)
    assert before == Descriptions("example.com/many", terms, ill)
    assert before.has(terms, ill["misc-a"])
    assert not before.has(SpecSettings("r", None, with_driver=False), ill["misc-a"])
    moved = replace(devices["misc-a"], devnodes=devices["misc-b"].devnodes)
    assert not before.has(terms, moved)
    assert before != Descriptions("example.com/many", terms, devices | {"misc-a": moved})
    assert before != Descriptions("example.com/many", terms, dict(reversed(devices.items())))
    held = {"misc-c": terms.describe(moved)}
    assert before != Descriptions("example.com/many", terms, devices, held)
    assert [x.name for x in Descriptions("example.com/many", terms, devices, held).spec().devices] == [
        "misc-a",
        "misc-b",
        "misc-a",
    ]
