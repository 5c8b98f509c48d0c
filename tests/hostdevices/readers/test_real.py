"""The readers on this machine's own /sys agree with other sources of the kernel."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostdevices import Device, Host, Inventory, scan


@pytest.fixture(scope="module")
def this_machine() -> Inventory:
    """The inventory of this machine."""
    return scan(Host())


def test_scan_of_this_machine_has_no_problems(this_machine: Inventory) -> None:
    assert this_machine.problems == ()


def test_every_pci_function_is_found(this_machine: Inventory) -> None:
    folder = Path("/sys/bus/pci/devices")
    present = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    found = {x.name: x for x in this_machine.devices.values() if x.kind == "pci"}
    assert found.keys() == present
    for name, device in found.items():
        assert f"0x{device.attributes['vendor']}" == (folder / name / "vendor").read_text().strip()


def test_every_interface_is_found(this_machine: Inventory) -> None:
    found = {x.name: x for x in this_machine.devices.values() if x.kind == "nic"}
    assert found.keys() == {name for _, name in socket.if_nameindex()}
    assert found["lo"].attributes["linkType"] == "loopback"
    assert found["lo"].attributes["virtual"] is True


def test_devnodes_have_the_numbers_of_dev(this_machine: Inventory) -> None:
    for device in this_machine.devices.values():
        for node in device.devnodes if device.kind != "loop" else ():  # other tests create and remove loop devices
            status = os.stat(node.path)
            assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (node.major, node.minor)


@pytest.mark.parametrize("name", ["kvm", "fuse"])
def test_misc_device_has_its_node(name: str, this_machine: Inventory) -> None:
    if not Path(f"/sys/class/misc/{name}").exists() or not Path(f"/dev/{name}").exists():
        pytest.skip(f"this machine has no /dev/{name}")
    assert [node.path for node in this_machine.devices[f"misc-{name}"].devnodes] == [f"/dev/{name}"]


@pytest.fixture
def veth() -> Iterator[str]:
    """A pair of virtual interfaces."""
    if os.geteuid() != 0:
        pytest.skip("making interfaces needs root")
    name = f"npt{os.getpid() % 100000}"
    add = ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"]
    try:
        done = subprocess.run(add, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no ip command here")
    if done.returncode:
        pytest.skip(f"no veth here: {done.stderr.strip()}")
    yield name
    subprocess.run(["ip", "link", "del", name], check=True)


def test_new_interface_is_found(veth: str) -> None:
    device: Device = scan(Host()).devices[f"nic-{veth}"]
    assert device.attributes.items() >= {"virtual": True, "uplink": False, "linkType": "ethernet"}.items()
    assert device.attributes["mac"] == Path(f"/sys/class/net/{veth}/address").read_text().strip()
