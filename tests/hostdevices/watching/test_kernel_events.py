"""Events of the real kernel: links and loop devices come and go, a receive buffer overflows, and nothing leaks."""

import asyncio
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostdevices import Device, Diff, Host, Inventory, Scanner
from hostdevices.readers import Reader
from hostdevices.watching import uevents as uevents_module
from hostdevices.watching.uevents import UdevEvents
from hostdevices.watching.watch import NEVER, Change, Watcher, default_sources
from tests.leaks import LeakCheck

NETLINK_KOBJECT_UEVENT = 15
KERNEL_GROUP, UDEVD_GROUP = 1, 2
LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81
LOOP = 200 + os.getpid() % 1000  # a number that no other program uses

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="adding devices needs root")


def class_reader(subsystem: str) -> Reader:
    def read(host: Host) -> Iterator[Device]:
        for name in host.list(f"/sys/class/{subsystem}"):
            yield Device(id=f"{subsystem}-{name}", kind=subsystem, name=name)

    return Reader(subsystem, frozenset({subsystem}), read)


@contextmanager
def loop_device(number: int) -> Iterator[None]:
    control = os.open("/dev/loop-control", os.O_RDWR)
    try:
        fcntl.ioctl(control, LOOP_CTL_ADD, number)
        try:
            yield
        finally:
            fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
    finally:
        os.close(control)


async def until(watcher: Watcher, device: str, *, present: bool = True) -> Change:
    """Wait until `device` appears or disappears; return the last change. Other programs can cause changes as well."""
    change = Change(watcher.inventory or Inventory(), Diff())
    async with asyncio.timeout(30):
        while (device in change.inventory.devices) != present:
            change = await anext(watcher)
    return change


@root_only
@pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="no /dev/loop-control here")
async def test_added_and_removed_loop_device_is_reported() -> None:
    async with Watcher(Scanner(Host(), [class_reader("block")]), [UdevEvents()], interval=NEVER) as watcher:
        await anext(watcher)
        with loop_device(LOOP):
            change = await until(watcher, f"block-loop{LOOP}")
            assert f"block-loop{LOOP}" in [device.id for device in change.diff.added]
        change = await until(watcher, f"block-loop{LOOP}", present=False)
        assert f"block-loop{LOOP}" in [device.id for device in change.diff.removed]


async def ip(*words: str) -> bool:
    process = await asyncio.create_subprocess_exec("ip", *words, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait() == 0


@root_only
async def test_added_and_removed_veth_pair_is_reported() -> None:
    one, other = f"np{os.getpid()}a", f"np{os.getpid()}b"
    async with Watcher(Scanner(Host(), [class_reader("net")]), [UdevEvents()], interval=NEVER) as watcher:
        await anext(watcher)
        if not await ip("link", "add", one, "type", "veth", "peer", other):
            pytest.skip("this machine cannot add veth links")
        try:
            await until(watcher, f"net-{one}")
            await until(watcher, f"net-{other}")
        finally:
            await ip("link", "del", one)
        await until(watcher, f"net-{one}", present=False)


@root_only
async def test_link_with_non_utf8_name_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    odd, good = os.fsdecode(b"np\xff"), f"np{os.getpid()}c"
    async with Watcher(Scanner(Host(), [class_reader("net")]), [UdevEvents()], interval=NEVER) as watcher:
        await anext(watcher)
        if not await ip("link", "add", odd, "type", "veth", "peer", good):
            pytest.skip("this machine cannot add such links")
        try:
            change = await until(watcher, f"net-{good}")
        finally:
            await ip("link", "del", odd)
        assert not [name for name in change.inventory.devices if name.startswith("net-np\udcff")]
        await until(watcher, f"net-{good}", present=False)
    assert not caplog.records


@root_only
async def test_receive_buffer_overflow_requests_full_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uevents_module, "RECEIVE_BUFFER", 4096)
    woken: asyncio.Queue[str | None] = asyncio.Queue()

    async def woken_with(subsystem: str | None) -> None:
        async with asyncio.timeout(30):
            while await woken.get() != subsystem:
                pass

    source = UdevEvents()
    source.start(lambda subsystem, _: woken.put_nowait(subsystem))
    try:
        for _ in range(300):  # the loop cannot read meanwhile
            Path("/sys/class/mem/null/uevent").write_text("change")
        await woken_with(None)
        Path("/sys/class/mem/null/uevent").write_text("change")
        await woken_with("mem")  # the source works after the loss
    finally:
        source.close()


@root_only
async def test_gap_in_sequence_numbers_requests_full_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uevents_module, "GAP_GRACE", 0.05)
    woken: asyncio.Queue[str | None] = asyncio.Queue()
    source = UdevEvents()
    source.start(lambda subsystem, _: woken.put_nowait(subsystem))
    try:
        Path("/sys/class/mem/null/uevent").write_text("change")
        assert await asyncio.wait_for(woken.get(), 30) is not None
        in_namespace = await asyncio.create_subprocess_exec("unshare", "-n", "true", stderr=asyncio.subprocess.DEVNULL)
        if await in_namespace.wait():
            pytest.skip("no network namespaces here")
        Path("/sys/class/mem/null/uevent").write_text("change")
        async with asyncio.timeout(30):
            while await woken.get() is not None:
                pass
    finally:
        source.close()


