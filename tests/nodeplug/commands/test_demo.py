"""`nodeplug demo`: both APIs on a made-up machine."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nodeplug.commands.demo import demo
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.tree import Tree


def test_demo_prints_the_steps_of_both_apis_in_order(tmp_path: Path) -> None:
    host = MadeUpHost(tmp_path / "host", "fuse", "kvm")
    shown = CliRunner().invoke(demo, ["--root", str(host.root)], catch_exceptions=False).output
    printed = (
        "Discover: 2 devices",
        "Register: 2 resources",
        "Admit: pod demo asks for one nodeplug.dev/kvm: Running",
        "device nodes  /dev/kvm -> /dev/kvm (rw)",
        "Restart the kubelet: ",  # printed before the daemon logs the restart
        "all 2 resources are back",
        "kind: DeviceClass",
        "exactly: {deviceClassName: fuse.nodeplug.dev}",
        "Run: pod claimed is Running",
        "request device  nodeplug.dev/node/misc-fuse",
        "CDI name 1      nodeplug.dev/claim=",
        '"path": "/dev/fuse"',
        "its CDI specs are gone",
        "Stop: sockets are gone",
    )
    at = -1
    for part in printed:
        found = shown.find(part, at + 1)
        assert found > at, f"{part!r} is not there, or not in its place:\n{shown}"
        at = found


def test_demo_reports_a_host_without_devices(tmp_path: Path) -> None:
    Tree(tmp_path).file("/proc/sys/kernel/random/boot_id", "x")
    shown = CliRunner().invoke(demo, ["--root", str(tmp_path)], catch_exceptions=False).output
    assert "nothing to" in shown


def test_demo_works_without_the_controlplane_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, `kubelet run` and the demo work without a cluster."""
    host = MadeUpHost(tmp_path / "host", "fuse")
    monkeypatch.setitem(sys.modules, "controlplane.apiserver", None)
    shown = CliRunner().invoke(demo, ["--root", str(host.root)], catch_exceptions=False).output
    assert "install nodeplug[controlplane]" in shown
    assert "Stop: sockets are gone" in shown
