"""The node's topology as a picture: places of devices, also in its text for screen readers."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from hostdevices import Device
from hostdevices.device import Health
from hostdevices.readers.pci import PCIE_ROOT
from kubelet.node import Node
from nodeplug.cli import main
from nodeplug.topology import svg
from nodeplug.topology.layout import Item, NumaNode, Root, layout
from nodeplug.topology.svg import MAX_DEVICES, draw
from nodeplug.topology.text import lines
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, DaemonUnderTest

GPU = Device("gpu-1", "gpu", "card1", attributes={PCIE_ROOT: "pci0000:17"}, numa_nodes=(1,))
NIC = Device("nic-1", "nic", "eth1", attributes={PCIE_ROOT: "pci0000:00"}, numa_nodes=(0,), health=Health(False, "hot"))
KVM = Device("misc-kvm", "misc", "kvm")
UNHEALTHY = Item("gpu-0", "gpu", "unhealthy", "fell <off> the \x1b bus", ("a/b",), ('default/"train"',), True)
XML = "{http://www.w3.org/2000/svg}"


def on_one_root(*items: Item) -> Sequence[NumaNode]:
    return (NumaNode("0", (Root("pci0000:00", items),)),)


def parsed(drawing: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawing)


def test_layout_groups_devices_by_numa_node_and_root() -> None:
    found = layout({x.id: x for x in (KVM, GPU, NIC)}, None)
    assert found == (
        NumaNode("0", (Root("pci0000:00", (Item("nic-1", "nic", "unhealthy", "hot"),)),)),
        NumaNode("1", (Root("pci0000:17", (Item("gpu-1", "gpu"),)),)),
        NumaNode("", (Root("", (Item("misc-kvm", "misc"),)),)),
    )
    assert list(lines(found))[:7] == [
        "NUMA node 0",
        "  pci0000:00",
        "    ! nic-1  nic  unhealthy: hot",
        "NUMA node 1",
        "  pci0000:17",
        "    + gpu-1  gpu",
        "no NUMA node",
    ]


def test_drawing_has_labels_for_screen_readers() -> None:
    tree = parsed(draw(on_one_root(UNHEALTHY, Item("misc-kvm", "misc")), "worker-1"))
    named = {each.get("id"): each.text for each in tree if each.get("id")}
    assert tree.get("aria-labelledby", "").split() == list(named)
    assert named["title"] == "Devices of worker-1"
    assert (named["summary"] or "").startswith("devices: 2, NUMA nodes: 1, leased: 1, unhealthy: 1")
    (group,) = [x for x in tree.iter(f"{XML}g") if x.get("role") == "list"]
    assert group.get("aria-label") == "NUMA node 0, pci0000:00"
    ill, well = [x for x in tree.iter(f"{XML}g") if x.get("role") == "listitem"]
    words = 'gpu-0, gpu: unhealthy (fell <off> the \\x1b bus); offered as a/b; leased to default/"train"'
    assert ill.get("aria-label") == ill.findtext(f"{XML}title") == words
    assert well.get("aria-label") == "misc-kvm, misc: healthy; not offered"
    assert [x.get("fill") for x in ill.iter(f"{XML}rect")] == [None, "url(#leased)"]
    assert len(list(well.iter(f"{XML}rect"))) == 1
    assert [x.text for x in ill.iter(f"{XML}text")] == ["⚠ gpu-0", "a/b", 'default/"train"', "fell <off> the \\x1b bus"]


def test_drawing_loads_no_external_content() -> None:
    drawing = draw(on_one_root(UNHEALTHY), "n")
    assert not re.search(r"href|@import|<script|<image|<foreignObject", drawing)
    assert set(re.findall(r"url\(([^)]*)\)", drawing)) == {"#leased"}


def test_drawing_has_a_limited_number_of_devices() -> None:
    many = tuple(Item(f"misc-{number}", "misc") for number in range(10_000))
    drawing = draw(on_one_root(*many), "n")
    assert len([x for x in parsed(drawing).iter(f"{XML}g") if x.get("role") == "listitem"]) == MAX_DEVICES
    assert f"and {10_000 - MAX_DEVICES} more: nodeplug status -o wide lists all" in drawing
    assert len(drawing) < 2_000_000


def luminance(colour: str) -> float:
    """Source: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance"""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_drawing_text_has_enough_contrast(scheme: int) -> None:
    style = svg._STYLE.split("@media")[scheme]
    fills = dict(re.findall(r"([.\w]+) \{ fill: (#[0-9a-f]{6})", style))
    text = luminance(fills.pop("text"))
    assert fills.keys() == {".paper", ".box", ".healthy", ".unavailable", ".unhealthy"}
    for name, fill in fills.items():
        dark, light = sorted((text, luminance(fill)))
        assert (light + 0.05) / (dark + 0.05) >= 7, name


async def test_topology_shows_the_devices_and_the_name_of_the_daemon(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE, nodeName="worker-1")
    found = await daemon.run("topology")
    assert "    + misc-fuse  example.com/fuse" in found.stdout.splitlines()
    assert "misc-kvm" not in found.stdout
    assert "    + misc-kvm  misc" in (await daemon.run("topology", "--all")).stdout.splitlines()
    drawing = parsed((await daemon.run("topology", "--svg")).stdout)
    assert (drawing.tag, drawing.findtext(f"{XML}title")) == (f"{XML}svg", "Devices of worker-1")
    wide = (await daemon.run("topology", "-o", "wide")).stdout.splitlines()
    assert [line.split() for line in wide] == [
        ["NUMA", "PCI", "ROOT", "DEVICE", "KIND", "STATE", "RESOURCES", "LEASED", "TO", "REASON"],
        ["-", "-", "misc-fuse", "misc", "healthy", "example.com/fuse", "-", "-"],
    ]
    (numa,) = json.loads((await daemon.run("topology", "-o", "json")).stdout)["nodes"]
    assert [item["id"] for root in numa["roots"] for item in root["items"]] == ["misc-fuse"]
    refused = await daemon.run("topology", "--svg", "-o", "yaml")
    assert (refused.exit_code, "--svg and -o yaml exclude each other" in refused.stderr) == (2, True)


async def test_topology_of_another_machine_shows_nothing_of_the_daemon(daemon: DaemonUnderTest, tmp_path: Path) -> None:
    await daemon.start(FUSE)
    recording = tmp_path / "node.gz"
    assert CliRunner().invoke(main, ["capture", str(recording), "--root", str(daemon.root)]).exit_code == 0
    for root in (recording, daemon.root):
        found = await daemon.run("topology", "--root", str(root))
        assert "    + misc-fuse  misc" in found.stdout.splitlines()
        assert found.stderr == ""


async def test_leased_share_is_not_shown_as_another_device(
    daemon: DaemonUnderTest, node: Node, made_up: MadeUpHost
) -> None:
    await daemon.start({**FUSE, "shares": 2})
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"

    async def shown() -> list[str]:
        return (await daemon.run("topology")).stdout.splitlines()

    daemon.write({**FUSE, "name": "example.com/other", "shares": 2})
    assert (await daemon.run("reload")).exit_code == 0
    (found,) = (line for line in await shown() if "misc-fuse" in line)
    assert "misc-fuse  example.com/other" in found
    made_up.remove_node("fuse")
    daemon.write({"name": "example.com/kvm", "select": "kvm"})
    assert (await daemon.run("reload")).exit_code == 0
    (found,) = (line for line in await shown() if "misc-fuse" in line)
    assert found.startswith("    ! misc-fuse  example.com/fuse  [leased]")


async def test_topology_shows_all_devices_without_a_daemon(daemon: DaemonUnderTest) -> None:
    found = await daemon.run("topology")
    assert found.exit_code == 0
    assert "leased" in found.stdout.splitlines()[-1]  # the devices of the machine that runs the tests are above
    assert found.stderr.startswith("leases and resources are not shown: there is no ")
