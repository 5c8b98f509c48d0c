"""Identifies a claim's interface after any change by its pod."""

from msgspec import structs

from dra_plugin.preparing.interface_record import Interface, LinkState, mark, state_from_mark
from hostdevices import Device
from netlink import Link

HOME = LinkState("ens1f0v3", 1500, "02:00:00:00:00:01")
MARK = mark("ens1f0v3", 1500, "02:00:00:00:00:01", "uid-1")
INSIDE = LinkState("data0", 9000, "02:00:00:00:00:02", MARK)
NIC = Device("nic-0000-3b-00-5", "nic", "ens1f0v3")
HARDWARE = Interface(NIC, HOME, INSIDE, parent="pci/0000:3b:00.5", permanent="02:00:00:00:00:01")
VIRTUAL = Interface(NIC, HOME, INSIDE, kind="macvlan")


def test_hardware_interface_is_identified_by_its_parent_device() -> None:
    changed = Link(7, "eth7", mac="02:00:00:00:00:77", parent=HARDWARE.parent, permanent=HARDWARE.permanent)
    assert HARDWARE.matches(changed)
    assert HARDWARE.matches(structs.replace(changed, permanent=""))  # older kernels do not say
    assert not HARDWARE.matches(structs.replace(changed, permanent="02:00:00:00:00:aa"))  # the card's other port
    forged = Link(8, "data0", mac=INSIDE.mac, alias=MARK)
    assert not HARDWARE.matches(forged)


def test_virtual_interface_is_identified_by_its_mark_or_name() -> None:
    moved = Link(7, "data0", mac="02:00:00:00:00:77", alias=MARK, kind="macvlan")
    assert VIRTUAL.matches(moved)
    assert not VIRTUAL.matches(structs.replace(moved, alias=mark("ens1f0v3", 1500, HOME.mac, "uid-2")))
    fresh = Link(7, "ens1f0v3", mac=HOME.mac, kind="macvlan")
    assert VIRTUAL.matches(fresh)
    assert not VIRTUAL.matches(structs.replace(fresh, mac="02:00:00:00:00:77"))
    assert not VIRTUAL.matches(structs.replace(fresh, kind="veth"))


def test_mark_contains_the_original_state() -> None:
    assert state_from_mark(MARK) == HOME
    assert state_from_mark(mark("a,b", 1500, "", "u")) is None  # a name with a comma is nobody's
    assert state_from_mark("of the operator's") is None
