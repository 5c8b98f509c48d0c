"""The daemon under attack, and its other clients.

Each attack meets a daemon of its own, with 5,000 devices, for two seconds; another client allocates one unit again and
again meanwhile, in a process of its own, and every tenth time on a new connection. Memory is the most that the daemon
had resident more than before. Who is cut off asks again, and waits so much longer. Attacker, client and daemon share
the machine: what nobody attacks is the first row.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from bench.process import resident
from bench.quantile import quantile
from bench.start import command
from bench.table import Table
from bench.tree import make_host
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.deviceplugin.kubelet_end import KubeletEnd
from tests.grpcunix.attacks import ATTACKS, DEVICES, Answer, Target
from tests.grpcunix.attacks import SERVICE as PLUGIN
from tests.ports import free_ports

SECONDS = 2.0
LONGEST = 50.0  # milliseconds that others should wait at the most
MOST = 10.0  # MiB that an attack should cost at the most
Attack = Callable[["_Victim"], object]
_Row: TypeAlias = tuple[float, int, float, float, float, float, int, str]


class _Victim(Target):
    """A daemon: what the transport's attacks are told of a server, and its other doors."""

    def __init__(self, folder: Path, path: Path, pid: int, port: int) -> None:
        self.path, self.pid, self.port, self.folder = path, pid, port, folder

    def memory(self) -> float:
        """Return nothing: the kernel notes the peak, whoever looks when."""
        return 0.0

    def answer(self) -> Answer:
        """Wait a moment: others ask in a process of their own."""
        time.sleep(0.02)
        return Answer(0.0, 0.0)

    def metrics(self) -> socket.socket:
        """Connect to the metrics port."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def control(self) -> socket.socket:
        """Connect to the control socket."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        connection.connect(str(self.folder / "state/control.sock"))
        return connection


def run() -> Iterator[Table]:
    """Measure; milliseconds until others are answered, MiB that the daemon grew by."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    transport: dict[str, Attack] = {name: _of_transport(attack) for name, attack in ATTACKS.items()}
    attacks: dict[str, Attack] = {"nobody attacks": lambda _: time.sleep(SECONDS), **transport, **_OTHERS}
    with tempfile.TemporaryDirectory(prefix="np-") as host:
        make_host(Path(host), 1, DEVICES)
        rows = [(name, *asyncio.run(_measure(attack, Path(host)))) for name, attack in attacks.items()]
    header = (
        "attack",
        "MiB more",
        "answers",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "longest, new connection",
        "cut off",
        "goal",
    )
    yield Table(header, tuple(rows))


async def _measure(attack: Attack, root: Path) -> _Row:
    with tempfile.TemporaryDirectory(prefix="np-") as name:
        folder = Path(name)
        (folder / "device-plugins").mkdir()
        (port,) = free_ports(1)
        settings = {"kubeletRoot": name, "stateDirectory": f"{name}/state", "cdiDirectory": f"{name}/cdi"}
        settings |= {"metricsAddress": f"127.0.0.1:{port}", "logLevel": "error"}
        resources = [{"name": "example.com/res0", "select": {"id": "misc-res0-dev*"}}]
        (folder / "config.yaml").write_text(json.dumps({"settings": settings, "resources": resources}))
        kubelet = KubeletEnd(folder / "device-plugins")
        await kubelet.start()
        daemon = await asyncio.create_subprocess_exec(*command(folder / "config.yaml", root))
        try:
            while len(await kubelet.lists.get()) != DEVICES:
                continue
            path = folder / "device-plugins" / kubelet.endpoint
            return await _with_bystander(attack, _Victim(folder, path, daemon.pid, port))
        finally:
            daemon.terminate()
            await daemon.wait()
            await kubelet.stop()


async def _with_bystander(attack: Attack, victim: _Victim) -> _Row:
    words = (sys.executable, "-m", "bench.bystander", str(victim.path), "misc-res0-dev4999")
    bystander = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)
    assert bystander.stdout is not None
    await bystander.stdout.readline()
    before = resident(victim.pid, "VmRSS")
    Path(f"/proc/{victim.pid}/clear_refs").write_text("5")  # the peak begins here
    await asyncio.to_thread(attack, victim)
    growth = resident(victim.pid, "VmHWM") - before
    found = json.loads((await bystander.communicate(b""))[0])
    ordered = sorted(found["lasting"] + found["new"])
    p50, p99 = (quantile(ordered, share) for share in (0.5, 0.99))
    is_reached = ordered[-1] <= LONGEST and growth <= MOST and not found["cut_off"]
    goal = f"at most {LONGEST:g} ms, {MOST:g} MiB: {'reached' if is_reached else 'not reached'}"
    return growth, len(ordered), p50, p99, ordered[-1], max(found["new"], default=0.0), found["cut_off"], goal


def _of_transport(attack: Callable[[Target, float], object]) -> Attack:
    """Attack again and again: one who floods is cut off at once."""

    def again(victim: _Victim) -> None:
        end = time.monotonic() + SECONDS
        while (left := end - time.monotonic()) > 0:
            attack(victim, left)

    return again


def _hold(connect: Callable[[_Victim], socket.socket], number: int, opening: bytes) -> Attack:
    """Open many connections, begin to speak on each, and read nothing."""

    def attack(victim: _Victim) -> None:
        end = time.monotonic() + SECONDS
        with contextlib.ExitStack() as held:
            for _ in range(number):
                with contextlib.suppress(OSError):
                    connection = held.enter_context(connect(victim))
                    connection.settimeout(0.05)
                    connection.sendall(opening)
            time.sleep(max(0.0, end - time.monotonic()))

    return attack


def _again_and_again(connect: Callable[[_Victim], socket.socket], question: bytes) -> Attack:
    """Ask on one connection after the other, as fast as they are answered."""

    def attack(victim: _Victim) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError), connect(victim) as connection:
                connection.sendall(question)
                while connection.recv(1 << 16):
                    continue

    return attack


def _without_an_end(connect: Callable[[_Victim], socket.socket], piece: bytes) -> Attack:
    """Send a request that does not end, anew whenever the connection does."""

    def attack(victim: _Victim) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError), connect(victim) as connection:
                while time.monotonic() < end:
                    connection.sendall(piece)

    return attack


def _calls(method: str, request: Any) -> Attack:
    """Call one method again and again."""

    def attack(victim: _Victim) -> None:
        end = time.monotonic() + SECONDS
        with grpc.insecure_channel(f"unix:{victim.path}", options=[("grpc.default_authority", "localhost")]) as channel:
            while time.monotonic() < end:
                with contextlib.suppress(grpc.RpcError):
                    channel.unary_unary(PLUGIN + method)(request.SerializeToString(), timeout=30)

    return attack


def _files_that_come_and_go(victim: _Victim) -> None:
    """Make and remove what looks like a kubelet's socket."""
    path, end = victim.path.with_name("kubelet.sock"), time.monotonic() + SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            path.unlink()
        with socket.socket(socket.AF_UNIX) as listening, contextlib.suppress(OSError):
            listening.bind(str(path))


