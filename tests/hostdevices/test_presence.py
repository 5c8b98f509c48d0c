"""Allocated devices that are found again: with their current nodes, at the container paths of the allocation."""

from pathlib import Path

import pytest
from msgspec import structs

from hostdevices import Device, Devnode, scan
from hostdevices.presence import Presence, Seen
from tests.descriptors import no_more_descriptors
from tests.hostdevices.tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def card(number: int, *inside: str) -> Device:
    """A sound card with the kernel's current number; `inside`: the container paths of its control and capture nodes."""
    nodes = (
        Devnode(f"/dev/snd/controlC{number}", "c", 116, 32 * number),
        Devnode(f"/dev/snd/pcmC{number}D0c", "c", 116, 32 * number + 24),
    )
    placed = (structs.replace(x, container_path=path) for x, path in zip(nodes, inside or ("", ""), strict=True))
    return Device("sound-a", "sound", f"card{number}", devnodes=tuple(placed))


def found(tree: Tree, allocated: Device, now: Device) -> list[tuple[str, str]] | None:
    """Return the current node and the container path of each node of an allocated device."""
    presence = Presence(tree.host)
    presence.update({now.id: now}, [now])
    device = presence.find(Seen(allocated, ()))
    return None if device is None else [(x.path, x.container_path) for x in device.devnodes]


def test_device_is_not_reported_gone_without_a_free_descriptor(tree: Tree) -> None:
    tree.device("/sys/devices/virtual/misc/fuse", group="class/misc", node="fuse", numbers="10:229")
    presence, (device,) = Presence(tree.host), scan(tree.host).devices.values()
    presence.update({device.id: device}, [device])
    assert presence.change_since_scan(device) == ""
    with no_more_descriptors():
        assert presence.change_since_scan(device).startswith("the host cannot be read: Too many open files")
    assert presence.change_since_scan(device) == ""


def test_renumbered_device_keeps_its_container_paths(tree: Tree) -> None:
    allocated = card(0, "/dev/c", "/dev/p")
    for now in (card(3), card(3, "/dev/other", ""), card(3, "/dev/p", "/dev/c")):
        assert found(tree, allocated, now) == [("/dev/snd/controlC3", "/dev/c"), ("/dev/snd/pcmC3D0c", "/dev/p")]


def test_device_allocated_without_container_paths_has_host_paths(tree: Tree) -> None:
    assert found(tree, card(0), card(3, "/dev/c", "/dev/p")) == [
        ("/dev/snd/controlC3", ""),
        ("/dev/snd/pcmC3D0c", ""),
    ]


def test_later_node_is_not_found_as_allocated_node(tree: Tree) -> None:
    allocated = Device(
        "tty-a", "tty", "a", devnodes=(Devnode("/dev/ttyUSB0", "c", 188, 0, container_path="/dev/zigbee"),)
    )
    two = tuple(Devnode(f"/dev/ttyUSB{i}", "c", 188, i) for i in (0, 1))
    assert found(tree, allocated, structs.replace(allocated, devnodes=two)) == [("/dev/ttyUSB0", "/dev/zigbee")]
    others = tuple(Devnode(f"/dev/ttyUSB{i}", "c", 188, i) for i in (5, 6))
    assert found(tree, allocated, structs.replace(allocated, devnodes=others)) is None


def test_single_node_is_found_under_a_different_name(tree: Tree) -> None:
    allocated = Device(
        "tty-a", "tty", "a", devnodes=(Devnode("/dev/ttyUSB0", "c", 188, 0, container_path="/dev/zigbee"),)
    )
    now = structs.replace(allocated, devnodes=(Devnode("/dev/ttyACM4", "c", 166, 4),))
    assert found(tree, allocated, now) == [("/dev/ttyACM4", "/dev/zigbee")]


def without_last(device: Device) -> Device:
    """The device that a resource offers if its `nodes` omit the last one."""
    return structs.replace(device, devnodes=device.devnodes[:-1])


def found_after_change(
    tree: Tree, allocated: Device, before: list[Device], *now: Device, offered: list[Device]
) -> list[str] | None:
    """Return the nodes of a device that was offered in part, or with its parts, after the host changed."""
    presence = Presence(tree.host)
    presence.update({x.id: x for x in before}, [allocated])
    seen = presence.seen(allocated)
    presence.update({x.id: x for x in now}, offered)
    device = presence.find(seen)
    return None if device is None else [x.path for x in device.devnodes]


def test_partly_allocated_device_is_found_with_only_that_part(tree: Tree) -> None:
    allocated = without_last(card(0))
    for offered in ([], [card(3)], [structs.replace(card(3), devnodes=card(3).devnodes[1:])], [without_last(card(3))]):
        assert found_after_change(tree, allocated, [card(0)], card(3), offered=offered) == ["/dev/snd/controlC3"]


def test_unallocated_node_is_not_found_as_allocated_node(tree: Tree) -> None:
    other = structs.replace(card(0), devnodes=card(0).devnodes[1:])
    assert found_after_change(tree, without_last(card(0)), [card(0)], other, offered=[other]) is None


def test_device_is_not_found_when_an_allocated_node_is_missing(tree: Tree) -> None:
    assert found_after_change(tree, card(0), [card(0)], without_last(card(0)), offered=[]) is None


def test_whole_is_found_with_only_its_allocated_parts(tree: Tree) -> None:
    node = Devnode("/dev/dri/renderD128", "c", 226, 128)
    whole, part = Device("pci-a", "pci", "a"), structs.replace(card(0), parents=("pci-a",))
    united = structs.replace(whole, devnodes=part.devnodes, children=(part.id,))
    late = Device("gpu-a", "gpu", "card0", devnodes=(node,), parents=("pci-a",))
    grown = structs.replace(united, devnodes=(*part.devnodes, node), children=(part.id, late.id))
    for offered in ([], [united], [grown]):
        paths = found_after_change(tree, united, [whole, part], whole, part, late, offered=offered)
        assert paths == ["/dev/snd/controlC0", "/dev/snd/pcmC0D0c"]
    assert found_after_change(tree, united, [whole, part], whole, late, offered=[]) is None


def test_one_port_of_several_is_found_only_while_all_are_present(tree: Tree) -> None:
    def adapter(*numbers: int) -> Device:
        return Device("tty-a", "tty", "a", devnodes=tuple(Devnode(f"/dev/ttyUSB{i}", "c", 188, i) for i in numbers))

    allocated = structs.replace(adapter(0, 1), devnodes=adapter(1).devnodes)
    assert found_after_change(tree, allocated, [adapter(0, 1)], adapter(4, 5), offered=[]) == ["/dev/ttyUSB5"]
    assert found_after_change(tree, allocated, [adapter(0, 1)], adapter(4), offered=[]) is None
