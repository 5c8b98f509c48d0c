"""The watcher: what triggers a scan, how often scans run, and that all resources are released."""

import asyncio
import contextlib
import errno
import itertools
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hostdevices import Device, Host, Inventory, Scanner
from hostdevices.readers import READERS, Reader
from hostdevices.recording import Entry, packed
from hostdevices.watching.uevents import Gaps, Wake
from hostdevices.watching.watch import NEVER, Change, ScanThrottle, Watcher, default_sources
from tests.descriptors import no_more_descriptors
from tests.hostdevices.machine import interface
from tests.hostdevices.tree import Tree
from tests.leaks import LeakCheck
from tests.running import until
from tests.threads import no_more_threads


class ManualSource:
    """A source that tests trigger."""

    def __init__(self) -> None:
        self._wake: Wake = lambda *_: None
        self.closed = False

    def start(self, wake: Wake) -> None:
        self._wake = wake

    def trigger(self, subsystem: str | None, syspath: str = "") -> None:
        self._wake(subsystem, syspath)

    def close(self) -> None:
        self.closed = True


def reader(kind: str, *subsystems: str, seen: Callable[[], None] = lambda: None) -> Reader:
    """A reader of /sys/class/KIND that calls `seen` at each read."""

    def read(host: Host) -> Iterator[Device]:
        seen()
        for name in host.list(f"/sys/class/{kind}"):
            yield Device(id=f"{kind}-{name}", kind=kind, name=name)

    return Reader(kind, frozenset(subsystems or (kind,)), read)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for kind in ("misc", "pci"):
        (tmp_path / "sys/class" / kind).mkdir(parents=True)
    return tmp_path


def add(root: Path, kind: str, *names: str) -> None:
    for name in names:
        (root / "sys/class" / kind / name).mkdir()


def ids(change: Change) -> list[str]:
    return [device.id for device in change.diff.added]


async def next_change(watcher: Watcher) -> Change:
    return await asyncio.wait_for(anext(watcher), 30)


async def test_first_change_has_all_devices_and_later_changes_the_difference(root: Path) -> None:
    add(root, "misc", "fuse")
    source = ManualSource()
    async with Watcher(Scanner(Host(root), [reader("misc")]), [source]) as watcher:
        assert ids(await next_change(watcher)) == ["misc-fuse"]
        add(root, "misc", "kvm")
        source.trigger("misc")
        inventory, difference = await next_change(watcher)
        assert list(inventory.devices) == ["misc-fuse", "misc-kvm"]
        assert [device.id for device in difference.added] == ["misc-kvm"]
        (root / "sys/class/misc/fuse").rmdir()
        source.trigger("misc")
        assert [device.id for device in (await next_change(watcher)).diff.removed] == ["misc-fuse"]


async def test_event_runs_only_readers_of_its_subsystem(root: Path) -> None:
    reads: list[str] = []
    readers = [reader(kind, seen=lambda kind=kind: reads.append(kind)) for kind in ("misc", "pci")]  # type: ignore[misc]  # a default binds the loop's value
    source = ManualSource()
    async with Watcher(Scanner(Host(root), readers), [source]) as watcher:
        await next_change(watcher)
        reads.clear()
        add(root, "pci", "0000:00:01.0")
        source.trigger("queues")  # no reader uses this subsystem
        source.trigger("pci")
        assert ids(await next_change(watcher)) == ["pci-0000:00:01.0"]
        assert reads == ["pci"]


