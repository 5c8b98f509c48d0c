"""The pytest plugin, used as other people's tests use it."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
THEIR_TEST = """
import pytest
from kubelet import container, pod
from kubelet.devicemanager import Device

R = "example.com/x"

def test_a_stub_plugin(kubelet, device_plugin_stub):
    stub = device_plugin_stub(R, [Device("a"), Device("b")])
    kubelet.until(lambda: kubelet.allocatable().get(R) == 2)
    assert kubelet.admit(pod("p", container("c", {R: 1}))).phase == "Running"
    stub.fail("Allocate", "no")
    assert "desc = no" in kubelet.admit(pod("q", container("c", {R: 1}))).message
    kubelet.restart()
    assert kubelet.capacity() == {R: 0}
    stub.register()
    kubelet.until(lambda: kubelet.capacity() == {R: 2})
    assert len(kubelet.allocations("p", "c")[R]) == 1
    stub.update([Device("a"), Device("b", "Unhealthy")])
    kubelet.until(lambda: kubelet.allocatable() == {R: 1})
    kubelet.cut_stream(R)
    assert kubelet.allocatable() == {R: 0}
    stub.register()
    stub.cut_stream()
    kubelet.until(lambda: kubelet.allocatable() == {R: 0})
    assert stub.calls[:3] == ["GetDevicePluginOptions", "ListAndWatch", "Allocate"]

def test_a_kubelet_that_refuses(kubelet, device_plugin_stub):
    kubelet.refuse_registrations("not today")
    with pytest.raises(Exception, match="not today"):
        device_plugin_stub(R)
    kubelet.accept_registrations()
    device_plugin_stub(R)
    kubelet.until(lambda: kubelet.capacity() == {R: 0})

def test_time(fake_clock):
    assert fake_clock.now() == 0
"""


def test_other_peoples_tests_need_no_import(folder: Path) -> None:
    (folder / "test_theirs.py").write_text(THEIR_TEST)
    is_installed = any(each.value == "kubelet.fixtures" for each in entry_points(group="pytest11"))
    plugin = [] if is_installed else ["-p", "kubelet.fixtures"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        *plugin,
        str(folder),
    ]
    environment = {**os.environ, "GRPC_VERBOSITY": "ERROR", "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
