"""Devices that resources identify by their USB port."""

from hostdevices import Device
from resources.groups import Within
from resources.resource import Resource
from resources.selector import Ids, Kinds
from tests.hostdevices.made import assigned, device, ids, unassigned_reason

PORT = "usb-port-0000-00-14-0-0-2"
BY_PORT = Resource("x/coral", Kinds(("usb",)), identity="port")


def coral(name: str) -> Device:
    return device(name, "usb", "/dev/bus/usb/001/004", parents=("pci-0000-00-14-0", PORT))


def test_device_has_the_id_of_its_port() -> None:
    for name in ("usb-1a6e-089a-x", "usb-18d1-9302-x"):
        found = assigned([coral(name)], BY_PORT)
        (offered,) = found.devices["x/coral"]
        assert (offered.id, offered.children, offered.parents) == (PORT, (name,), ("pci-0000-00-14-0",))
        assert found.owners == {PORT: "x/coral", name: "x/coral"}


def test_parts_of_a_device_are_allocated_with_its_port() -> None:
    tty = device("tty-x", "tty", "/dev/ttyACM0", parents=("usb-1", PORT, "tty-port-x"), numbers=(166, 0))
    found = assigned([coral("usb-1"), tty], BY_PORT, Resource("x/tty", Kinds(("tty",))))
    (offered,) = found.devices["x/coral"]
    assert (offered.children, len(offered.devnodes)) == (("usb-1", "tty-x"), 2)
    assert ids(found, "x/tty") == []
    alone = assigned([tty], Resource("x/tty", Kinds(("tty",)), identity="port"))
    assert ids(alone, "x/tty") == ["tty-port-x"]


def test_device_without_a_port_is_refused() -> None:
    found = assigned([device("usb-2", "usb")], BY_PORT)
    assert (
        unassigned_reason(found, "usb-2")
        == "x/coral: it is on no USB port, and `identity: port` identifies a device by its port"
    )


def test_device_of_another_resource_has_its_port_as_parent() -> None:
    """A lease has the port and the device of that time; a device there now has the port among its parents."""
    (plain,) = assigned([coral("usb-18d1-9302-x")], Resource("x/usb", Ids(("usb-18d1*",)))).devices["x/usb"]
    assert PORT in plain.parents
    grouped = assigned([coral("usb-1")], Resource("x/usb", Kinds(("usb",)), group=Within("usb"))).devices["x/usb"]
    assert PORT in grouped[0].parents