_UNITS = [f"misc-res0-dev{number}" for number in range(DEVICES - 1)]
_PREFERRED = api.PreferredAllocationRequest(
    container_requests=[api.ContainerPreferredAllocationRequest(available_deviceIDs=_UNITS, allocation_size=2_000)]
)
_ALL = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=_UNITS)])
_LONG = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=["x" * 4_000_000])])
_SCRAPE = b"GET /metrics HTTP/1.1\r\n\r\n"
_OTHERS: dict[str, Attack] = {
    "metrics: 1,000 connections that do nothing": _hold(_Victim.metrics, 1_000, b""),
    "metrics: 1,000 half requests": _hold(_Victim.metrics, 1_000, b"GET /metrics HTTP/1.1\r\nA: b"),
    "metrics: 1,000 scrapes that nobody reads": _hold(_Victim.metrics, 1_000, _SCRAPE),
    "metrics: scrapes in a row": _again_and_again(_Victim.metrics, _SCRAPE),
    "metrics: requests without an end": _without_an_end(_Victim.metrics, b"A: " + b"b" * 60_000),
    "control: 100 connections that do nothing": _hold(_Victim.control, 100, b""),
    "control: 100 questions that nobody reads": _hold(_Victim.control, 100, b'{"question":"status"}\n'),
    "control: status in a row": _again_and_again(_Victim.control, b'{"question":"status"}\n'),
    "control: questions without an end": _without_an_end(_Victim.control, b"[" * 60_000),
    "kubelet.sock comes and goes": _files_that_come_and_go,
    "a pod asks for 2,000 of 5,000 units (GetPreferredAllocation)": _calls("GetPreferredAllocation", _PREFERRED),
    "Allocate of 4,999 units": _calls("Allocate", _ALL),
    "an id of 4 MB": _calls("Allocate", _LONG),
}
