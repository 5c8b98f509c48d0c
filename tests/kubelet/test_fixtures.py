"""The pytest fixtures, as tests of other projects use them."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "testing-a-plugin.md"
FOREIGN_TESTS = """
import pytest
from kubelet import allocated_claim, container, pod
from kubelet.devicemanager import Device
from kubelet.stubs import claimed
from kubeletapi.dra_health.v1alpha1 import api_pb2 as health

R = "example.com/x"

def test_stub_plugin_runs_with_a_kubelet(kubelet, device_plugin_stub):
    stub = device_plugin_stub(R, [Device("a"), Device("b")])
    assert kubelet.allocatable() == {R: 2}
    assert kubelet.admit(pod("p", container("c", {R: 1}))).phase == "Running"
    stub.fail("Allocate", "no")
    assert "desc = no" in kubelet.admit(pod("q", container("c", {R: 1}))).message
    counted = 'kubelet_device_plugin_registration_total{resource_name="example.com/x"} 1.0'
    assert counted in kubelet.metrics()
    kubelet.restart()
    assert kubelet.capacity() == {R: 0}
    assert counted not in kubelet.metrics()
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

def test_kubelet_refuses_registrations_until_accepted(kubelet, device_plugin_stub):
    kubelet.refuse_registrations("not today")
    with pytest.raises(Exception, match="not today"):
        device_plugin_stub(R)
    kubelet.accept_registrations()
    device_plugin_stub(R)
    kubelet.until(lambda: kubelet.capacity() == {R: 0})

def test_stub_driver_prepares_claims(kubelet, dra_driver_stub):
    gpu = lambda claim: [claimed(["r"], "node", "gpu-0", f"example.com/gpu={claim.name}")]
    stub = dra_driver_stub("driver.example.com", gpu, services=["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"])
    kubelet.until(lambda: kubelet.drivers() == ["driver.example.com"])
    kubelet.put_claim(allocated_claim("c1", "driver.example.com", "r/node/gpu-0", users=["p"]))
    user = pod("p", container("c", claims=["g"]), uid="p", claims={"g": "c1"})
    stub.fail("NodePrepareResources", "no")
    assert kubelet.admit(user).phase == "Pending"
    stub.behave("NodePrepareResources")
    assert kubelet.sync("p").phase == "Running"
    assert kubelet.claimed_devices("p", "c") == ("example.com/gpu=c1",)
    gone = health.DeviceIdentifier(pool_name="node", device_name="gpu-0")
    stub.report(health.DeviceHealth(device=gone, health=health.UNHEALTHY, message="hot"))
    entry = lambda: kubelet.status("p").container_statuses[0].allocated_resources_status[0]
    kubelet.until(lambda: entry().resources[0].message == "hot")
    stub.stop()
    kubelet.until(lambda: kubelet.drivers() == [])
    stub.start()
    kubelet.until(lambda: kubelet.drivers() == ["driver.example.com"])
    kubelet.remove_claim("c1")
    kubelet.remove("p")
    assert stub.claims("NodePrepareResources") == [["c1"], ["c1"]]
    kubelet.until(lambda: ["c1"] in stub.claims("NodeUnprepareResources"))

def test_driver_without_services_is_refused(dra_driver_stub):
    with pytest.raises(Exception, match="empty list of supported gRPC services"):
        dra_driver_stub(versions=[])

def test_fake_clock_starts_at_zero(fake_clock):
    assert fake_clock.now() == 0

class TestOptions:
    @pytest.fixture
    def kubelet_options(self, tmp_path):
        return {"kubernetes": "1.36", "cgroups": tmp_path}

    def test_kubelet_with_held_sources_knows_only_static_pods(self, kubelet, device_plugin_stub):
        stub = device_plugin_stub(R, [Device("a")])
        assert kubelet.admit(pod("p", container("c", {R: 1}))).phase == "Running"
        stub.register()  # 1.37 would refuse that
        kubelet.run_static_pod(pod("s", container("c")))
        kubelet.hold_sources()
        kubelet.restart(kill=True)
        assert [each.metadata.name for each in kubelet.active_pods()] == ["s-node"]
        assert kubelet.cgroup("p").is_dir()
        with pytest.raises(Exception, match="the API server is disconnected"):
            kubelet.admit(pod("q", container("c")))
        kubelet.release_sources()
        assert len(kubelet.active_pods()) == 2
        kubelet.reboot()
        assert kubelet.status("p").reason == "UnexpectedAdmissionError"
        assert not kubelet.cgroup("p").exists()
        kubelet.remove_static_pod("s")

    def test_until_raises_after_its_timeout(self, kubelet):
        with pytest.raises(TimeoutError, match=r"not within 0.1 s; what was waited for is \\[\\]"):
            kubelet.until(lambda: [], 0.1)
"""


def run_foreign_tests(folder: Path) -> str:
    """Run the tests in a folder as another project would, check that all passed, and return pytest's output."""
    plugins = ["-p", "kubelet.fixtures", "-p", "nodeplug_pytest"]
    options = ["-q", "-W", "error", "-p", "no:cacheprovider", *plugins]
    command = [sys.executable, "-m", "pytest", *options, str(folder)]
    environment = {
        **os.environ,
        "GRPC_VERBOSITY": "ERROR",
        "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'nodeplug-pytest'}",
        "NODEPLUG": f"{sys.executable} -m nodeplug",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            output, _ = process.communicate(timeout=90)  # three times the fixtures' own timeout
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler prints where it hangs
            raise
    assert process.returncode == 0, output
    return output


def test_fixtures_work_in_another_project(folder: Path) -> None:
    (folder / "test_theirs.py").write_text(FOREIGN_TESTS)
    assert "7 passed" in run_foreign_tests(folder)


def test_tests_in_documentation_pass(folder: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (plugin, driver, *outside, inside) = blocks
    (folder / "plugin.py").write_text(plugin)
    (folder / "driver.py").write_text(driver)
    (folder / "test_theirs.py").write_text("\n".join(outside))
    (folder / "test_inside.py").write_text(inside)
    assert "3 passed" in run_foreign_tests(folder)
