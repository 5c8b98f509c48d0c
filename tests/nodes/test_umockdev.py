"""Recorded USB devices: `discover` finds the device, the device nodes of its interfaces, and its port."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nodeplug.cli import main
from tests.cases import recorded_at
from tests.nodes.umockdev import build

FOLDER = recorded_at("nodes")
RECORDINGS: list[Any] = sorted(FOLDER.glob("*.umockdev"))

# Made up: a security key behind a hub.
KEY = """\
P: /devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.3
N: bus/usb/001/012=1201
E: DEVNAME=/dev/bus/usb/001/012
E: DEVTYPE=usb_device
E: DRIVER=usb
E: BUSNUM=001
E: DEVNUM=012
E: MAJOR=189
E: MINOR=11
E: SUBSYSTEM=usb
E: ID_SERIAL=made_up
A: idVendor=1050\\n
A: idProduct=0120\\n
A: product=Key\\n
A: serial=12 34\\n
A: busnum=1\\n
A: devnum=12\\n
A: devpath=2.3\\n
A: bDeviceClass=00\\n
A: speed=12\\n
L: driver=../../../../../../bus/usb/drivers/usb

P: /devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.3/1-2.3:1.0
E: DEVTYPE=usb_interface
E: DRIVER=usbhid
E: SUBSYSTEM=usb
A: bInterfaceClass=03\\n
A: bInterfaceNumber=00\\n

P: /devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.3/1-2.3:1.0/0003:1050:0120.000A/hidraw/hidraw5
N: hidraw5
E: DEVNAME=/dev/hidraw5
E: MAJOR=240
E: MINOR=5
E: SUBSYSTEM=hidraw
H: report_descriptor=06D0
L: device=../../../0003:1050:0120.000A
"""


def discover(root: Path) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["discover", "--root", str(root), "-o", "json"])
    assert result.exit_code == 0, result.output
    description: dict[str, Any] = json.loads(result.stdout)
    return description


def test_written_recording_is_discovered(tmp_path: Path) -> None:
    (tmp_path / "key.umockdev").write_text(KEY)
    build(tmp_path / "key.umockdev", tmp_path / "root")
    found = discover(tmp_path / "root")
    assert found["problems"] == []
    devices = {device["name"]: device for device in found["devices"]}
    assert set(devices) == {"1-2.3", "hidraw5"}
    assert devices["1-2.3"]["attributes"]["serial"] == "12 34"
    assert devices["1-2.3"]["devnodes"] == [{"path": "/dev/bus/usb/001/012", "type": "c", "major": 189, "minor": 11}]
    assert devices["hidraw5"]["within"][0] == devices["1-2.3"]["id"]


@pytest.mark.parametrize(
    "recording",
    RECORDINGS or [pytest.param(None, marks=pytest.mark.skip(reason=f"no recordings in {FOLDER}"))],
    ids=lambda path: path and path.name,
)
def test_real_recording_is_discovered_completely(recording: Path, tmp_path: Path) -> None:
    build(recording, tmp_path / "root")
    root = tmp_path / "root"
    found = discover(root)
    assert found["problems"] == []
    # Root hubs are not offered, and the recorded controllers are.
    plugged = {path.name for path in (root / "sys/bus/usb/devices").glob("*-*") if (path / "idVendor").exists()}
    assert {device["name"] for device in found["devices"] if device["kind"] == "usb"} == plugged
    functions = {path.name for path in (root / "sys/bus/pci/devices").glob("*")}
    assert {device["name"] for device in found["devices"] if device["kind"] == "pci"} == functions
    nodes = {node["path"] for device in found["devices"] for node in device["devnodes"]}
    recorded = {
        f"/dev/{path.relative_to(root / 'dev')}"
        for path in (root / "dev").rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    root_hubs = {f"/dev/bus/usb/{bus:03}/001" for bus in range(1, 100)}
    assert nodes == recorded - root_hubs
    by_udev = dict(re.findall(r"(?s)P: (\S+)\n(?:(?!\n\n).)*?E: ID_PATH=(\S+)", recording.read_text()))
    for device in found["devices"]:
        if "byPath" in device["attributes"] and (place := by_udev.get(device["syspath"].removeprefix("/sys"))):
            assert device["attributes"]["byPath"] == place
        folder = root / device["syspath"].lstrip("/")
        for attribute, file in (("vendor", "idVendor"), ("product", "idProduct"), ("serial", "serial")):
            if device["kind"] == "usb" and (folder / file).exists():
                assert device["attributes"][attribute] == (folder / file).read_text().strip()
