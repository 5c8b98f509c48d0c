"""Holders on a real node: without an API server, after a deletion by force, and between the two APIs."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.claims import claim, claiming, request
from tests.e2e.cluster import Cluster, device_classes, dra_daemon, offering
from tests.e2e.conftest import DaemonProcess
from tests.e2e.realnode import RealNode, pod

pytestmark = pytest.mark.e2e
PASSES = 40.0  # seconds, enough for at least one pass of the reconciler
FUSE = {"name": "e2e.example/fuse", "select": "fuse"}
KVM = {"name": "e2e.example/kvm", "select": "kvm", "api": "both"}
TUN = {"name": "e2e.example/tun", "select": "tun", "api": "both"}
UNIFIED = Path("/sys/fs/cgroup/unified")
IN_UNIFIED = ["unshare", "--mount", "sh", "-c", f'mount --bind {UNIFIED} /sys/fs/cgroup && exec "$0" "$@"']
HOLDS = "exec 3<>/dev/{} && sleep 3600"


@pytest.fixture(scope="module")
def classes(node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with device_classes(node, dra_daemon(node, tmp_path_factory.mktemp("classes"), [KVM, TUN])):
        yield


@pytest.fixture
def cluster(node: RealNode, classes: None, tmp_path: Path) -> Iterator[Cluster]:
    with offering(node, dra_daemon(node, tmp_path, [FUSE, KVM, TUN])) as started:
        started.until_published("kvm", "tun")
        node.wait_resource("e2e.example/fuse", 1)
        yield started


def holders(cluster: Cluster) -> dict[str, str]:
    """The pod or claim that holds each device."""
    return {lease.unit: "/".join(lease.holder.split("/")[:3]) for lease in cluster.daemon.leases()}


def registrations(cluster: Cluster) -> int:
    return sum(line["message"].startswith("registered") for line in cluster.daemon.logged())


def runs(cluster: Cluster, name: str) -> bool:
    """Return whether a pod's container is still running without a restart."""
    status = cluster.node.get("pod", name)["status"]
    return (status["phase"], status["containerStatuses"][0]["restartCount"]) == ("Running", 0)


@pytest.mark.parametrize("daemon_restarts", [False, True], ids=["daemon stays", "daemon restarts"])
def test_leases_and_specs_stay_while_the_api_server_is_down(cluster: Cluster, daemon_restarts: bool) -> None:
    node = cluster.node
    cluster.make(pod("plugin-pod", HOLDS.format("fuse"), {"e2e.example/fuse": 1}))
    cluster.make(pod("tun-pod", HOLDS.format("net/tun"), {"e2e.example/tun": 1}))
    cluster.make(claim("has", request("kvm.e2e.example")), claim("waits", request("tun.e2e.example")))
    cluster.make(claiming("claim-pod", HOLDS.format("kvm"), claims={"kvm": "has"}))
    for name in ("plugin-pod", "tun-pod", "claim-pod"):
        cluster.running(name)
    node.until(lambda: cluster.is_kept_from_claims("misc-tun"), "claims are kept from what a pod has")
    cluster.make(claiming("waiting", HOLDS.format("net/tun"), claims={"tun": "waits"}))
    node.until_event("waiting", "FailedScheduling")
    expected = {
        "misc-fuse": "pod/default/plugin-pod",
        "misc-tun": "pod/default/tun-pod",
        "misc-kvm": "claim/default/has",
    }
    node.until(lambda: holders(cluster) == expected, "the daemon knows who has what")
    files = cluster.cdi_files()
    assert files
    with node.without_api_server() as back:
        if daemon_restarts:
            cluster.daemon.end()
            cluster.daemon.start()
        node.always(lambda: holders(cluster) == expected and cluster.cdi_files() == files, PASSES)
        back()
    node.always(lambda: holders(cluster) == expected and cluster.cdi_files() == files, 5.0)
    assert all(runs(cluster, name) for name in ("plugin-pod", "tun-pod", "claim-pod"))
    assert node.get("pod", "waiting")["status"]["phase"] == "Pending"
    node.delete_pod("tun-pod")
    cluster.running("waiting")
    node.delete_pod("plugin-pod")
    node.delete_pod("claim-pod")
    node.until(lambda: holders(cluster) == {"misc-tun": "claim/default/waits"}, "what ended is free")


