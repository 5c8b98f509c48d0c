"""The effect of hostile clients on a server of 5,000 devices: its memory, and the delays of other clients.

The suite runs each attack briefly. `python -m tests.grpcunix.attacks [builtin|grpcio] [SECONDS]` runs each one for
longer and prints a table. The other clients are a new grpcio client every half second, and the slowest answer counts.
The server's CPU time meanwhile is what remains of the delay on an otherwise idle machine.
"""

import contextlib
import os
import random
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import hpack

from grpcunix.http2 import frames
from grpcunix.http2.frames import ErrorCode, frame
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.grpcunix.http2.test_limits import FLOODS

DEVICES = 5_000
SERVICE = "/v1beta1.DevicePlugin/"
_ALLOCATE = api.AllocateRequest(
    container_requests=[api.ContainerAllocateRequest(devices_ids=["res0-dev00001"])]
).SerializeToString()


_FIELDS = [
    (b":path", (SERVICE + "Allocate").encode()),
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
]


class Answer(NamedTuple):
    """The delay of another client, and the server's CPU time meanwhile, both in milliseconds."""

    waited: float
    computed: float


class Target:
    """A server in its own process."""

    def __init__(self, folder: Path, transport: str) -> None:
        """Start the server, and return when it serves."""
        self.path = folder / "res0.sock"
        command = [sys.executable, "-m", "tests.grpcunix.plugin", str(folder), transport, str(DEVICES)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"serving\n"
        self.answer()  # the memory that the first call loads does not belong to the attack

    def memory(self) -> float:
        """Resident MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def connect(self) -> socket.socket:
        """Return a raw connection after the HTTP/2 preface."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(30)
        connection.connect(str(self.path))
        connection.sendall(frames.PREFACE + frame(frames.SETTINGS, 0, 0))
        return connection

    def answer(self) -> Answer:
        """Make a call with a new grpcio client. Raises `grpc.RpcError`."""
        began, computed = time.perf_counter(), self._computed()
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(f"unix:{self.path}", options=options) as channel:
            channel.unary_unary(SERVICE + "Allocate")(_ALLOCATE, timeout=30)
        return Answer((time.perf_counter() - began) * 1e3, self._computed() - computed)

    def _computed(self) -> float:
        return int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[0]) / 1e6

    def stop(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.communicate()


class Outcome(NamedTuple):
    """The effects of an attack."""

    memory: float  # MiB, the largest increase
    answers: list[Answer]  # to other clients
    is_closed: bool  # whether the server has closed the attacker's connection


@contextlib.contextmanager
def target(transport: str) -> Iterator[Target]:
    """A target that is stopped at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="np-") as folder:
        found = Target(Path(folder), transport)
        try:
            yield found
        finally:
            found.stop()


def request(stream: int, method: str, payload: bytes | None = b"\0\0\0\0\0") -> bytes:
    """A request. Without a payload it has no end."""
    fields = [(b":path", (SERVICE + method).encode()), *_FIELDS[1:]]
    head = frame(frames.HEADERS, frames.END_HEADERS, stream, hpack.Encoder().encode(fields))
    return head if payload is None else head + frame(frames.DATA, frames.END_STREAM, stream, payload)


def flood(found: Target, make: Callable[[int], bytes], seconds: float, *, reads: bool) -> Outcome:
    """Send the output of `make` as fast as the server reads it."""
    before, worst, answers, is_closed = found.memory(), 0.0, list[Answer](), False
    end = time.monotonic() + seconds
    due = time.monotonic() + 0.1
    number, pending = 0, b""
    with found.connect() as attacker:
        attacker.setblocking(False)
        while time.monotonic() < end and not is_closed:
            while len(pending) < 1 << 16:
                pending += make(number)
                number += 1
            select.select([attacker] if reads else [], [attacker], [], 0.05)
            try:
                pending = pending[attacker.send(pending) :]
            except BlockingIOError:
                pass
            except OSError:
                is_closed = True
            if reads:
                with contextlib.suppress(OSError):
                    attacker.recv(1 << 16)
            if time.monotonic() > due:
                answers.append(found.answer())
                due = time.monotonic() + 0.5
                worst = max(worst, found.memory() - before)
    return Outcome(max(worst, found.memory() - before), [*answers, found.answer()], is_closed)


def _hold(found: Target, connections: int, opening: bytes, seconds: float) -> Outcome:
    """Send the same bytes on many connections, and read nothing for some time."""
    before, held = found.memory(), []
    for _ in range(connections):
        held.append(found.connect())
        held[-1].settimeout(1)
        with contextlib.suppress(OSError):
            held[-1].sendall(opening)
    answers, memory, end = [found.answer()], 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        answers.append(found.answer())
        memory = max(memory, found.memory() - before)
    for connection in held:
        connection.close()
    return Outcome(memory, answers, is_closed=False)


_WIDE = frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 1 << 24}) + frames.window_update(0, 1 << 24)


def clients_that_do_not_read(found: Target, seconds: float) -> Outcome:
    """50 connections request the list and never read it."""
    return _hold(found, 50, _WIDE + request(1, "ListAndWatch"), seconds)


def unread_lists(found: Target, seconds: float) -> Outcome:
    """100 connections, half of which request the list 100 times."""
    many = b"".join(request(stream, "ListAndWatch") for stream in range(1, 201, 2))
    first = _hold(found, 50, _WIDE + many, seconds)
    second = _hold(found, 50, _WIDE + request(1, "ListAndWatch"), seconds)
    return Outcome(max(first.memory, second.memory), first.answers + second.answers, is_closed=False)


def _worst_opening() -> bytes:
    """The bytes that make a server store the most per connection: a table, open requests, and an open header block."""
    name_and_value = [(b"%03d" % number, b"") for number in range(115)]
    table = frame(frames.HEADERS, frames.END_HEADERS, 1, hpack.Encoder().encode([*_FIELDS, *name_and_value]))
    message = frame(frames.DATA, 0, 1, b"\0\0\x01\0\0" + bytes(8_000))
    empty = b"".join(request(stream, "Allocate", None) for stream in range(3, 17, 2))
    block = frame(frames.HEADERS, 0, 17, b"\0\1a\x7f\x80\x7e" + bytes(8_000))
    return table + message + empty + block + frame(frames.CONTINUATION, 0, 17, bytes(8_000))[:-1]


def ten_thousand_connections(found: Target, seconds: float) -> Outcome:
    """10,000 connections, each of which sends the worst opening and stays open."""
    before, memory, answers, held = found.memory(), 0.0, list[Answer](), list[socket.socket]()
    opening, end = _worst_opening(), time.monotonic() + seconds
    while len(held) < 10_000 and time.monotonic() < end:
        for _ in range(100):
            with contextlib.suppress(BlockingIOError, ConnectionError):
                held.append(found.connect())
                held[-1].setblocking(False)
                held[-1].sendall(opening)
        answers.append(found.answer())
        memory = max(memory, found.memory() - before)
    for connection in held:
        connection.close()
    return Outcome(memory, [*answers, found.answer()], is_closed=False)


def idle_connections(found: Target, seconds: float) -> Outcome:
    """200 connections that do nothing."""
    return _hold(found, 200, b"", seconds)


def busy_connections(found: Target, seconds: float) -> Outcome:
    """200 connections that each watch the list and make 10 calls."""
    call = b"\0" + struct.pack(">I", len(_ALLOCATE)) + _ALLOCATE
    calls = b"".join(request(stream, "Allocate", call) for stream in range(3, 23, 2))
    return _hold(found, 200, request(1, "ListAndWatch") + calls, seconds)


def invalid_prefaces(found: Target, seconds: float) -> Outcome:
    """Connections with another protocol or an incomplete preface, at most 300 at a time."""
    before, answers, source = found.memory(), list[Answer](), random.Random(1)
    end = time.monotonic() + seconds
    while not answers or time.monotonic() < end:
        held = []
        for _ in range(300):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(str(found.path))
            held[-1].sendall(source.choice([b"GET / HTTP/1.1\r\n\r\n", frames.PREFACE[:9], source.randbytes(100)]))
        answers.append(found.answer())
        for connection in held:
            connection.close()
    return Outcome(found.memory() - before, answers, is_closed=False)


def unfinished_requests(found: Target, seconds: float) -> Outcome:
    """20 connections with 100 requests each, all with an incomplete message."""
    part = frame(frames.DATA, 0, 0, b"\0\0\x01\0\0" + bytes(16_000))
    opening = b"".join(
        request(stream, "Allocate", None) + part[:5] + struct.pack(">I", stream) + part[9:]
        for stream in range(1, 201, 2)
    )
    return _hold(found, 20, opening, seconds)


def _of_flood(name: str, *, reads: bool) -> Callable[[Target, float], Outcome]:
    return lambda found, seconds: flood(found, FLOODS[name], seconds, reads=reads)


def unread_answers(found: Target, seconds: float) -> Outcome:
    """Calls as fast as the server reads them, without reading an answer."""
    return flood(
        found,
        lambda number: request(2 * number + 1, "Allocate", b"\0" + struct.pack(">I", len(_ALLOCATE)) + _ALLOCATE),
        seconds,
        reads=False,
    )


def data_frames_of_one_byte(found: Target, seconds: float) -> Outcome:
    """A message of 3 MiB in DATA frames of one byte."""
    first = request(1, "Allocate", None) + frame(frames.DATA, 0, 1, b"\0\0\x30\0\0")
    one = frame(frames.DATA, 0, 1, b"x")
    return flood(found, lambda number: one if number else first, seconds, reads=True)


def reset_calls(found: Target, seconds: float) -> Outcome:
    """Lists that are requested and cancelled."""

    def make(number: int) -> bytes:
        stream = 2 * number + 1
        return request(stream, "ListAndWatch") + frames.rst_stream(stream, ErrorCode.CANCEL)

    return flood(found, make, seconds, reads=True)


ATTACKS: dict[str, Callable[[Target, float], Outcome]] = {
    **{f"flood: {name}": _of_flood(name, reads=True) for name in FLOODS},
    **{f"flood, unread: {name}": _of_flood(name, reads=False) for name in ("ping", "settings")},
    "unread answers": unread_answers,
    "busy connections": busy_connections,
    "reset calls": reset_calls,
    "10,000 connections": ten_thousand_connections,
    "invalid prefaces": invalid_prefaces,
    "idle connections": idle_connections,
    "unread lists": unread_lists,
    "clients that do not read": clients_that_do_not_read,
    "DATA frames of one byte": data_frames_of_one_byte,
    "unfinished requests": unfinished_requests,
}


def main(transport: str, seconds: float) -> None:
    """Run each attack with a new server, and print the effects."""
    print(f"{transport}: attack, MiB more, slowest answer to others and most computed for one in ms, who was cut off")
    for name, attack in ATTACKS.items():
        with target(transport) as found:
            try:
                outcome = attack(found, seconds)
            except grpc.RpcError as error:
                print(f"{name:38} others fail: {error.code().name}", flush=True)
                continue
        closed = "cut off" if outcome.is_closed else ""
        waited, computed = map(max, zip(*outcome.answers, strict=True))
        print(f"{name:38} {outcome.memory:6.1f} {waited:7.1f} {computed:7.1f} {closed}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    main(sys.argv[1] if len(sys.argv) > 1 else "builtin", float(sys.argv[2]) if len(sys.argv) > 2 else 4.0)
