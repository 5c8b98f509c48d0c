"""A small virtual machine, recorded with `nodeplug capture --mask`: every release must find the same in a capture."""

from collections import Counter
from pathlib import Path

import pytest

from hostdevices import Devnode, Host, Inventory, scan

FILE = Path(__file__).parents[1] / "data" / "virtual-machine.jsonl.gz"


@pytest.fixture(scope="module")
def machine() -> Inventory:
    return scan(Host(FILE))


def test_devices_of_every_kind_are_counted(machine: Inventory) -> None:
    kinds = Counter(device.kind for device in machine.devices.values())
    assert kinds == {"misc": 11, "block": 10, "pci": 6, "nic": 4, "tty": 1}
    assert machine.problems == ()


def test_misc_devices_have_their_nodes(machine: Inventory) -> None:
    assert machine.devices["misc-fuse"].devnodes == (Devnode("/dev/fuse", "c", 10, 229),)
    assert machine.devices["misc-tun"].devnodes == (Devnode("/dev/net/tun", "c", 10, 200),)


def test_disk_and_network_card_have_their_functions_as_parents(machine: Inventory) -> None:
    assert machine.devices["block-0000-00-02-0"].parents == ("pci-0000-00-02-0",)
    card = machine.devices["nic-0000-00-03-0"]
    assert card.parents == ("pci-0000-00-03-0",)
    assert card.attributes["uplink"] is True
    assert card.attributes["mac"] == "00:00:00:00:00:02"  # masked
    assert card.numa_nodes == ()