@contextlib.contextmanager
def endless_process(uid: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a pod's cgroup that the kubelet does not end, as one that the kernel cannot end.

    The cgroup is in the unified hierarchy, where the kernel reports processes; the kubelet here uses the old ones.
    """
    folder = UNIFIED / "kubepods" / f"pod{uid}"
    folder.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "3600"])
    try:
        (folder / "cgroup.procs").write_text(str(process.pid))
        yield process
    finally:
        process.kill()
        process.wait()
        folder.rmdir()
        folder.parent.rmdir()


@pytest.mark.skipif(not (UNIFIED / "cgroup.controllers").exists(), reason="this host has no hybrid cgroups")
def test_device_of_force_deleted_pod_is_unavailable_while_it_runs(node: RealNode, tmp_path: Path) -> None:
    daemon = DaemonProcess(node, tmp_path, [FUSE], wrapper=IN_UNIFIED)
    with offering(node, daemon) as cluster:
        node.until(lambda: registrations(cluster), "it is registered")  # the node's status can be an older daemon's
        node.wait_resource("e2e.example/fuse", 1)
        cluster.make(pod("first", HOLDS.format("fuse"), {"e2e.example/fuse": 1}))
        cluster.running("first")
        with endless_process(node.get("pod", "first")["metadata"]["uid"]) as process:
            node.until(lambda: holders(cluster) == {"misc-fuse": "pod/default/first"}, "the daemon knows who has it")
            node.kubectl("delete", "pod", "first", "--force", "--grace-period=0")
            cluster.make(pod("second", HOLDS.format("fuse"), {"e2e.example/fuse": 1}))
            node.wait("pod/second", ".status.reason", "UnexpectedAdmissionError")
            assert "pod default/first still runs with it" in node.get("pod", "second")["status"]["message"]
            node.wait_resource("e2e.example/fuse", 0)
            cluster.make(pod("third", HOLDS.format("fuse"), {"e2e.example/fuse": 1}))
            node.until_event("third", "FailedScheduling")
            daemon.end()
            before = registrations(cluster)
            daemon.start()
            node.until(lambda: registrations(cluster) > before, "the next daemon is registered")
            node.restart_kubelet()
            node.always(lambda: node.get("pod", "third")["status"]["phase"] == "Pending", 5.0)
            process.kill()
            process.wait()
            cluster.running("third")


def offerings(cluster: Cluster) -> int:
    """The number of configurations that the daemon has started to offer."""
    return sum(line["message"].startswith("offering ") for line in cluster.daemon.logged())


@pytest.mark.parametrize("how", ["restart", "reload"])
def test_device_moves_between_apis_only_after_its_pod_ends(cluster: Cluster, how: str) -> None:
    node = cluster.node

    def offer(api: str) -> None:
        resource: dict[str, Any] = {**TUN, "api": api}
        begun = offerings(cluster)
        cluster.daemon.configure([KVM, resource])
        if how == "reload":
            node.until(lambda: offerings(cluster) > begun, "the file is read again")
            return
        cluster.daemon.end()
        before = registrations(cluster)
        cluster.daemon.start()
        # the node's status and the slices are useless here: the old ones still exist
        node.until(lambda: registrations(cluster) >= before + 3, "it is registered: both resources, and the driver")

    def has(pod_or_claim: str) -> bool:
        return holders(cluster) == {"misc-tun": pod_or_claim}

    offer("device-plugin")
    cluster.make(pod("first", HOLDS.format("net/tun"), {"e2e.example/tun": 1}))
    cluster.running("first")
    cluster.make(claim("tun", request("tun.e2e.example")))
    cluster.make(claiming("second", HOLDS.format("net/tun"), claims={"tun": "tun"}))
    node.until(lambda: has("pod/default/first"), "the first pod has it")
    offer("both")
    node.until(lambda: cluster.is_kept_from_claims("misc-tun"), "claims are kept from it while the first pod has it")
    offer("dra")
    node.wait_resource("e2e.example/tun", 0)
    node.always(lambda: has("pod/default/first"), PASSES)
    assert runs(cluster, "first")
    assert node.get("pod", "second")["status"]["phase"] == "Pending"
    node.delete_pod("first")
    cluster.running("second")
    assert has("claim/default/tun")
    offer("device-plugin")
    cluster.make(pod("third", HOLDS.format("net/tun"), {"e2e.example/tun": 1}))
    node.always(lambda: has("claim/default/tun"), PASSES)
    assert runs(cluster, "second")
    assert node.get("pod", "third")["status"]["phase"] == "Pending"
    assert cluster.cdi_files()
    node.delete_pod("second")
    cluster.running("third")
    node.delete_pod("third")
    node.until(lambda: not cluster.daemon.leases(), "nothing is leased")
