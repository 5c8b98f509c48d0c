"""Interfaces of claims that move: errors in their configuration, and another interface of the same hardware."""

from pathlib import Path
from typing import Any

import pytest

from dra_plugin.preparing.device_config import InvalidConfig, read
from dra_plugin.preparing.interface_moves import is_replaced
from dra_plugin.preparing.interface_record import Interface, LinkState
from hostdevices import Device
from netlink import Link
from tests.dra_plugin.preparing.world import CONFIG
from tests.hostdevices.tree import Tree

MAC = "02:00:00:00:00:11"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        (Link(7, "np0", parent="pci/0000:3b:00.2", permanent="02:00:00:00:00:77"), True),
        (Link(7, "np0", parent="pci/0000:3b:00.2", permanent=MAC), False),  # the interface itself
        (Link(7, "np0", parent="pci/0000:3b:00.2"), False),  # an older kernel does not report it
        (Link(7, "np0", parent="pci/0000:3b:00.3", permanent="02:00:00:00:00:77"), False),
        (Link(7, "np1", parent="pci/0000:3b:00.2", permanent="02:00:00:00:00:77"), False),  # the card's second port
    ],
)
def test_interface_recreated_on_its_hardware_counts_as_replaced(tmp_path: Path, link: Link, expected: bool) -> None:
    tree = Tree(tmp_path / "host")
    for port, name in enumerate(("np0", "np1")):
        tree.device(f"/sys/devices/pci0000:3b/0000:3b:00.2/net/{name}", group="class/net", dev_port=port)
    home = LinkState("np0", 1500, MAC)
    device = Device("nic-1", "nic", "np0", attributes={"devPort": 0})
    each = Interface(device, home, home, parent="pci/0000:3b:00.2", permanent=MAC)
    assert is_replaced(each, [link], tree.host) is expected


@pytest.mark.parametrize(
    ("interface", "words"),
    [
        ({"name": "a/b"}, "interface.name: a/b cannot be the name"),
        ({"name": "sixteen-letters-"}, "at most 15"),
        ({"name": "eth0"}, "every pod has an interface eth0 already"),
        ({"mtu": 67}, "interface.mtu"),
        ({"mac": "01:00:5e:00:00:01"}, "interface.mac: must be the address of one interface"),
        ({"mac": "00:00:00:00:00:00"}, "interface.mac"),
        ({"addresses": ["198.51.100.7"]}, r"addresses\[0\]: .* not an address with its prefix"),
        ({"addresses": ["198.51.100.0/24"]}, "its network's own address"),
        ({"addresses": ["127.0.0.1/8"]}, "a loopback address"),
        ({"addresses": ["fe80::1%1/64"]}, "not an address with its prefix"),
        ({"addresses": ["198.51.100.7/24", "198.51.100.7/25"]}, "appears twice"),
        ({"addresses": [f"198.51.100.{x}/24" for x in range(1, 10)]}, "addresses"),
        ({"speed": 1}, "speed"),
    ],
)
def test_invalid_interface_config_is_refused_with_its_path(interface: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        read(CONFIG | {"interface": interface}, from_class=False)
