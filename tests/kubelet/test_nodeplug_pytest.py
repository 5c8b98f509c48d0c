"""`nodeplug-pytest` in a project with modules of the same names as nodeplug's and its own generated kubelet API."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubeletapi.deviceplugin.v1beta1 import api_pb2

CHECKOUT = Path(__file__).resolve().parents[2]
FOREIGN_PLUGIN = """
import asyncio, sys, grpc
import api_pb2 as api

async def main(folder, write=lambda message: message.SerializeToString()):
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    async def options(request, context):
        return api.DevicePluginOptions()
    async def watch(request, context):
        yield api.ListAndWatchResponse(devices=[api.Device(ID=i, health="Healthy") for i in "ab"])
        await asyncio.Event().wait()
    async def allocate(request, context):
        return api.AllocateResponse(container_responses=[{"envs": {"X": "1"}} for _ in request.container_requests])
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", {
        "GetDevicePluginOptions": unary(options, api.Empty.FromString, write),
        "ListAndWatch": stream(watch, api.Empty.FromString, write),
        "Allocate": unary(allocate, api.AllocateRequest.FromString, write)})])
    server.add_insecure_port(f"unix:{folder}/their.sock")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{folder}/kubelet.sock") as kubelet:
        register = kubelet.unary_unary("/v1beta1.Registration/Register", write)
        await register(api.RegisterRequest(version="v1beta1", endpoint="their.sock", resource_name="example.com/x"))
    await server.wait_for_termination()

asyncio.run(main(sys.argv[1]))
"""
FOREIGN_TESTS = """
import os, subprocess, sys
import pytest
import api_pb2, cdi, checkpoint, kubelet
from nodeplug_pytest import KubeletError, allocated_claim, pod

R = "example.com/x"

@pytest.fixture
def plugin(nodeplug_kubelet):
    process = subprocess.Popen([sys.executable, "plugin.py", str(nodeplug_kubelet.device_plugins)])
    nodeplug_kubelet.until(lambda state: state.allocatable == {R: 2})
    yield process
    process.kill()
    process.wait()

def test_plugin_does_not_import_packages_of_the_project():
    assert kubelet.WHOSE == checkpoint.WHOSE == cdi.WHOSE == "theirs"
    assert "kubeletapi" not in sys.modules and "nodeplug" not in sys.modules

def test_plugin_serves_pods_across_kubelet_restart(nodeplug_kubelet, plugin):
    assert nodeplug_kubelet.admit(pod("p", {R: 1}))["phase"] == "Running"
    refused = nodeplug_kubelet.admit(pod("q", {R: 2}))
    assert refused["phase"] == "Failed" and "Requested: 2, Available: 1" in refused["message"]
    state = nodeplug_kubelet.state()
    (device,) = state.allocations("p")[R]
    assert state.devices(R)[device] == "Healthy"
    nodeplug_kubelet.hold()
    nodeplug_kubelet.restart(kill=True)
    nodeplug_kubelet.release()
    assert nodeplug_kubelet.until(lambda state: state.capacity == {R: 0} and state).allocations("p") == {R: [device]}
    nodeplug_kubelet.remove("p")
    assert "default/p" not in nodeplug_kubelet.state().pods
    with pytest.raises(KubeletError, match="pod p is not on the node"):
        nodeplug_kubelet.remove("p")

class TestOptions:
    @pytest.fixture
    def nodeplug_kubelet_options(self):
        options = {"kubernetes": "1.36", "numa_nodes": 2, "node_name": "n", "static_pods": ["static.yaml"]}
        options |= {"capacity": {"cpu": 4, "pods": 20}, "node_label": {"disk": "ssd"}}
        return options | {"in_order": False, "tls": False, "cgroup_root": None}

    def test_static_pod_is_read_from_the_project_folder(self, nodeplug_kubelet):
        assert list(nodeplug_kubelet.state().pods) == ["default/s-n"]

    def test_claim_without_driver_leaves_pod_pending(self, nodeplug_kubelet):
        nodeplug_kubelet.put_claim(allocated_claim("one", "driver.example.com", "r/n/gpu-0", users=["p"]))
        assert nodeplug_kubelet.admit(pod("p", claims={"gpu": "one"}))["phase"] == "Pending"
        assert nodeplug_kubelet.state().drivers == []
        nodeplug_kubelet.remove_claim("one")
        (result,) = allocated_claim("two", "d", "r/n/socket-0/gpu-0")["status"]["allocation"]["devices"]["results"]
        assert result == {"request": "r", "driver": "d", "pool": "n/socket-0", "device": "gpu-0"}
        with pytest.raises(TimeoutError, match=r"(?s)not within 0.1 s: .*state.drivers.*seen last.*default/p"):
            nodeplug_kubelet.until(lambda state: state.drivers, 0.1)

class TestWrongOptions:
    @pytest.fixture
    def nodeplug_kubelet_options(self):
        return {"numa_nodes": 0}

    @pytest.mark.xfail(strict=True, reason="the option is wrong", raises=pytest.fail.Exception)
    def test_invalid_options_fail(self, nodeplug_kubelet):
        pass
"""


@pytest.fixture
def project(folder: Path) -> Path:
    for name in ("kubelet", "checkpoint", "cdi"):
        (folder / f"{name}.py").write_text('WHOSE = "theirs"\n')
    generated = Path(api_pb2.__file__).read_text()
    theirs = generated.replace("from kubeletapi import _pool", "from google.protobuf import descriptor_pool as _pool")
    (folder / "api_pb2.py").write_text(theirs.replace("_pool.POOL", "_pool.Default()"))
    (folder / "plugin.py").write_text(FOREIGN_PLUGIN)
    (folder / "static.yaml").write_text(
        "metadata: {name: s}\nspec: {nodeSelector: {disk: ssd}, containers: [{name: c}]}"
    )
    (folder / "test_theirs.py").write_text(FOREIGN_TESTS)
    return folder


def test_plugin_fixtures_work_in_another_project(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "nodeplug_pytest", "-p", "no:cacheprovider"]
    environment = {
        **os.environ,
        "NODEPLUG": f"env PYTHONPATH={CHECKOUT} {sys.executable} -m nodeplug",  # of this checkout
        "PYTHONPATH": str(CHECKOUT / "nodeplug-pytest"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "GRPC_VERBOSITY": "ERROR",
    }
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert "4 passed, 1 xfailed" in done.stdout, done.stdout + done.stderr