async def test_renamed_interface_updates_pf_name_of_virtual_functions(tmp_path: Path) -> None:
    """The kernel sends only the interface's own event."""
    tree = Tree(tmp_path / "root")
    card = tree.pci("0000:3b:00.0", pci_class="020000", driver="mlx5_core", sriov_totalvfs=8)
    interface(tree, card, "eth0", mac="b8:ce:f6:00:00:01")
    virtual = tree.virtual_function(card, "0000:3b:00.2", 0, pci_class="020000", driver="mlx5_core")
    interface(tree, virtual, "eth1", mac="b8:ce:f6:00:00:02")
    reads: list[str] = []
    source = ManualSource()
    readers = [*READERS, reader("misc", "pci", seen=lambda: reads.append("pci"))]
    async with Watcher(Scanner(tree.host, readers), [source], interval=NEVER) as watcher:
        assert (await next_change(watcher)).inventory.devices["pci-0000-3b-00-2"].attributes["pfName"] == "eth0"
        tree.path(f"{card}/net/eth0").rename(tree.path(f"{card}/net/ens1f0"))
        tree.path("/sys/class/net/eth0").unlink()
        tree.link("/sys/class/net/ens1f0", f"{card}/net/ens1f0")
        source.trigger("net", f"{card}/net/ens1f0")
        devices = (await next_change(watcher)).inventory.devices
        assert {devices[x].attributes["pfName"] for x in ("pci-0000-3b-00-2", "nic-0000-3b-00-2")} == {"ens1f0"}
        reads.clear()
        tree.path("/sys/class/net/eth1").unlink()
        source.trigger("net", f"{virtual}/net/eth1")  # as when a pod gets the interface
        assert [x.id for x in (await next_change(watcher)).diff.removed] == ["nic-0000-3b-00-2"]
        assert reads == []


async def test_lost_events_run_all_readers(root: Path) -> None:
    source = ManualSource()
    async with Watcher(Scanner(Host(root), [reader("misc"), reader("pci")]), [source]) as watcher:
        await next_change(watcher)
        add(root, "misc", "kvm")
        add(root, "pci", "0000:00:01.0")
        source.trigger(None)
        assert ids(await next_change(watcher)) == ["misc-kvm", "pci-0000:00:01.0"]


async def test_rescan_finds_change_without_event(root: Path) -> None:
    async with Watcher(Scanner(Host(root), [reader("misc")]), [], interval=0.02) as watcher:
        await next_change(watcher)
        add(root, "misc", "kvm")
        assert ids(await next_change(watcher)) == ["misc-kvm"]


async def test_requested_rescan_runs_while_waiting(root: Path) -> None:
    async with Watcher(Scanner(Host(root), [reader("misc")]), [], interval=NEVER) as watcher:
        await next_change(watcher)
        add(root, "misc", "kvm")
        waiting = asyncio.ensure_future(next_change(watcher))
        await asyncio.sleep(0)
        watcher.request_rescan()
        assert ids(await waiting) == ["misc-kvm"]


async def test_rescan_of_no_subsystem_runs_only_enrich(root: Path) -> None:
    reads: list[None] = []
    temperature = ["20"]

    def measure(inventory: Inventory) -> Inventory:
        return Inventory.of([*inventory.devices.values(), Device(id="sensor", kind="hwmon", name=temperature[0])])

    scanner = Scanner(Host(root), [reader("misc", seen=lambda: reads.append(None))])
    async with Watcher(scanner, [], enrich=measure) as watcher:
        await next_change(watcher)
        temperature[0] = "30"
        watcher.request_rescan(())
        assert [device.name for device in (await next_change(watcher)).diff.changed] == ["30"]
        assert len(reads) == 1


async def test_nvidia_node_created_without_uevent_is_found(root: Path) -> None:
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "sys/class/gpu").mkdir()
    (root / "dev").mkdir()
    host = Host(root)
    async with Watcher(Scanner(host, [reader("gpu", "drm")]), default_sources(host), interval=NEVER) as watcher:
        await next_change(watcher)
        add(root, "gpu", "card0")
        (root / "dev/nvidia0").touch()
        assert ids(await next_change(watcher)) == ["gpu-card0"]


def test_capture_has_no_event_sources(tmp_path: Path) -> None:
    file = tmp_path / "node.jsonl.gz"
    file.write_bytes(packed([Entry("/sys/class", "there"), Entry("/proc/driver/nvidia", "there")], masked=False))
    assert default_sources(Host(file), ["/dev/*"]) == []


async def test_event_without_a_difference_yields_no_change(root: Path) -> None:
    read = threading.Semaphore(0)
    source = ManualSource()
    async with Watcher(Scanner(Host(root), [reader("misc", seen=lambda: read.release())]), [source]) as watcher:
        await next_change(watcher)
        await asyncio.to_thread(read.acquire)
        waiting = asyncio.ensure_future(next_change(watcher))
        source.trigger("misc")
        await asyncio.to_thread(read.acquire)  # the scan has run
        add(root, "misc", "kvm")
        source.trigger("misc")
        assert ids(await waiting) == ["misc-kvm"]


