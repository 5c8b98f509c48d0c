"""Scans and events.

How long a full scan takes, and how soon a kernel event is a `Diff`. The moment of an event is when another process,
which does nothing else, receives it from the kernel.
"""

import asyncio
import fcntl
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from bench.quantile import quantile
from bench.table import LeftOut, Table
from hostdevices import Host, Scanner
from hostdevices.watching.watch import NEVER, ScanThrottle, Watcher, default_sources

EVENTS = 200
BURST = 512
RUNS = 10
CASES = Path(os.environ.get("NODEPLUG_CASES", Path(__file__).resolve().parents[2] / "shared" / "cases"))
LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81
NUMBER = 1000 + os.getpid() % 1000

# Prints monotonic time, action and name of each event of the kernel.
_OBSERVER = """
import socket, time
events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
events.bind((0, 1))
print("ready", flush=True)
while True:
    event = events.recv(65536)
    now = time.monotonic()
    action, _, path = event.partition(b"\\0")[0].decode().partition("@")
    print(now, action, path.rpartition("/")[2], flush=True)
"""


def run() -> Iterator[Table]:
    """Measure both; figures in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        scans = {name: _scans(root) for name, root in _machines(Path(folder))}
    yield Table(
        ("host", "devices", "full scan ms", "after an event of one function ms"),
        tuple((name, x["devices"], x["full"], x["one_function"]) for name, x in scans.items()),
    )
    if os.geteuid() != 0:
        raise LeftOut("events: adding devices needs root")
    events = asyncio.run(_latencies())
    burst = asyncio.run(_burst())
    last = f"{burst['changes']} changes, the last {burst['last_ms']:.0f} ms after its end"
    yield Table(
        ("event to Diff", "events", "p50 ms", "p99 ms", "longest ms"),
        tuple((name, len(x), quantile(x, 0.5), quantile(x, 0.99), max(x)) for name, x in events.items()),
        (f"{BURST} links added by one command: {last}.",),
    )


def _machines(folder: Path) -> list[tuple[str, Path]]:
    found = [("this machine", Path("/"))]
    for file in sorted((CASES / "nodes").glob("*.tar.bz2")):
        with tarfile.open(file) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(folder / file.name)
        found.append((file.name.removesuffix(".tar.bz2"), next((folder / file.name).glob("*/sys")).parent))
    _make_virtual_functions(folder / "vfs", 512)
    return [*found, ("1 PF, 512 VFs", folder / "vfs")]


def _make_virtual_functions(root: Path, count: int) -> None:
    physical = "0000:3b:00.0"
    addresses = [physical, *(f"0000:{0x3C + n // 256:02x}:{n // 8 % 32:02x}.{n % 8:x}" for n in range(count))]
    listed = root / "sys/bus/pci/devices"
    listed.mkdir(parents=True)
    for index, address in enumerate(addresses):
        device = root / "sys/devices/pci0000:3a/0000:3a:00.0" / address
        device.mkdir(parents=True)
        facts = {"vendor": "0x15b3", "device": "0x101e", "class": "0x020000", "revision": "0x00", "numa_node": "0"}
        facts |= {"subsystem_vendor": "0x15b3", "subsystem_device": "0x0001", "uevent": "DRIVER=mlx5_core"}
        for name, content in facts.items():
            (device / name).write_text(f"{content}\n")
        (device / "driver").symlink_to("../../../../bus/pci/drivers/mlx5_core")
        (listed / address).symlink_to(f"../../../devices/pci0000:3a/0000:3a:00.0/{address}")
        if index:
            (device / "physfn").symlink_to(f"../{physical}")
            (device.parent / physical / f"virtfn{index - 1}").symlink_to(f"../{address}")
    (root / "sys/devices/pci0000:3a/0000:3a:00.0" / physical / "sriov_totalvfs").write_text(f"{count}\n")


def _scans(root: Path) -> dict[str, float]:
    scanner = Scanner(Host(root))
    inventory = scanner.scan()
    function = next(device.syspath for device in inventory.devices.values() if device.kind == "pci")
    one = _time(lambda: scanner.scan({"pci"}, {function}))
    return {"devices": len(inventory.devices), "full": _time(scanner.scan), "one_function": one}


def _time(work: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1000)
    return median(times)


@asynccontextmanager
async def _observed() -> AsyncIterator[dict[tuple[str, str], float]]:
    """Yield a dict of the receive time of each (action, name); it is filled when the context ends."""
    seen: dict[tuple[str, str], float] = {}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _OBSERVER, stdout=subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    try:
        yield seen
    finally:
        process.terminate()
        async for line in process.stdout:
            moment, action, name = line.decode().split()
            seen[action, name] = float(moment)
        await process.wait()


async def _latencies() -> dict[str, list[float]]:
    """Return the milliseconds from event to diff by kind of event, with a quiet period between events."""
    arrived: dict[str, dict[tuple[str, str], float]] = {}
    host = Host()
    async with _observed() as seen, Watcher(Scanner(host), default_sources(host), interval=NEVER) as watcher:
        await anext(watcher)
        control = os.open("/dev/loop-control", os.O_RDWR)
        for index in range(EVENTS // 4):
            number, link = NUMBER + index, f"bench{index}"
            steps = {
                "loop add": (f"loop{number}", _ioctl(control, LOOP_CTL_ADD, number)),
                "loop remove": (f"loop{number}", _ioctl(control, LOOP_CTL_REMOVE, number)),
                "veth add": (link, _ip("add", link, "type", "veth", "peer", f"{link}p")),
                "veth remove": (link, _ip("del", link)),
            }
            for what, (name, act) in steps.items():
                action = what.partition(" ")[2]
                arrived.setdefault(what, {})[action, name] = await _when(watcher, name, action == "add", act)
                await asyncio.sleep(ScanThrottle.QUIET * 1.1)
        os.close(control)
    return {what: [(moments[x] - seen[x]) * 1000 for x in moments] for what, moments in arrived.items()}


async def _when(watcher: Watcher, name: str, there: bool, act: Callable[[], object]) -> float:
    """Call `act` in a thread; return the time at which the watcher reports the device as present or absent."""
    acting = asyncio.ensure_future(asyncio.to_thread(act))
    async for change in watcher:
        if (name in {device.name for device in change.inventory.devices.values()}) == there:
            break
    moment = time.monotonic()
    await acting
    return moment


async def _burst() -> dict[str, float]:
    """Add many links at once and count the changes until all are there."""
    host = Host()
    lines = "".join(f"link add burst{n} group {NUMBER} type veth peer burst{n}p\n" for n in range(BURST // 2))
    names = {f"burst{n}" for n in range(BURST // 2)}
    async with Watcher(Scanner(host), default_sources(host), interval=NEVER) as watcher:
        await anext(watcher)
        adding = asyncio.ensure_future(asyncio.to_thread(_ip_batch, lines))
        changes = 0
        async for change in watcher:
            changes += 1
            if names <= {device.name for device in change.inventory.devices.values()}:
                break
        last = time.monotonic()
        ended = await adding
        subprocess.run(["ip", "link", "del", "group", str(NUMBER)], check=True)  # noqa: ASYNC221 - nothing else runs
    return {"changes": changes, "last_ms": (last - ended) * 1000}


def _ip_batch(lines: str) -> float:
    subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True)
    return time.monotonic()


def _ioctl(control: int, request: int, number: int) -> Callable[[], object]:
    return lambda: fcntl.ioctl(control, request, number)


def _ip(*words: str) -> Callable[[], object]:
    return lambda: subprocess.run(["ip", "link", *words], check=True)
