"""The control socket: which users can connect, and how it handles clients that misbehave."""

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodeplug.control.protocol import MAX_BYTES
from nodeplug.control.sockets import MAX_CONNECTIONS, SOCKET_NAME, connect
from tests.nodeplug.control.conftest import FUSE, DaemonUnderTest
from tests.running import until
from tests.threads import no_free_threads


@pytest.fixture
async def state(daemon: DaemonUnderTest) -> Path:
    await daemon.start(FUSE)
    return daemon.state


async def sent(state: Path, data: bytes) -> Any:
    """Send bytes and return the reply; None if the connection ends without one."""

    def send() -> bytes:
        with connect(state, 30) as connection:
            received = b""
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            with contextlib.suppress(ConnectionError):
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(65536):
                    received += piece
            return received

    received = await asyncio.to_thread(send)
    return msgspec.json.decode(received) if received else None


def connections() -> list[asyncio.Task[Any]]:
    """Return the tasks that serve connections now."""
    return [x for x in asyncio.all_tasks() if "ControlServer._serve" in repr(x)]


def test_socket_has_mode_0600(state: Path) -> None:
    found = os.lstat(state / SOCKET_NAME)
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_other_user_is_refused_despite_file_permissions(state: Path) -> None:
    for folder in (state, *state.parents[:3]):
        folder.chmod(0o755)
    (state / SOCKET_NAME).chmod(0o666)
    code = """
import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
os.chdir(sys.argv[1])
os.setuid(65534)
connection.connect("control.sock")
connection.sendall(b'{"question": "status"}\\n')
print(connection.makefile().read())
"""
    asking = (sys.executable, "-c", code, str(state))
    done = await asyncio.to_thread(subprocess.run, asking, capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == '{"error":"only root may ask"}', done.stderr


async def test_failed_import_does_not_leak_connections(
    state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another version is being installed, or the connection used the last file descriptor."""
    with monkeypatch.context() as meanwhile:
        meanwhile.setitem(sys.modules, "nodeplug.control.connection", None)
        for _ in range(MAX_CONNECTIONS):
            assert await sent(state, b'{"question": "status"}\n') is None
    reply = await sent(state, b'{"question": "status"}\n')
    assert reply is not None
    assert reply["answer"]
    assert "the program was changed" in caplog.text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "a request is a line of JSON"),
        (b'{"question": "status"}', "a request is a line of JSON"),
        (b"nonsense\n", "this is not a request"),
        (b"[]\n", "this is not a request"),
        (b'{"question": "../daemon"}\n', "has no request '../daemon'"),
        (b'{"question": "server"}\n', "has no request 'server'"),
        (b'{"question": "release", "unit": 3}\n', "the request release is not valid"),
        (b'{"question": "explain", "name": "\xff"}\n', "is not valid"),
    ],
)
async def test_invalid_requests_are_refused_with_a_reason(state: Path, data: bytes, words: str) -> None:
    assert words in (await sent(state, data))["error"]
    assert "answer" in await sent(state, b'{"question": "leases", "of a later version": 1}\n')


async def test_oversized_request_is_refused(state: Path) -> None:
    reply = await sent(state, b'{"question": "status", "x": "' + b"a" * (2 * MAX_BYTES) + b'"}\n')
    assert reply is None or "a request has at most" in reply["error"]  # or a reset
    assert "answer" in await sent(state, b'{"question": "leases"}\n')


async def test_client_that_sends_no_request_times_out(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeplug.control.connection.SECONDS_TO_ASK", 0.1)

    def wait() -> bytes:
        with connect(state, 30) as connection:
            connection.sendall(b'{"question":')
            return connection.recv(1000)

    assert b"no request came" in await asyncio.to_thread(wait)


async def test_client_that_does_not_read_is_disconnected(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeplug.control.connection.SECONDS_TO_READ", 0.1)
    monkeypatch.setattr("nodeplug.control.leases.Answer", lambda _: "a" * 10_000_000)

    def read_late() -> bytes:
        with connect(state, 30) as connection:
            connection.sendall(b'{"question": "leases"}\n')
            received = connection.recv(1)
            late.wait(30)
            with contextlib.suppress(ConnectionError):
                while piece := connection.recv(1 << 20):
                    received += piece
            return received

    late = threading.Event()
    reading = asyncio.create_task(asyncio.to_thread(read_late))
    await until(connections)
    await until(lambda: not connections())
    late.set()
    assert 0 < len(await reading) < 10_000_000


async def test_idle_client_does_not_delay_the_stop(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE)
    idle = await asyncio.to_thread(connect, daemon.state, 30)
    with idle:
        await until(connections)
        async with asyncio.timeout(2.5):  # less than a running answer needs
            await daemon.stop()


async def test_connections_are_accepted_again_after_idle_clients_leave(state: Path) -> None:
    idle = [await asyncio.to_thread(connect, state, 30) for _ in range(3 * MAX_CONNECTIONS)]
    try:
        idle[-1].setblocking(False)
        over = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(idle[-1], 1), 30)
        assert over == b""
    finally:
        for connection in idle:
            connection.close()
    async with asyncio.timeout(30):
        while not await sent(state, b'{"question": "leases"}\n'):
            pass


async def test_socket_is_removed_on_stop_and_a_stale_one_is_replaced(daemon: DaemonUnderTest) -> None:
    daemon.state.mkdir()
    left = daemon.state / SOCKET_NAME
    with socket.socket(socket.AF_UNIX) as dead:
        os.chdir(daemon.state)
        dead.bind(SOCKET_NAME)
    (daemon.state / f".{SOCKET_NAME}.0123abcd.tmp").touch()  # left by a daemon that was killed early
    result = await daemon.run("status")
    assert (result.exit_code, result.stderr.split(":")[1]) == (4, f" nothing listens at {left}")
    await daemon.start(FUSE)
    async with asyncio.timeout(30):
        while (await daemon.run("leases", "list")).exit_code:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.02)
    await daemon.stop()
    assert sorted(x.name for x in daemon.state.iterdir() if "sock" in x.name) == []
    result = await daemon.run("status")
    assert result.exit_code == 4
    assert f"there is no {left}: no daemon runs" in result.stderr


async def test_removed_socket_is_created_again(
    daemon: DaemonUnderTest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a slow machine needs longer for all this
    monkeypatch.setattr("nodeplug.control.connection.SECONDS_TO_ASK", 60.0)
    await daemon.start(FUSE)
    path = daemon.state / SOCKET_NAME
    with connect(daemon.state, 30) as asking:
        assert (await daemon.run("leases", "list")).exit_code == 0  # earlier connections are accepted by now
        for replaced in (False, True, False):
            path.unlink()
            if replaced:
                path.touch()
            await until(path.is_socket)
            assert (await daemon.run("leases", "list")).exit_code == 0
            assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        asking.sendall(b'{"question": "status"}\n')  # an existing connection is answered
        assert await asyncio.to_thread(asking.recv, 1)
    assert caplog.text.count("the daemon creates it again") == 3
    await daemon.stop()
    assert not path.exists()


async def test_daemon_works_while_it_cannot_listen(
    daemon: DaemonUnderTest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeplug.control.server._RETRY", 0.05)
    (daemon.state / SOCKET_NAME).mkdir(parents=True)
    await daemon.start(FUSE)
    await until(lambda: "cannot serve the control socket" in caplog.text)
    (daemon.state / SOCKET_NAME).rmdir()
    await until((daemon.state / SOCKET_NAME).is_socket)
    assert (await daemon.run("leases", "list")).exit_code == 0


async def test_internal_error_fails_only_the_request(
    state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr("nodeplug.control.leases.answer", fail)
        assert "nodeplug failed" in (await sent(state, b'{"question": "leases"}\n'))["error"]
    assert "a request could not be answered" in caplog.text
    assert "answer" in await sent(state, b'{"question": "leases"}\n')


async def test_answer_larger_than_the_socket_buffer_logs_no_error(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = "x" * (MAX_BYTES - 100)  # the refusal contains it, and is longer than a socket's buffer
    reply = await sent(state, msgspec.json.encode({"question": name}) + b"\n")
    assert name in reply["error"]
    await until(lambda: not connections())
    assert not [record for record in caplog.records if record.name == "asyncio"]


@pytest.mark.parametrize(
    "question",
    [
        {"question": "explain", "name": "misc-fuse"},
        {"question": "picture"},
        {"question": "preview", "content": "apiVersion: nodeplug.dev/v1"},
    ],
    ids=lambda question: question["question"],
)
async def test_request_without_a_free_thread_is_answered_with_try_again(
    state: Path, question: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with no_free_threads():
        reader, writer = await asyncio.open_unix_connection(state / SOCKET_NAME)
        writer.write(msgspec.json.encode(question) + b"\n")
        reply = msgspec.json.decode(await reader.read())
        writer.close()
    assert reply == {"error": "no thread is left: can't start new thread; try again"}
    assert "a request could not be answered" not in caplog.text
