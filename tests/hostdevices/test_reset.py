"""Resets through sysfs."""

from pathlib import Path

import pytest

from hostdevices import Device, Host
from hostdevices.reset import ResetFailed, reset

BUS_ID = "resource.kubernetes.io/pciBusID"


def function(address: str) -> Device:
    return Device(id="pci-a", kind="pci", name=address, attributes={BUS_ID: address})


def test_a_pci_function_is_reset_or_the_failure_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:00:05.0"
    folder.mkdir(parents=True)
    (folder / "reset").write_text("")
    reset(Host(tmp_path), [function("0000:00:05.0")])
    assert (folder / "reset").read_text() == "1"
    with pytest.raises(ResetFailed, match=r"pci-a: reset of 0000:00:06\.0 failed: No such file"):
        reset(Host(tmp_path), [function("0000:00:06.0")])
    with pytest.raises(ResetFailed, match="misc-fuse is not on a PCI bus and cannot be reset"):
        reset(Host(tmp_path), [Device(id="misc-fuse", kind="misc", name="fuse")])
