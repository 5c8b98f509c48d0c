"""The content of a response, without sockets."""

from deviceplugin.descriptions import Descriptions, SpecSettings
from hostdevices import Device, Devnode


def test_cdi_spec_has_the_target_of_a_linked_node() -> None:
    # Container runtimes follow links in device plugin responses, but not in CDI specs.
    link, node = "/dev/serial/by-id/usb-FTDI-if00", "/dev/ttyUSB0"
    linked = Device(id="path-a", kind="path", name="a", devnodes=(Devnode(link, "c", 188, 0, target=node),))
    plain = Device(id="path-b", kind="path", name="b", devnodes=(Devnode("/dev/fuse", "c", 10, 229),))
    spec = Descriptions(
        "example.com/serial", SpecSettings("rw", None, False), {x.id: x for x in (linked, plain)}
    ).spec()
    nodes = [(x.path, x.host_path) for device in spec.devices for x in device.container_edits.device_nodes]
    assert nodes == [(link, node), ("/dev/fuse", "")]