async def test_512_added_vfs_yield_at_most_5_changes(root: Path) -> None:
    source = ManualSource()
    changes: list[Change] = []
    async with Watcher(Scanner(Host(root), [reader("pci")]), [source]) as watcher:
        await next_change(watcher)

        async def consume() -> None:
            while len(watcher.inventory.devices if watcher.inventory else ()) < 512:
                changes.append(await next_change(watcher))

        consumer = asyncio.ensure_future(consume())
        for number in range(512):
            add(root, "pci", f"vf{number}")
            source.trigger("pci")
            await asyncio.sleep(0)  # lets the loop and the scan run
        await consumer
    assert sum(len(change.diff.added) for change in changes) == 512
    assert len(changes) <= 5


async def test_20000_events_use_little_memory_and_lose_no_device(root: Path) -> None:
    def read(host: Host) -> Iterator[Device]:
        yield Device(id="misc-kvm", kind="misc", name=host.read("/sys/class/misc/kvm/name") or "")

    add(root, "misc", "kvm")
    name = root / "sys/class/misc/kvm/name"
    name.write_text("old")
    source = ManualSource()
    async with Watcher(Scanner(Host(root), [Reader("misc", frozenset({"misc"}), read)]), [source]) as watcher:
        await next_change(watcher)
        name.write_text("new")
        tracemalloc.start()
        for number in range(20_000):
            source.trigger("misc", f"/sys/{number:05}{'x' * 2000}")  # 2 KiB, the longest event of the kernel
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        source.trigger("misc", "/sys/class/misc/kvm")
        assert [device.name for device in (await next_change(watcher)).diff.changed] == ["new"]
    assert taken < 10 << 20


async def test_slow_consumer_gets_merged_changes(root: Path) -> None:
    source = ManualSource()
    async with Watcher(Scanner(Host(root), [reader("misc")]), [source]) as watcher:
        await next_change(watcher)
        for name in "abc":
            add(root, "misc", name)
            source.trigger("misc")
        assert ids(await next_change(watcher)) == ["misc-a", "misc-b", "misc-c"]
        add(root, "misc", "d")
        source.trigger("misc")
        assert ids(await next_change(watcher)) == ["misc-d"]


