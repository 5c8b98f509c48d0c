"""The daemon under attack, and its other clients.

Each attack runs for two seconds against its own daemon, which has 5,000 devices. Meanwhile another client, in its own
process, allocates one unit again and again, every tenth time on a new connection. Memory is the maximum increase of
the daemon's resident memory. A client that is cut off repeats its call and waits longer. Attacker, client and daemon
share the machine. The first row is without an attack.
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
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from bench.process import resident
from bench.quantile import quantile
from bench.scenes import DURATION, SCENES, Scene, Staged
from bench.start import command
from bench.table import Cell, LeftOut, Table
from bench.tree import make_host
from bench.victim import Victim
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.deviceplugin.kubelet_end import kubelet_end
from tests.grpcunix.attacks import ATTACKS, DEVICES, Target
from tests.grpcunix.attacks import SERVICE as PLUGIN
from tests.ports import free_ports

MAX_WAIT_MS = 50.0  # goal: the longest wait of other clients, in milliseconds
MAX_GROWTH_MIB = 10.0  # goal: the largest growth of the daemon's memory, in MiB
Attack = Callable[["Victim"], object]  # runs in a thread
_Row: TypeAlias = tuple[float, int, float, float, float, float, int, str]


def run() -> Iterator[Table]:
    """Measure the answer times of the other client in milliseconds, and the daemon's growth in MiB."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    transport: dict[str, Attack] = {name: _repeat_transport_attack(attack) for name, attack in ATTACKS.items()}
    attacks: dict[str, Attack] = {"no attack": lambda _: time.sleep(DURATION), **transport, **_OTHERS}
    scenes = {name: _in_a_thread(attack) for name, attack in attacks.items()} | SCENES
    rows, notes = list[tuple[Cell, ...]](), list[str]()
    with tempfile.TemporaryDirectory(prefix="np-") as host:
        make_host(Path(host), 1, DEVICES)
        for name, staged in scenes.items():
            try:
                rows.append((name, *asyncio.run(_measure(staged, Path(host)))))
            except LeftOut as reason:
                notes.append(f"{name}: left out: {reason}")
    header = (
        "attack",
        "memory growth, MiB",
        "answers",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "longest, new connection",
        "cut off",
        f"goal: at most {MAX_WAIT_MS:g} ms, {MAX_GROWTH_MIB:g} MiB",
    )
    yield Table(header, tuple(rows), tuple(notes))


async def _measure(staged: Staged, host: Path) -> _Row:
    with tempfile.TemporaryDirectory(prefix="np-") as name:
        folder = Path(name)
        for kubelets in ("device-plugins", "plugins", "plugins_registry"):
            (folder / kubelets).mkdir()
        (port,) = free_ports(1)
        settings: dict[str, object] = {"kubeletRoot": name, "stateDirectory": f"{name}/state"}
        settings |= {"cdiDirectory": f"{name}/cdi", "metricsAddress": f"127.0.0.1:{port}", "logLevel": "error"}
        async with staged(host, folder) as scene, kubelet_end(folder / "device-plugins") as kubelet:
            content = {"settings": {**settings, **scene.settings}, "resources": scene.resources}
            (folder / "config.yaml").write_text(json.dumps(content))
            environment = os.environ | scene.environment
            words = command(folder / "config.yaml", scene.root)
            daemon = await asyncio.create_subprocess_exec(*words, env=environment)
            try:
                while len(await kubelet.lists.get()) != scene.units:
                    continue
                path = folder / "device-plugins" / kubelet.endpoint_of(scene.resources[-1]["name"])
                return await _with_bystander(scene, Victim(folder, path, daemon.pid, port))
            finally:
                daemon.terminate()
                await daemon.wait()


async def _with_bystander(scene: Scene, victim: Victim) -> _Row:
    words = (sys.executable, "-m", "bench.bystander", str(victim.path), scene.unit)
    bystander = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)
    assert bystander.stdout is not None
    await bystander.stdout.readline()
    before = resident(victim.pid, "VmRSS")
    Path(f"/proc/{victim.pid}/clear_refs").write_text("5")  # resets the peak (VmHWM)
    await scene.attack(victim)
    growth = resident(victim.pid, "VmHWM") - before
    found = json.loads((await bystander.communicate(b""))[0])
    ordered = sorted(found["lasting"] + found["new"])
    p50, p99 = (quantile(ordered, share) for share in (0.5, 0.99))
    is_reached = ordered[-1] <= MAX_WAIT_MS and growth <= MAX_GROWTH_MIB and not found["cut_off"]
    goal = "reached" if is_reached else "not reached"
    return growth, len(ordered), p50, p99, ordered[-1], max(found["new"], default=0.0), found["cut_off"], goal


