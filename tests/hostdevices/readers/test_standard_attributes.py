"""The standard attributes of Kubernetes for all drivers, derived as by its own library."""

from pathlib import Path

import pytest

from hostdevices import AttributeValue, Host, scan
from hostdevices.capture import capture
from hostdevices.recording import packed
from tests.dra_scenarios import scenario
from tests.hostdevices.tree import Tree

ROOT, BUS_ID, NUMA = (f"resource.kubernetes.io/{name}" for name in ("pcieRoot", "pciBusID", "numaNode"))


def standard(host: Host) -> dict[str, dict[str, AttributeValue]]:
    """Return the standard attributes of every PCI function, by name."""
    functions = (x for x in scan(host).devices.values() if x.kind == "pci")
    return {x.name: {k: v for k, v in x.attributes.items() if k in (ROOT, BUS_ID, NUMA)} for x in functions}


@scenario(61, 63)
def test_function_behind_bridge_has_pcie_root_above_bridge(tree: Tree) -> None:
    tree.pci("0000:02:00.0", bridges=("0000:01:00.0",))
    assert standard(tree.host) == {"0000:02:00.0": {ROOT: "pci0000:00", BUS_ID: "0000:02:00.0"}}


@scenario(62, 63)
def test_invalid_pci_address_is_omitted(tree: Tree) -> None:
    for name in ("invalid-pci-id", "0000:02:00", "0000:02:00.G"):
        tree.device(f"/sys/devices/pci0000:00/{name}", group="bus/pci/devices", vendor="0x8086", device="0x1234")
    assert standard(tree.host) == {}


@scenario(62)
def test_dangling_link_is_omitted(tree: Tree) -> None:
    tree.link("/sys/bus/pci/devices/0000:02:00.0", "/sys/devices/pci0000:00/0000:02:00.0")
    assert standard(tree.host) == {}


@scenario(62)
def test_function_without_pci_root_has_no_pcie_root(tree: Tree) -> None:
    tree.pci("0000:02:00.0", root="invalid-pci-root")
    assert standard(tree.host) == {"0000:02:00.0": {BUS_ID: "0000:02:00.0"}}


@scenario(62)
def test_function_has_the_address_of_the_links_target(tree: Tree) -> None:
    syspath = tree.pci("0000:02:00.0")
    tree.link("/sys/bus/pci/devices/0000:03:00.0", syspath)
    assert standard(tree.host) == {"0000:02:00.0": {ROOT: "pci0000:00", BUS_ID: "0000:02:00.0"}}


@scenario(64)
@pytest.mark.parametrize(("written", "found"), [(0, {NUMA: 0}), (1023, {NUMA: 1023}), (-1, {}), (1024, {})])
def test_numa_node_is_published_if_valid(written: int, found: dict[str, int], tree: Tree) -> None:
    tree.pci("0000:02:00.0", numa_node=written)
    assert standard(tree.host) == {"0000:02:00.0": {ROOT: "pci0000:00", BUS_ID: "0000:02:00.0", **found}}


@scenario(65)
def test_capture_has_the_same_attributes_as_its_host(tree: Tree, tmp_path: Path) -> None:
    tree.pci("0000:02:00.0", bridges=("0000:01:00.0",), numa_node=1)
    file = tmp_path / "host.jsonl.gz"
    file.write_bytes(packed(capture(tree.host), masked=False))
    assert standard(Host(file)) == standard(tree.host) != {}
