"""Archives of real machines' /sys and /proc: `discover` agrees with their plain files and links."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nodeplug.cli import main
from tests.cases import recorded_at

FOLDER = recorded_at("nodes")
ARCHIVES: list[Any] = sorted(FOLDER.glob("*.tar.bz2"))


@pytest.fixture(
    scope="module",
    params=ARCHIVES or [pytest.param(None, marks=pytest.mark.skip(reason=f"no recorded machines in {FOLDER}"))],
    ids=lambda path: path and path.name,
)
def root(request: pytest.FixtureRequest, unpacked: Callable[[Path], Path]) -> Path:
    return unpacked(request.param)


@pytest.fixture(scope="module")
def found(root: Path) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["discover", "--root", str(root), "-o", "json"])
    assert result.exit_code == 0, result.output
    description: dict[str, Any] = json.loads(result.stdout)
    return description


def of_kind(found: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {device["name"]: device for device in found["devices"] if device["kind"] == kind}


def link_name(path: Path) -> str | None:
    return path.readlink().name if path.is_symlink() else None


def numa_node(function: Path) -> list[int]:
    """The NUMA node of the function or of the nearest parent with one, as the kernel's own tools do."""
    for folder in (function, *function.parents):
        file = folder / "numa_node"
        if file.is_file() and int(file.read_text()) >= 0:
            return [int(file.read_text())]
    return []


def test_every_pci_function_is_found_with_driver_and_numa_node(root: Path, found: dict[str, Any]) -> None:
    functions = {path.name: path.resolve() for path in (root / "sys/bus/pci/devices").glob("*")}
    devices = of_kind(found, "pci")
    assert set(devices) == set(functions)
    for name, path in functions.items():
        assert devices[name]["numaNodes"] == numa_node(path), name
        assert devices[name]["attributes"].get("driver") == link_name(path / "driver"), name
        if (path / "vendor").exists():
            assert f"0x{devices[name]['attributes']['vendor']}" == (path / "vendor").read_text().strip(), name


def test_every_network_interface_is_found_with_its_function(root: Path, found: dict[str, Any]) -> None:
    interfaces = {path.name: path.resolve() for path in (root / "sys/class/net").glob("*") if path.is_dir()}
    interfaces = {name: path for name, path in interfaces.items() if (path / "address").exists()}
    devices = of_kind(found, "nic")
    assert set(devices) == set(interfaces)
    for name, path in interfaces.items():
        assert devices[name]["attributes"].get("mac") == (path / "address").read_text().strip(), name
        if (path / "device").exists() and (path / "device/class").exists():
            address = (path / "device").resolve().name
            assert devices[name]["attributes"]["resource.kubernetes.io/pciBusID"] in (address, parent_function(path))


def parent_function(path: Path) -> str:
    return next(folder.name for folder in path.parents if (folder / "vendor").exists() and ":" in folder.name)


def test_every_rdma_device_is_found_with_its_interface(root: Path, found: dict[str, Any]) -> None:
    cards = {path.name: path.resolve() for path in (root / "sys/class/infiniband").glob("*") if path.exists()}
    devices = of_kind(found, "rdma")
    assert set(devices) == set(cards)
    for name, path in cards.items():
        function = (path / "device").resolve()
        interfaces = {folder.name for folder in (function / "net").glob("*")}
        if len(interfaces) == 1:
            assert {devices[name]["attributes"]["netdev"]} == interfaces
        if ":" in function.name:
            assert devices[name]["attributes"]["resource.kubernetes.io/pciBusID"] == function.name
        assert devices[name]["numaNodes"] == numa_node(function)


def test_every_nvidia_gpu_is_found_with_its_memory_node(root: Path, found: dict[str, Any]) -> None:
    gpus = {path.name for path in (root / "proc/driver/nvidia/gpus").glob("*")}
    devices = [device for device in of_kind(found, "gpu").values() if device["attributes"].get("driver") == "nvidia"]
    assert {device["attributes"]["resource.kubernetes.io/pciBusID"] for device in devices} == gpus
    for device in devices:
        status = (
            root / "proc/driver/nvidia/gpus" / device["attributes"]["resource.kubernetes.io/pciBusID"] / "numa_status"
        )
        if status.exists():
            node = int(status.read_text().partition("Node:")[2].split()[0])
            assert device["attributes"]["memoryNode"] == node


def test_ids_are_unique_and_discover_selects_by_id(root: Path, found: dict[str, Any]) -> None:
    ids = [device["id"] for device in found["devices"]]
    assert len(ids) == len(set(ids))
    if not ids:
        pytest.skip("nothing but processors and memory was recorded")
    result = CliRunner().invoke(main, ["discover", "--root", str(root), "-o", "json", "--id", ids[-1]])
    assert [device["id"] for device in json.loads(result.stdout)["devices"]] == ids[-1:]


def test_discover_reports_no_problems(found: dict[str, Any]) -> None:
    assert found["problems"] == []


def test_discover_of_a_capture_is_identical(root: Path, found: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "machine.jsonl.gz"
    assert CliRunner().invoke(main, ["capture", str(file), "--root", str(root)]).exit_code == 0
    result = CliRunner().invoke(main, ["discover", "--root", str(file), "-o", "json"])
    assert json.loads(result.stdout) == found
