"""Many restarts and updates: no pod gets stuck, no lease is lost, and nothing grows.

With `NODEPLUG_E2E_TIMES=50`, 200 restarts of the daemon, 50 updates and 50 restarts of the kubelet run instead of a
few. The figures are printed (`-rP`, or `-s`).
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from tests.e2e.allocatable import Allocatable
from tests.e2e.conftest import DaemonProcess
from tests.e2e.realnode import RELEASE, RealNode, pod

pytestmark = pytest.mark.e2e
TIMES = int(os.environ.get("NODEPLUG_E2E_TIMES", "5"))
LIMIT = 30 * TIMES + 120  # seconds
FUSE = "e2e.example/fuse"
RESOURCES = [{"name": FUSE, "select": "fuse", "shares": 4}]
HOLDER = ["pod/default/holder/c"]
HOLDS = "exec 3<>/dev/fuse && sleep 3600"


@pytest.fixture
def daemon(node: RealNode, tmp_path: Path) -> Iterator[DaemonProcess]:
    process = DaemonProcess(node, tmp_path, RESOURCES, lockWaitSeconds=60)
    process.start()
    try:
        node.wait_resource(FUSE, 4)
        yield process
    finally:
        process.end()
        # otherwise the next test would find the old holder
        names = ("holder", *(f"goes-{number}" for number in range(TIMES)))
        node.kubectl("delete", "pod", *names, "--ignore-not-found", "--grace-period=1", "--wait=true", timeout=LIMIT)
        node.wait_resource(FUSE, 0)


def hold(node: RealNode, name: str) -> None:
    node.apply(pod(name, HOLDS, {FUSE: 1}))
    node.wait(f"pod/{name}", ".status.phase", "Running", 60)


def open_files(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


@pytest.mark.timeout(LIMIT)
def test_lease_survives_daemon_restarts(node: RealNode, daemon: DaemonProcess) -> None:
    hold(node, "holder")
    took = []
    with Allocatable(node, FUSE) as allocatable:
        for number in range(4 * TIMES):
            daemon.end(signal.SIGKILL if number % 4 == 3 else signal.SIGTERM)
            allocatable.until(0)
            daemon.start()
            took.append(allocatable.until(4))
    show("restarts of the daemon", took, "from its start until all is allocatable")
    node.until(lambda: holders(daemon) == HOLDER, "the lease is the holder's", 60)
    hold(node, "goes-0")


def test_leases_are_restored_after_the_ledger_is_lost(node: RealNode, daemon: DaemonProcess) -> None:
    node.apply(pod("holder", HOLDS, {FUSE: 3}))
    node.until(lambda: holders(daemon) == 3 * HOLDER, "the leases are the holder's", 60)
    leased = {lease.unit: lease.exclusive for lease in daemon.leases()}
    daemon.end(signal.SIGKILL)
    shutil.rmtree(daemon.state)
    daemon.start()
    node.until(lambda: holders(daemon) == 3 * HOLDER, "the leases are the holder's again", 60)
    assert {lease.unit: lease.exclusive for lease in daemon.leases()} == leased
    hold(node, "goes-0")


@pytest.mark.timeout(LIMIT)
def test_devices_stay_allocatable_during_updates(node: RealNode, daemon: DaemonProcess) -> None:
    hold(node, "holder")
    took, gaps = [], []
    with Allocatable(node, FUSE) as allocatable:
        for _ in range(TIMES):
            began = time.monotonic()
            daemon.update(partial(until_registered, node, daemon, registrations(daemon) + 1))
            took.append(time.monotonic() - began)
            allocatable.until(4, steady=1.0)
            gaps.append(sum(allocatable.gaps(4, since=began)))
    show("updates", took, "from the new one's start to the old one's end")
    show("updates", gaps, "not all allocatable")
    if RELEASE.distinguishes_instances:
        assert not any(gaps)
    node.until(lambda: holders(daemon) == HOLDER, "the lease is the holder's", 60)
    hold(node, "goes-0")


@pytest.mark.timeout(LIMIT)
def test_leases_and_descriptors_do_not_grow_with_kubelet_restarts(node: RealNode, daemon: DaemonProcess) -> None:
    hold(node, "holder")
    files = open_files(daemon.pid)
    for number in range(TIMES):
        name = f"goes-{number}"
        hold(node, name)
        node.kubectl("delete", "pod", name, "--grace-period=1", f"--wait={'true' if number % 2 else 'false'}")
        node.restart_kubelet(f"default/{name}")
        node.wait_resource(FUSE, 4)
    node.until(lambda: holders(daemon) == HOLDER, "one lease, as at the start", 90)
    node.until(lambda: open_files(daemon.pid) <= files, f"{files} open files, as at the start", 30)
    print(f"kubelet restarts: {TIMES}; leases 1 and open files {files} before, {open_files(daemon.pid)} after")


def holders(daemon: DaemonProcess) -> list[str]:
    return [lease.holder for lease in daemon.leases()]


def registrations(daemon: DaemonProcess) -> int:
    return sum(line["message"] == "registered" for line in daemon.logged())


def until_registered(node: RealNode, daemon: DaemonProcess, times: int) -> None:
    node.until(lambda: registrations(daemon) >= times, "the new one is registered", period=0.02)


def show(what: str, seconds: list[float], meaning: str) -> None:
    """Print the figures."""
    print(f"{len(seconds)} {what}: {meaning} median {median(seconds):.2f} s, longest {max(seconds):.2f} s")
