"""Devices found again: their nodes where they are now, at the paths in containers at which they were given."""

from pathlib import Path

import pytest
from msgspec import structs

from hostdevices import Device, Devnode
from hostdevices.presence import Presence, Seen
from tests.hostdevices.tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def card(number: int, *inside: str) -> Device:
    """A sound card as the kernel counts it today; `inside` are the paths of its control and its capture node."""
    nodes = (
        Devnode(f"/dev/snd/controlC{number}", "c", 116, 32 * number),
        Devnode(f"/dev/snd/pcmC{number}D0c", "c", 116, 32 * number + 24),
    )
    placed = (structs.replace(x, container_path=path) for x, path in zip(nodes, inside or ("", ""), strict=True))
    return Device("sound-a", "sound", f"card{number}", devnodes=tuple(placed))


def found(tree: Tree, given: Device, now: Device) -> list[tuple[str, str]] | None:
    """Return where a device that was given is found, and where its container sees it."""
    presence = Presence(tree.host)
    presence.update({now.id: now}, [now])
    device = presence.find(Seen(given, ()))
    return None if device is None else [(x.path, x.container_path) for x in device.devnodes]


def test_a_renumbered_device_is_where_its_container_saw_it(tree: Tree) -> None:
    given = card(0, "/dev/c", "/dev/p")
    for now in (card(3), card(3, "/dev/other", ""), card(3, "/dev/p", "/dev/c")):
        assert found(tree, given, now) == [("/dev/snd/controlC3", "/dev/c"), ("/dev/snd/pcmC3D0c", "/dev/p")]


def test_what_was_given_without_a_path_is_where_it_is_on_the_host(tree: Tree) -> None:
    assert found(tree, card(0), card(3, "/dev/c", "/dev/p")) == [
        ("/dev/snd/controlC3", ""),
        ("/dev/snd/pcmC3D0c", ""),
    ]


def test_a_node_that_came_later_is_not_taken_for_one_that_was_given(tree: Tree) -> None:
    given = Device("tty-a", "tty", "a", devnodes=(Devnode("/dev/ttyUSB0", "c", 188, 0, container_path="/dev/zigbee"),))
    two = tuple(Devnode(f"/dev/ttyUSB{i}", "c", 188, i) for i in (0, 1))
    assert found(tree, given, structs.replace(given, devnodes=two)) == [("/dev/ttyUSB0", "/dev/zigbee")]
    others = tuple(Devnode(f"/dev/ttyUSB{i}", "c", 188, i) for i in (5, 6))
    assert found(tree, given, structs.replace(given, devnodes=others)) is None


def test_an_only_node_may_have_another_name_altogether(tree: Tree) -> None:
    given = Device("tty-a", "tty", "a", devnodes=(Devnode("/dev/ttyUSB0", "c", 188, 0, container_path="/dev/zigbee"),))
    now = structs.replace(given, devnodes=(Devnode("/dev/ttyACM4", "c", 166, 4),))
    assert found(tree, given, now) == [("/dev/ttyACM4", "/dev/zigbee")]
