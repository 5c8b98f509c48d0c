"""Network cards of a multipath default route are uplinks; those of another table's default route might be."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from hostdevices import Device, Inventory, scan
from hostdevices.errors import HostExhausted
from nodeplug.default_routes import with_default_routes
from tests.descriptors import no_more_descriptors
from tests.hostdevices.tree import Tree
from tests.network import ip, needs_root, own_network, show_in_sysfs

pytestmark = needs_root
CARDS = ("w0", "w1", "w2", "w3")


def show(tree: Tree, *names: str) -> None:
    for name in names:
        show_in_sysfs(tree.root, name)
    (tree.root / "sys/devices/virtual/net/lo").mkdir(parents=True)
    (tree.root / "sys/class/net/lo").symlink_to("../../devices/virtual/net/lo")


def marked(tree: Tree) -> tuple[set[str], set[str]]:
    """The uplinks, and the interfaces with a default route of another table."""
    found = with_default_routes(tree.host, scan(tree.host))
    assert found.problems == ()
    uplinks, others = (
        {x.name for x in found.devices.values() if x.attributes.get(name) is True}
        for name in ("uplink", "otherDefaultRoute")
    )
    return uplinks, others


@contextmanager
def cards(tree: Tree, *names: str) -> Iterator[None]:
    """Interfaces that are up, w0 with 198.51.0.1/24 and so on."""
    with own_network():
        for number, name in enumerate(names):
            ip("link", "add", name, "type", "veth", "peer", "name", f"{name}p")
            ip("addr", "add", f"198.51.{number}.1/24", "dev", name)
            for end in (name, f"{name}p"):
                ip("link", "set", end, "up")
        show(tree, *names, *(f"{name}p" for name in names))
        yield


def test_interfaces_of_default_routes_are_marked_with_their_lower_devices(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    with cards(tree, *CARDS):
        (tree.root / "sys/devices/virtual/net/w2/lower_w2p").symlink_to("../w2p")
        assert marked(tree) == (set(), set())
        first, second = ["via", "198.51.0.2", "dev", "w0"], ["via", "198.51.1.2", "dev", "w1"]
        ip("route", "add", "default", "nexthop", *first, "nexthop", *second)
        ip("route", "add", "default", "via", "198.51.2.2", "dev", "w2", "table", "100")
        assert marked(tree) == ({"w0", "w1"}, {"w2", "w2p"})
        ip("route", "add", "default", "via", "198.51.0.2", "dev", "w0", "table", "1000")
        assert marked(tree) == ({"w0", "w1"}, {"w2", "w2p"})
        with no_more_descriptors(), pytest.raises(HostExhausted):
            with_default_routes(tree.host, Inventory())
        (tree.root / "sys/class/net/w3").unlink()  # these are not the interfaces of our namespace
        assert marked(tree) == (set(), set())


@pytest.mark.parametrize("is_suspect", [False, True])
@pytest.mark.parametrize(("table", "mark"), [("main", "uplink"), ("100", "otherDefaultRoute")])
def test_pci_function_is_marked_when_its_interface_has_a_default_route(
    tmp_path: Path, is_suspect: bool, table: str, mark: str
) -> None:
    tree = Tree(tmp_path)
    with own_network():
        ip("link", "add", "w0", "type", "veth", "peer", "name", "w0p")
        for end in ("w0", "w0p"):
            ip("link", "set", end, "up")
        ip("addr", "add", "198.51.0.1/24", "dev", "w0")
        ip("route", "add", "default", "via", "198.51.0.2", "dev", "w0", "table", table)
        show(tree, "w0p")
        function = tree.pci("0000:3b:00.0", pci_class="020000", driver="ice")
        tree.child(function, "net/w0", group="class/net", address="02:00:00:00:00:01", flags="0x1003", type=1)
        facts = {"uplinkUnknown": True} if is_suspect else {}
        card = Device(id="pci-0000-3b-00-0", kind="pci", name="0000:3b:00.0", syspath=function, attributes=facts)
        found = with_default_routes(tree.host, Inventory.of([card])).devices["pci-0000-3b-00-0"]
    assert found.attributes == ({"uplink": True} if mark == "uplink" else {**facts, mark: True})


def test_nexthop_objects_are_resolved(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    with cards(tree, "w0", "w1"):
        Path("/proc/sys/net/ipv4/nexthop_compat_mode").write_text("0")
        for number in (0, 1):
            ip("nexthop", "add", "id", f"{number + 1}", "via", f"198.51.{number}.2", "dev", f"w{number}")
        ip("nexthop", "add", "id", "10", "group", "1/2")
        ip("route", "add", "default", "nhid", "2", "table", "100")
        assert marked(tree) == (set(), {"w1"})
        ip("route", "add", "default", "nhid", "10")
        assert marked(tree) == ({"w0", "w1"}, set())


def test_interface_added_during_the_listing_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path)
    with cards(tree, "w0"):
        ip("route", "add", "default", "via", "198.51.0.2", "dev", "w0", "table", "100")
        listed = iter([[(1, "lo")]])
        monkeypatch.setattr(socket, "if_nameindex", partial(next, listed, socket.if_nameindex()))
        assert marked(tree) == (set(), {"w0"})
