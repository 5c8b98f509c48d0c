"""The stand-in API server with a real kubelet, which registers, gets a pod with a claim, runs it and ends it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.scheduler import Scheduler
from resourceapi.client.blocking import Client
from resourceapi.client.credentials import from_kubeconfig
from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.running import Http, Plain, Running
from tests.e2e.claims import claim, claiming, request
from tests.e2e.cluster import DRIVER, dra_daemon
from tests.e2e.conftest import DaemonProcess
from tests.e2e.realnode import NODE, RELEASE, RealNode, pod

pytestmark = pytest.mark.e2e
RESOURCES: list[dict[str, Any]] = [
    {"name": "e2e.example/fuse", "select": "fuse", "shares": 2, "api": "dra", "env": {"FUSE_NODES": "{devnodes}"}},
    {"name": "e2e.example/kvm", "select": "kvm", "shares": 2},
]
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SLEEP = "trap 'exit 0' TERM; echo $FUSE_NODES; sleep 600 & wait"


class Cluster:
    """The stand-in with the real kubelet, our scheduler and the daemon."""

    def __init__(self, api: Http) -> None:
        self.api = api

    def until(self, path: str, is_it: Callable[[Plain], Any], what: str, seconds: float = 60.0) -> Plain:
        """Wait for an object in the expected state, and return it; `{}` stands for a missing one."""
        deadline = time.monotonic() + seconds
        while True:
            answer = self.api.send("GET", path)
            found: Plain = answer.body if answer.status == 200 else {}
            if is_it(found):
                return found
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}: {found}"
            time.sleep(0.2)  # the kubelet's own intervals are longer

    def until_phase(self, name: str, phase: str) -> Plain:
        return self.until(f"{PODS}/{name}", lambda x: (x.get("status") or {}).get("phase") == phase, f"{name} {phase}")


@pytest.fixture
async def cluster(node: RealNode, tmp_path: Path) -> AsyncIterator[Cluster]:
    with Running(tls=True, definitions=(), release=RELEASES[RELEASE.version]) as server, server.http() as api:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        daemon: DaemonProcess = dra_daemon(node, tmp_path, RESOURCES, kubeconfig=str(kubeconfig))
        client = Client(from_kubeconfig(kubeconfig))
        try:
            with node.with_kubelet_of(kubeconfig):
                daemon.start()
                async with Scheduler(client):
                    yield Cluster(api)
        finally:
            daemon.end()
            client.close()


def _has(conditions: list[Plain] | None, name: str) -> bool:
    return any(each["type"] == name and each["status"] == "True" for each in conditions or ())


async def test_real_kubelet_registers_and_runs_pods_with_devices(cluster: Cluster) -> None:
    """The node is ready, its Lease is renewed, devices work by plugin and claim, pods end within their grace period."""
    await asyncio.to_thread(_registers, cluster)
    await asyncio.to_thread(_runs_pods, cluster)


def _registers(cluster: Cluster) -> None:
    path = f"{NODES}/{NODE}"
    cluster.until(path, lambda x: _has((x.get("status") or {}).get("conditions"), "Ready"), "the node is ready")
    cluster.until(path, lambda x: x["status"]["allocatable"].get("e2e.example/kvm") == "2", "the node has its devices")
    first = cluster.until(LEASE, bool, "the node has a lease")["spec"]["renewTime"]
    cluster.until(LEASE, lambda x: x["spec"]["renewTime"] > first, "the lease is renewed")


def _runs_pods(cluster: Cluster) -> None:
    api = cluster.api
    expression = f'device.driver == "{DRIVER}"'
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "fuse"}}
    api.ok(
        "POST",
        "/apis/resource.k8s.io/v1/deviceclasses",
        device_class | {"spec": {"selectors": [{"cel": {"expression": expression}}]}},
    )
    api.ok("POST", CLAIMS, claim("c", request("fuse")))
    asking = claiming("claims", SLEEP, claims={"device": "c"})
    plain = pod("plugin", SLEEP, {"e2e.example/kvm": 1})
    for each in (asking, plain):
        each["spec"] |= {"terminationGracePeriodSeconds": 20, "automountServiceAccountToken": False}
        api.ok("POST", PODS, each)
    for name in ("claims", "plugin"):
        running = cluster.until_phase(name, "Running")
        assert running["spec"]["nodeName"] == NODE
        assert _has(running["status"]["conditions"], "Ready")
    (result,) = api.ok("GET", f"{CLAIMS}/c")["status"]["allocation"]["devices"]["results"]
    assert result["driver"] == DRIVER
    for name in ("claims", "plugin"):
        marked = api.ok("DELETE", f"{PODS}/{name}")
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 20
        assert marked["metadata"]["deletionTimestamp"]
    for name in ("claims", "plugin"):
        cluster.until(f"{PODS}/{name}", lambda x: not x, f"{name} has ended", 30)
    reasons = {each["reason"] for each in api.ok("GET", "/api/v1/events")["items"]}
    assert {"Started", "Killing"} <= reasons
    cluster.until(f"{CLAIMS}/c", lambda x: not x["status"].get("reservedFor"), "nobody has the claim")