def _in_a_thread(attack: Attack) -> Staged:
    """Return a scene with only a kubelet, in which the attack runs in a thread."""

    @contextlib.asynccontextmanager
    async def staged(host: Path, folder: Path) -> AsyncIterator[Scene]:
        del folder
        yield Scene(host, lambda victim: asyncio.to_thread(attack, victim))

    return staged


def _repeat_transport_attack(attack: Callable[[Target, float], object]) -> Attack:
    """Return a repeated attack, because the daemon disconnects a flooding client at once."""

    def repeated(victim: Victim) -> None:
        end = time.monotonic() + DURATION
        while (left := end - time.monotonic()) > 0:
            attack(victim, left)

    return repeated


def _hold(connect: Callable[[Victim], socket.socket], number: int, opening: bytes) -> Attack:
    """Return an attack that opens many connections, sends `opening` on each, and reads nothing."""

    def attack(victim: Victim) -> None:
        end = time.monotonic() + DURATION
        with contextlib.ExitStack() as held:
            for _ in range(number):
                with contextlib.suppress(OSError):
                    connection = held.enter_context(connect(victim))
                    connection.settimeout(0.05)
                    connection.sendall(opening)
            time.sleep(max(0.0, end - time.monotonic()))

    return attack


def _repeat(connect: Callable[[Victim], socket.socket], request: bytes) -> Attack:
    """Return an attack that sends a request on one connection after the other, as fast as they are answered."""

    def attack(victim: Victim) -> None:
        end = time.monotonic() + DURATION
        while time.monotonic() < end:
            with contextlib.suppress(OSError), connect(victim) as connection:
                connection.sendall(request)
                while connection.recv(1 << 16):
                    continue

    return attack


def _endless(connect: Callable[[Victim], socket.socket], piece: bytes) -> Attack:
    """Return an attack that sends an endless request, on a new connection whenever one is closed."""

    def attack(victim: Victim) -> None:
        end = time.monotonic() + DURATION
        while time.monotonic() < end:
            with contextlib.suppress(OSError), connect(victim) as connection:
                while time.monotonic() < end:
                    connection.sendall(piece)

    return attack


def _calls(method: str, request: Any) -> Attack:
    """Return an attack that calls one method repeatedly."""

    def attack(victim: Victim) -> None:
        end = time.monotonic() + DURATION
        with grpc.insecure_channel(f"unix:{victim.path}", options=[("grpc.default_authority", "localhost")]) as channel:
            while time.monotonic() < end:
                with contextlib.suppress(grpc.RpcError):
                    channel.unary_unary(PLUGIN + method)(request.SerializeToString(), timeout=30)

    return attack


def _recreate_kubelet_socket(victim: Victim) -> None:
    """Create and remove a fake kubelet socket repeatedly."""
    path, end = victim.path.with_name("kubelet.sock"), time.monotonic() + DURATION
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
    "metrics: 1,000 idle connections": _hold(Victim.metrics, 1_000, b""),
    "metrics: 1,000 incomplete requests": _hold(Victim.metrics, 1_000, b"GET /metrics HTTP/1.1\r\nA: b"),
    "metrics: 1,000 unread scrapes": _hold(Victim.metrics, 1_000, _SCRAPE),
    "metrics: continuous scrapes": _repeat(Victim.metrics, _SCRAPE),
    "metrics: endless requests": _endless(Victim.metrics, b"A: " + b"b" * 60_000),
    "control: 100 idle connections": _hold(Victim.control, 100, b""),
    "control: 100 unread answers": _hold(Victim.control, 100, b'{"question":"status"}\n'),
    "control: continuous status requests": _repeat(Victim.control, b'{"question":"status"}\n'),
    "control: endless requests": _endless(Victim.control, b"[" * 60_000),
    "kubelet.sock created and removed": _recreate_kubelet_socket,
    "GetPreferredAllocation of 2,000 of 5,000 units": _calls("GetPreferredAllocation", _PREFERRED),
    "Allocate of 4,999 units": _calls("Allocate", _ALL),
    "Allocate of an id of 4 MB": _calls("Allocate", _LONG),
}
