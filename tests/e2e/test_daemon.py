"""The daemon on a real node: devices in pods, hotplug, restarts, and leftovers."""

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoint import kubelet_devices
from tests.e2e.conftest import DaemonProcess
from tests.e2e.realnode import NODE, RealNode, pod

pytestmark = pytest.mark.e2e
LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81


@pytest.fixture
def pods(node: RealNode) -> Iterator[list[str]]:
    """Names of pods that are deleted after the test."""
    names: list[str] = []
    yield names
    for name in names:
        node.delete_pod(name)


def run_to_end(node: RealNode, pods: list[str], name: str, command: str, **options: object) -> str:
    """Run a pod until it succeeds, and return its log."""
    pods.append(name)
    node.apply(pod(name, command, **options))  # type: ignore[arg-type]  # the options are pod()'s own
    node.wait(f"pod/{name}", ".status.phase", "Succeeded")
    return node.kubectl("logs", name)


def test_pod_opens_its_device_and_pod_without_a_device_cannot(
    node: RealNode, daemon: DaemonProcess, pods: list[str]
) -> None:
    opened = run_to_end(node, pods, "fuse", "exec 3<>/dev/fuse && echo opened", resources={"e2e.example/fuse": 1})
    assert opened == "opened\n"
    without = "mknod /tmp/f c 10 229; if (exec 3<>/tmp/f) 2>/dev/null; then echo opened; else echo refused; fi"
    assert run_to_end(node, pods, "no-fuse", without) == "refused\n"


def test_environment_and_mounts_are_in_the_container(node: RealNode, daemon: DaemonProcess, pods: list[str]) -> None:
    command = (
        "echo $FUSE_NODES; echo $NODEPLUG_E2E_EXAMPLE_FUSE; cat /from-host/hello;"
        " touch /from-host/x 2>/dev/null || echo read-only"  # the log can mix the two streams in any order
    )
    lines = run_to_end(node, pods, "env", command, resources={"e2e.example/fuse": 2}).splitlines()
    assert lines[0] == "/dev/fuse"
    assert len(lines[1].split(",")) == 2
    assert all(unit.startswith("misc-fuse.") for unit in lines[1].split(","))
    assert lines[2:] == ["from the host", "read-only"]


def test_device_from_a_cdi_spec_opens(node: RealNode, daemon: DaemonProcess, pods: list[str]) -> None:
    command = "exec 3<>/dev/kvm && echo opened"
    assert run_to_end(node, pods, "kvm", command, resources={"e2e.example/kvm": 1}) == "opened\n"


def test_non_root_container_opens_its_device(node: RealNode, daemon: DaemonProcess, pods: list[str]) -> None:
    command = "id -u; exec 3<>/dev/net/tun && echo opened"
    log = run_to_end(node, pods, "tun", command, resources={"e2e.example/tun": 1}, uid=1000)
    assert log == "1000\nopened\n"


def test_hotplug_changes_the_capacity_of_the_node(node: RealNode, daemon: DaemonProcess) -> None:
    before = int(node.capacity("e2e.example/loop")[1] or 0)
    with open("/dev/loop-control") as control:
        number = 77
        fcntl.ioctl(control, LOOP_CTL_ADD, number)
        try:
            node.wait_resource("e2e.example/loop", before + 1)
        finally:
            fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
    node.wait_resource("e2e.example/loop", before)


@pytest.mark.skipif(not shutil.which("ip"), reason="ip (iproute2) is not installed")
def test_network_link_is_offered_until_it_is_deleted(node: RealNode, daemon: DaemonProcess) -> None:
    subprocess.run(["ip", "link", "add", "npe2e0", "type", "veth", "peer", "name", "npe2e1"], check=True)
    try:
        node.wait_resource("e2e.example/veth", 2)
    finally:
        subprocess.run(["ip", "link", "del", "npe2e0"], check=True)
    node.wait_resource("e2e.example/veth", 0)


def test_pod_keeps_its_device_through_ten_kubelet_restarts(
    node: RealNode, daemon: DaemonProcess, pods: list[str]
) -> None:
    pods.append("holder")
    node.apply(pod("holder", "exec 3<>/dev/fuse && sleep 600", {"e2e.example/fuse": 1}))
    node.wait("pod/holder", ".status.phase", "Running")
    for _ in range(10):
        node.restart_kubelet()
        node.wait(f"node/{NODE}", r".status.conditions[?(@.type=='Ready')].status", "True")
        node.wait_resource("e2e.example/fuse", 4)
    status = node.get("pod", "holder")["status"]
    assert (status["phase"], status["containerStatuses"][0]["restartCount"]) == ("Running", 0)
    assert sum(line["message"] == "registered" for line in daemon.logged()) >= 11 * 3
    daemon.end()
    assert [lease.holder for lease in daemon.leases()] in (["pod/default/holder/c"], [""])


def test_killed_daemon_loses_no_lease(node: RealNode, daemon: DaemonProcess, pods: list[str]) -> None:
    pods.append("survivor")
    node.apply(pod("survivor", "exec 3<>/dev/fuse && sleep 600", {"e2e.example/fuse": 1}))
    node.wait("pod/survivor", ".status.phase", "Running")
    assert daemon.end(signal.SIGKILL) == -signal.SIGKILL
    (lease,) = daemon.leases()
    assert (lease.resource, lease.unit.partition(".")[0]) == ("e2e.example/fuse", "misc-fuse")
    daemon.start()
    node.wait_resource("e2e.example/fuse", 4)
    assert node.get("pod", "survivor")["status"]["phase"] == "Running"


def test_kubelet_checkpoint_names_the_leased_devices(node: RealNode, daemon: DaemonProcess, pods: list[str]) -> None:
    for name, resource in (("a", "e2e.example/fuse"), ("b", "e2e.example/kvm")):
        pods.append(name)
        node.apply(pod(name, "sleep 600", {resource: 1}))
    for name in ("a", "b"):
        node.wait(f"pod/{name}", ".status.phase", "Running")
    uids = {node.get("pod", name)["metadata"]["uid"] for name in ("a", "b")}
    checkpoint = kubelet_devices.decode((node.kubelet_dir / "device-plugins/kubelet_internal_checkpoint").read_bytes())
    theirs = {
        (entry.resource, unit)
        for entry in checkpoint.entries or ()
        if entry.pod_uid in uids
        for unit in entry.device_ids
    }
    daemon.end()
    assert {(lease.resource, lease.unit) for lease in daemon.leases()} == theirs


def test_devices_are_not_allocatable_after_the_daemon_stops(node: RealNode, daemon: DaemonProcess) -> None:
    assert daemon.end() == 0
    node.wait_resource("e2e.example/fuse", 0)
    assert node.capacity("e2e.example/fuse") == ("4", "0")
    assert not list((node.kubelet_dir / "device-plugins").glob("nodeplug-*"))


def test_daemon_registers_through_the_plugin_watcher(node: RealNode, tmp_path: Path, pods: list[str]) -> None:
    daemon = DaemonProcess(node, tmp_path, registerThroughPluginWatcher=True)
    daemon.start()
    try:
        node.wait_resource("e2e.example/fuse", 4)
        command = "exec 3<>/dev/fuse && echo opened"
        assert run_to_end(node, pods, "watcher", command, resources={"e2e.example/fuse": 1}) == "opened\n"
        node.restart_kubelet()
        node.wait_resource("e2e.example/fuse", 4)
    finally:
        assert daemon.end() == 0
    assert not os.listdir(node.kubelet_dir / "plugins_registry")