async def test_cancelled_wait_loses_no_change(root: Path) -> None:
    source, inside, released = ManualSource(), threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        released.wait(5)

    released.set()
    async with Watcher(Scanner(Host(root), [reader("misc", seen=hold)]), [source]) as watcher:
        await next_change(watcher)
        inside.clear()
        released.clear()
        add(root, "misc", "kvm")
        source.trigger("misc")
        waiting = asyncio.ensure_future(next_change(watcher))
        await asyncio.to_thread(inside.wait, 5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        released.set()
        assert ids(await next_change(watcher)) == ["misc-kvm"]


async def test_enrich_runs_before_inventories_are_compared(root: Path) -> None:
    def hide_kvm(inventory: Inventory) -> Inventory:
        return Inventory.of(device for device in inventory.devices.values() if device.name != "kvm")

    source = ManualSource()
    async with Watcher(Scanner(Host(root), [reader("misc")]), [source], enrich=hide_kvm) as watcher:
        await next_change(watcher)
        add(root, "misc", "kvm", "fuse")
        source.trigger("misc")
        assert ids(await next_change(watcher)) == ["misc-fuse"]


async def test_failed_reader_is_a_problem_and_others_continue(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(host: Host) -> Iterator[Device]:
        yield Device(id="pci-first", kind="pci", name="first")
        raise ValueError("no such luck")

    add(root, "misc", "kvm")
    scanner = Scanner(Host(root), [Reader("pci", frozenset({"pci"}), fail), reader("misc")])
    async with Watcher(scanner, []) as watcher:
        inventory, _ = await next_change(watcher)
    assert list(inventory.devices) == ["misc-kvm", "pci-first"]
    (problem,) = inventory.problems
    assert (problem.where, problem.reason, problem.hidden_kind) == ("reader pci", "ValueError: no such luck", "pci")
    scanner.scan()
    assert [x.message for x in caplog.records] == ["reader pci failed"]  # logged once


async def test_idle_watcher_has_no_thread_and_closes_its_sources(root: Path) -> None:
    source = ManualSource()
    since = LeakCheck()
    async with Watcher(Scanner(Host(root), [reader("misc")]), [source]) as watcher:
        await next_change(watcher)
        await asyncio.to_thread(join_all, since.threads())
        assert watcher.scan_seconds > 0
    assert source.closed


def join_all(threads: set[threading.Thread]) -> None:
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


async def test_unavailable_source_is_logged_and_others_are_used(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    class UnavailableSource(ManualSource):
        def start(self, wake: Wake) -> None:
            raise PermissionError("netlink refused")

    source = ManualSource()
    async with Watcher(Scanner(Host(root), [reader("misc")]), [UnavailableSource(), source]) as watcher:
        await next_change(watcher)
        add(root, "misc", "kvm")
        source.trigger("misc")
        assert ids(await next_change(watcher)) == ["misc-kvm"]
    assert "no UnavailableSource (netlink refused): changes wait for a rescan" in caplog.text


class TestScanThrottle:
    """The throttle alone, with a fake clock."""

    def test_first_event_after_quiet_time_is_due_at_once(self) -> None:
        throttle = ScanThrottle()
        assert throttle.due() == NEVER
        throttle.event(100.0)
        assert throttle.due() <= 100.0
        throttle.scanning()
        throttle.scanned(100.1, changed=True)
        assert throttle.due() == NEVER
        throttle.event(100.1 + ScanThrottle.QUIET)
        assert throttle.due() <= 100.1 + ScanThrottle.QUIET

    @pytest.mark.parametrize(("seconds", "most"), [(0.5, 4), (4, 4), (9, 5)])
    def test_burst_causes_few_scans(self, seconds: float, most: int) -> None:
        assert len(scans(seconds, changed=True)) <= most

    def test_last_event_of_a_burst_is_scanned_within_quiet_time(self) -> None:
        assert scans(3.0, changed=True)[-1] == pytest.approx(103.0 + ScanThrottle.QUIET, abs=0.02)

    def test_events_without_changes_cause_regular_scans(self) -> None:
        times = scans(20.0, changed=False)
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert len(times) < 100
        assert max(gaps) < 0.3


def scans(seconds: float, *, changed: bool) -> list[float]:
    """Return the times of the scans for a burst with an event every 10 ms from 100.0 on."""
    throttle, found = ScanThrottle(), []
    for tick in range(int((seconds + 10) * 1000)):
        now = 100 + tick / 1000
        if tick % 10 == 0 and tick <= seconds * 1000:
            throttle.event(now)
        if throttle.due() <= now:
            found.append(now)
            throttle.scanning()
            throttle.scanned(now, changed)
    return found


class TestGaps:
    """Sequence numbers of events."""

    def test_gap_is_counted_until_late_event_arrives(self) -> None:
        gaps = Gaps()
        for number in (7, 8, 11, 9):
            gaps.note(number)
        assert gaps.missing == 1
        gaps.note(10)
        assert gaps.missing == 0

    def test_first_event_and_events_without_number_cause_no_gap(self) -> None:
        gaps = Gaps()
        for number in (1000, 0, 1001):
            gaps.note(number)
        assert gaps.missing == 0


async def test_watcher_keeps_devices_and_retries_without_descriptors(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hostdevices.watching.watch.RETRY_INTERVAL", 0.02)
    calls: list[None] = []
    add(root, "misc", "fuse")
    scanner = Scanner(Host(root), [reader("misc", seen=lambda: calls.append(None))])
    source = ManualSource()
    async with Watcher(scanner, [source], interval=NEVER) as watcher:
        await next_change(watcher)
        waiting = asyncio.ensure_future(next_change(watcher))
        await asyncio.sleep(0)
        with no_more_descriptors():
            add(root, "misc", "kvm")
            source.trigger("misc")
            await until(lambda: len(calls) > 3)
        change = await waiting
    assert ids(change) == ["misc-kvm"]
    assert not change.diff.removed
    assert [x.message.partition(":")[0] for x in caplog.records] == ["the host cannot be read"]


async def test_enrich_without_descriptors_yields_no_change(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Health is sampled without a scan. An unreadable host is no fault of a device."""
    monkeypatch.setattr("hostdevices.watching.watch.RETRY_INTERVAL", 0.02)
    add(root, "misc", "fuse")
    calls: list[None] = []

    def enrich(inventory: Inventory) -> Inventory:
        calls.append(None)
        return inventory if Host(root).list("/sys/class/misc") else Inventory()

    async with Watcher(Scanner(Host(root), [reader("misc")]), [], interval=NEVER, enrich=enrich) as watcher:
        await next_change(watcher)
        waiting = asyncio.ensure_future(next_change(watcher))
        await asyncio.sleep(0)
        with no_more_descriptors():
            watcher.request_rescan([])
            await until(lambda: len(calls) > 1 and caplog.records)
        assert not waiting.done()
        waiting.cancel()
    assert [x.message.partition(":")[0] for x in caplog.records] == ["the host cannot be read"]


async def test_watcher_keeps_devices_and_retries_when_enrich_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last inventory stays valid; the defect is logged once, with a traceback."""
    monkeypatch.setattr("hostdevices.watching.watch.RETRY_INTERVAL", 0.02)
    add(root, "misc", "fuse")
    calls: list[None] = []

    def enrich(inventory: Inventory) -> Inventory:
        calls.append(None)
        if 1 < len(calls) < 4:
            raise OSError(errno.EIO, "a library's own folder")
        return inventory

    async with Watcher(Scanner(Host(root), [reader("misc")]), [], interval=NEVER, enrich=enrich) as watcher:
        await next_change(watcher)
        add(root, "misc", "kvm")
        watcher.request_rescan()
        waiting = asyncio.ensure_future(next_change(watcher))
        await until(lambda: watcher.problem)
        assert watcher.problem == "the scan failed: OSError: [Errno 5] a library's own folder"
        change = await waiting
        assert watcher.problem == ""
    assert ids(change) == ["misc-kvm"]
    assert not change.diff.removed
    assert [x.message for x in caplog.records] == [
        "the scan failed: devices keep their last state; nodeplug tries again every 0.02 s"
    ]
    assert "a library's own folder" in caplog.text


async def test_source_without_descriptors_is_started_by_next_full_scan(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A configuration reload restarts all sources, even when no descriptor is left."""

    class OpeningSource(ManualSource):
        def start(self, wake: Wake) -> None:
            os.close(os.open("/", os.O_PATH))
            super().start(wake)

    source = OpeningSource()
    watcher = Watcher(Scanner(Host(root), [reader("misc")]), [source], interval=NEVER)
    with no_more_descriptors():
        await watcher.__aenter__()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_exit(watcher)
        await next_change(watcher)
        add(root, "misc", "kvm")
        source.trigger("misc")
        assert ids(await next_change(watcher)) == ["misc-kvm"]
    assert [x.message for x in caplog.records] == [
        "no OpeningSource ([Errno 24] Too many open files: '/'): changes wait for a rescan"
    ]


async def test_watcher_keeps_devices_and_retries_without_threads(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For example, a pod that forks without end uses all threads."""
    monkeypatch.setattr("hostdevices.watching.watch.RETRY_INTERVAL", 0.02)
    add(root, "misc", "fuse")
    source = ManualSource()
    async with Watcher(Scanner(Host(root), [reader("misc")]), [source], interval=NEVER) as watcher:
        await next_change(watcher)
        waiting = asyncio.ensure_future(next_change(watcher))
        await asyncio.sleep(0)
        with no_more_threads():
            add(root, "misc", "kvm")
            source.trigger("misc")
            await until(lambda: bool(caplog.records) or waiting.done())
        change = await waiting
    assert ids(change) == ["misc-kvm"]
    assert not change.diff.removed
    assert [x.message.partition(":")[0] for x in caplog.records] == ["the host cannot be read"]