NOTHING = b"change@/devices/virtual/mem/null"
FORGED = b"\0".join(
    [NOTHING, b"ACTION=change", b"DEVPATH=/devices/virtual/mem/null", b"SUBSYSTEM=forged", b"SEQNUM=1", b""]
)
MALFORMED = {
    "subsystem is not UTF-8": FORGED.replace(b"=forged", b"=\xff"),
    "path is not UTF-8": FORGED.replace(b"mem/null", b"mem/\xff"),
    "no subsystem": FORGED.replace(b"SUBSYSTEM=forged\0", b""),
    "no sequence number": FORGED.replace(b"SEQNUM=1\0", b""),
    "invalid sequence number": FORGED.replace(b"=1\0", b"=-1x\0"),
    "truncated": FORGED[:-3],
    "no header": FORGED.partition(b"\0")[2],
    "invalid lengths in udevd header": b"libudev\0\xfe\xed\xca\xfe" + b"\xff" * 28 + FORGED,
    "too long": FORGED.replace(b"null", b"n" * 60_000),
    "path of no device": b"\0".join(
        [b"change@/", b"ACTION=change", b"DEVPATH=/", b"SUBSYSTEM=forged", b"SEQNUM=1", b""]
    ),
    "zeros": bytes(100),
}


@root_only
async def test_kernel_source_ignores_messages_of_other_senders() -> None:
    woken: asyncio.Queue[str | None] = asyncio.Queue()
    source = UdevEvents("kernel")
    source.start(lambda subsystem, _: woken.put_nowait(subsystem))
    try:
        with netlink_sender() as sender:
            for message in (FORGED, *MALFORMED.values()):
                sender.sendto(message, (0, KERNEL_GROUP))
        Path("/sys/class/mem/null/uevent").write_text("change")
        received = []
        while "mem" not in received:
            received.append(await asyncio.wait_for(woken.get(), 30))
        assert "forged" not in received
    finally:
        source.close()


@root_only
@pytest.mark.parametrize("what", MALFORMED)
async def test_udev_source_survives_malformed_message(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Any root process can send such messages. They cause at most a scan, and the next event is still received."""
    woken: asyncio.Queue[str | None] = asyncio.Queue()
    source = UdevEvents("udev")
    source.start(lambda subsystem, _: woken.put_nowait(subsystem))
    try:
        with netlink_sender() as sender:
            sender.sendto(MALFORMED[what], (0, UDEVD_GROUP))
            sender.sendto(FORGED.replace(b"=forged", b"=next"), (0, UDEVD_GROUP))
        async with asyncio.timeout(30):
            while await woken.get() != "next":
                pass
    finally:
        source.close()
    assert not caplog.records


def udev_message(subsystem: bytes) -> bytes:
    """A message with udevd's header."""
    properties = b"\0".join([b"ACTION=change", b"DEVPATH=/devices/virtual/mem/null", b"SUBSYSTEM=" + subsystem, b""])
    sizes = struct.pack("=III", 40, 40, len(properties))
    return b"libudev\0\xfe\xed\xca\xfe" + sizes + bytes(16) + properties


@root_only
async def test_udev_message_reports_subsystem_and_syspath() -> None:
    woken: asyncio.Queue[tuple[str | None, str]] = asyncio.Queue()
    source = UdevEvents("udev")
    source.start(lambda subsystem, syspath: woken.put_nowait((subsystem, syspath)))
    try:
        with netlink_sender() as sender:
            sender.sendto(udev_message(b"made-up"), (0, UDEVD_GROUP))
        async with asyncio.timeout(30):
            while await woken.get() != ("made-up", "/sys/devices/virtual/mem/null"):
                pass
    finally:
        source.close()


@root_only
async def test_udev_source_ignores_messages_of_unprivileged_senders() -> None:
    woken: asyncio.Queue[str | None] = asyncio.Queue()
    source = UdevEvents("udev")
    source.start(lambda subsystem, _: woken.put_nowait(subsystem))
    credentials = (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("=iII", os.getpid(), 65_534, 65_534))
    try:
        with netlink_sender() as sender:
            sender.sendmsg([udev_message(b"forged")], [credentials], 0, (0, UDEVD_GROUP))
            sender.sendto(udev_message(b"next"), (0, UDEVD_GROUP))
        received = []
        while "next" not in received:
            received.append(await asyncio.wait_for(woken.get(), 30))
        assert "forged" not in received
    finally:
        source.close()


@contextmanager
def netlink_sender() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as sender:
        try:
            sender.sendto(FORGED, (0, 1 << 10))  # a group without listeners
        except PermissionError:
            pytest.skip("root may not send to others here")
        except ConnectionRefusedError:  # no listener
            pass
        yield sender


async def test_hundred_starts_leak_no_descriptors_or_threads(tmp_path: Path) -> None:
    async def start_and_stop(*globs: str) -> None:
        sources = default_sources(Host(), globs)
        async with Watcher(Scanner(Host(), [class_reader("misc")]), sources) as watcher:
            await anext(watcher)
            with pytest.raises(TimeoutError):  # cancelled while it waits
                await asyncio.wait_for(anext(watcher), 0)

    watched = f"{tmp_path}/*"
    await start_and_stop(watched)  # libraries keep some objects for the whole process
    since = LeakCheck()
    for _ in range(100):
        await start_and_stop(watched, "/dev/**/nodeplug*")
    for thread in since.threads():  # running work ends by itself
        thread.join(30)
    assert (since.descriptors(), since.threads()) == ([], set())
