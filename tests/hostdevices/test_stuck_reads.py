"""A read of /sys that does not return is a fault of one device, and blocks nothing else."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hostdevices import HEALTHY, Device, Health, HealthTracker, Host, Inventory, Scanner, scan
from hostdevices import reads as reads_module
from hostdevices.reads import Reads, StuckRead
from hostdevices.tree import Folder
from hostdevices.watching.watch import Change, Watcher
from tests.hostdevices.tree import Tree
from tests.leaks import LeakCheck

ROOT = Path(__file__).resolve().parents[2]
FIRST, SECOND = "/sys/devices/pci0000:00/0000:01:00.0", "/sys/devices/pci0000:00/0000:02:00.0"


class Hanging(Folder):
    """A tree in which reads of chosen files block until `release`."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root.resolve()))
        self._held: dict[str, threading.Event] = {}
        self.last_read: dict[threading.Thread, str] = {}
        self.reached = threading.Event()  # a read blocks

    def hold(self, path: str) -> None:
        self._held[path] = threading.Event()

    def release(self) -> None:
        held, self._held = self._held, {}
        for event in held.values():
            event.set()

    def read(self, path: str, limit: int) -> bytes | None:
        self.last_read[threading.current_thread()] = path
        if path in self._held:
            self.reached.set()
            self._held[path].wait(30)
        return super().read(path, limit)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two drives with a node each, and one misc device."""
    tree = Tree(tmp_path / "root")
    for number, name in enumerate(("0000:01:00.0", "0000:02:00.0")):
        drive = tree.pci(name, pci_class="010802", driver="nvme")
        tree.child(drive, f"nvme/nvme{number}", group="class/nvme", node=f"nvme{number}", state="live", serial="S1")
        tree.file(f"{drive}/aer_dev_fatal", "TOTAL_ERR_FATAL 0")
    tree.device("/sys/devices/virtual/misc/kvm", group="class/misc", node="kvm", numbers="10:232")
    return tree


@pytest.fixture
def hanging(tree: Tree) -> Iterator[Hanging]:
    files = Hanging(tree.root)
    yield files
    files.release()


@pytest.fixture
def host(tree: Tree, hanging: Hanging) -> Host:
    return Host(tree.root, hanging, Reads(limit=0.5))


@asynccontextmanager
async def watched(host: Host) -> AsyncIterator[Watcher]:
    tracker = HealthTracker(interval=0)
    enrich: Callable[[Inventory], Inventory] = lambda found: tracker.sample(host, found)  # noqa: E731 - as the daemon does
    async with Watcher(Scanner(host), [], enrich=enrich) as watcher:
        yield watcher


async def until(watcher: Watcher, is_so: Callable[[dict[str, Device]], bool]) -> Change:
    async with asyncio.timeout(30):
        while True:
            change = await anext(watcher)
            if is_so(dict(change.inventory.devices)):
                return change


async def sample_often(watcher: Watcher) -> None:
    """Sample health repeatedly, as the daemon does every few seconds."""
    while True:
        watcher.request_rescan([])
        await asyncio.sleep(0.01)


def stuck(path: str) -> Health:
    return Health(False, f"reading {path} does not return")


async def test_stuck_health_read_makes_one_device_unhealthy_until_it_returns(
    tree: Tree, hanging: Hanging, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(host) as watcher:
        await until(watcher, lambda devices: devices["nvme-0000-01-00-0"].health == HEALTHY)
        hanging.hold(f"{FIRST}/aer_dev_fatal")
        watcher.request_rescan([])
        change = await until(watcher, lambda devices: not devices["nvme-0000-01-00-0"].health.healthy)
        health = {identity: device.health for identity, device in change.inventory.devices.items()}
        assert health.pop("nvme-0000-01-00-0") == stuck(f"{FIRST}/aer_dev_fatal")
        assert health.pop("pci-0000-01-00-0") == stuck(f"{FIRST}/aer_dev_fatal")
        assert set(health.values()) == {HEALTHY}
        assert [read.path for read in watcher.stuck_reads] == [f"{FIRST}/aer_dev_fatal"]
        assert watcher.scan_seconds >= 0.5

        tree.file(f"{SECOND}/nvme/nvme1/state", "dead")  # sampling continues
        async with asyncio.TaskGroup() as tasks:
            sampling = tasks.create_task(sample_often(watcher))
            change = await until(watcher, lambda devices: not devices["nvme-0000-02-00-0"].health.healthy)
            sampling.cancel()
        assert "its state is dead" in change.inventory.devices["nvme-0000-02-00-0"].health.reason

        hanging.release()
        tree.file(f"{SECOND}/nvme/nvme1/state", "live")
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            sampling = tasks.create_task(sample_often(watcher))
            await until(watcher, lambda devices: all(device.health == HEALTHY for device in devices.values()))
            sampling.cancel()
    assert "reading /sys/devices/pci0000:00/0000:01:00.0/aer_dev_fatal returned after" in caplog.text


async def test_known_device_stays_unhealthy_while_its_read_is_stuck(tree: Tree, hanging: Hanging, host: Host) -> None:
    async with watched(host) as watcher:
        before = (await anext(watcher)).inventory.devices
        hanging.hold(f"{FIRST}/nvme/nvme0/serial")
        tree.device("/sys/devices/virtual/misc/fuse", group="class/misc", node="fuse", numbers="10:229")
        watcher.request_rescan()
        change = await until(watcher, lambda devices: "misc-fuse" in devices)
        reason = stuck(f"{FIRST}/nvme/nvme0/serial")
        after = change.inventory.devices
        assert after["nvme-0000-01-00-0"].health == reason
        assert after["nvme-0000-01-00-0"].attributes == before["nvme-0000-01-00-0"].attributes
        assert after["nvme-0000-02-00-0"] == before["nvme-0000-02-00-0"]
        assert reason.reason in {problem.reason for problem in change.inventory.problems}
        hanging.release()  # everything is read again
        change = await until(watcher, lambda devices: devices["nvme-0000-01-00-0"].health == HEALTHY)
        assert change.inventory.problems == ()


async def test_new_device_is_a_problem_while_its_read_is_stuck(hanging: Hanging, host: Host) -> None:
    hanging.hold(f"{FIRST}/vendor")
    async with watched(host) as watcher:
        async with asyncio.timeout(30):
            inventory, _ = await anext(watcher)
        assert set(inventory.devices) == {"misc-kvm", "nvme-0000-02-00-0", "pci-0000-02-00-0"}
        assert {problem.where for problem in inventory.problems} == {FIRST, f"{FIRST}/nvme/nvme0"}


async def test_at_most_one_read_is_stuck_per_function(tree: Tree, hanging: Hanging, host: Host) -> None:
    hanging.hold(f"{FIRST}/nvme/nvme0/state")  # a file of one device
    hanging.hold(f"{FIRST}/aer_dev_fatal")  # a file of another device
    hanging.hold(f"{SECOND}/device")
    async with watched(host) as watcher:
        async with asyncio.timeout(30):
            await anext(watcher)
        assert [read.path for read in watcher.stuck_reads] == [f"{SECOND}/device", f"{FIRST}/nvme/nvme0/state"]


class ReadsWithFullEvent(Reads):
    """Signals when the limit of stuck reads is reached, so that no further thread starts."""

    def __init__(self) -> None:
        super().__init__(limit=0.3)
        self.full = asyncio.Event()

    def add(self, stuck: StuckRead) -> None:
        super().add(stuck)
        if self.is_full:
            self.full.set()


async def test_number_of_stuck_threads_is_bounded(
    tree: Tree, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads_module, "MAX_STUCK", 3)
    for number in range(8):
        hanging.hold(f"{tree.pci(f'0000:aa:{number:02x}.0')}/vendor")
    reads = ReadsWithFullEvent()
    since = LeakCheck()
    async with watched(Host(tree.root, hanging, reads)) as watcher:
        pending = asyncio.ensure_future(anext(watcher))
        await asyncio.wait_for(reads.full.wait(), 30)
        await asyncio.wait([pending], timeout=0.5)  # time in which more threads could start
        assert len(watcher.stuck_reads) == 3
        assert len(since.threads()) <= 4
        hanging.release()
        inventory, _ = await asyncio.wait_for(pending, 30)
        assert "misc-kvm" in inventory.devices


async def test_watcher_closes_without_waiting_for_stuck_read(tree: Tree, hanging: Hanging) -> None:
    hanging.hold(f"{FIRST}/vendor")
    async with watched(Host(tree.root, hanging)) as watcher:
        pending = asyncio.ensure_future(anext(watcher))
        await asyncio.to_thread(hanging.reached.wait, 10)
        pending.cancel()
    (thread,) = (thread for thread, path in hanging.last_read.items() if path == f"{FIRST}/vendor")
    assert thread.is_alive()
    hanging.release()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
    assert hanging.last_read[thread] == f"{FIRST}/vendor"  # its scan stopped there


def test_scan_omits_device_whose_read_is_stuck(hanging: Hanging, host: Host) -> None:
    hanging.hold(f"{FIRST}/vendor")
    inventory = scan(host)
    assert "pci-0000-02-00-0" in inventory.devices
    assert f"reading {FIRST}/vendor does not return" in {problem.reason for problem in inventory.problems}


ENDLESS = """
import asyncio, sys, threading
from hostdevices import Host, Scanner
from hostdevices.tree import Folder
from hostdevices.watching.watch import Watcher

class Endless(Folder):
    def read(self, path, limit):
        threading.Event().wait()

async def main():
    async with Watcher(Scanner(Host(sys.argv[1], Endless(sys.argv[1]))), []) as watcher:
        try:
            async with asyncio.timeout(0.1):
                await anext(watcher)
        except TimeoutError:
            print("the loop goes on")

asyncio.run(main())
"""


def test_process_exits_while_a_read_is_stuck(tree: Tree) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS, str(tree.root.resolve())], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the loop goes on\n", "")
