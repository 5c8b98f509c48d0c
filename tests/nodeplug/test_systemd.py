"""Messages to systemd."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeplug.systemd import notify, notify_ready, watchdog
from tests.descriptors import no_more_descriptors
from tests.running import running


@pytest.fixture
def systemd(socket_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Systemd's end of the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(socket_dir / "notify"))
        end.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(socket_dir / "notify"))
        yield end


async def test_watchdog_is_notified_repeatedly(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    task = asyncio.create_task(watchdog())
    loop = asyncio.get_running_loop()
    for _ in range(3):
        assert await asyncio.wait_for(loop.sock_recv(systemd, 100), 30) == b"WATCHDOG=1"
    task.cancel()
    await asyncio.wait([task])


async def test_watchdog_is_notified_without_free_descriptors(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    task = asyncio.create_task(watchdog())
    loop = asyncio.get_running_loop()
    assert await loop.sock_recv(systemd, 100) == b"WATCHDOG=1"
    with no_more_descriptors():
        for _ in range(2):
            assert await asyncio.wait_for(loop.sock_recv(systemd, 100), 30) == b"WATCHDOG=1"
        notify("STOPPING=1")  # is not received, and does not fail
    task.cancel()
    await asyncio.wait([task])


async def test_ready_is_sent_again_until_it_succeeds(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeplug.systemd._RETRY", 0.01)
    is_ready, loop = asyncio.Event(), asyncio.get_running_loop()
    async with running(notify_ready(is_ready.wait)):
        with no_more_descriptors():
            is_ready.set()
            for _ in range(5):  # iterations of the loop in which it retries
                await asyncio.sleep(0)
        assert await asyncio.wait_for(loop.sock_recv(systemd, 100), 30) == b"READY=1"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "\u00b2"},
        {"WATCHDOG_USEC": "-5"},
    ],
)
async def test_watchdog_is_silent_when_it_is_not_requested(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watchdog(), 0.05)
    with pytest.raises(BlockingIOError):
        systemd.recv(100)


def test_notification_does_not_block_when_systemd_does_not_read(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeplug.systemd._SEND_TIMEOUT", 0.01)
    for _ in range(int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 5):
        notify("STATUS=" + "x" * 1000)
    assert systemd.recv(2000).startswith(b"STATUS=")
