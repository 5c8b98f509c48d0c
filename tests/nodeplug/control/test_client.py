"""Querying the daemon: a peer that misbehaves cannot block the command or fill its memory."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeplug.control import client
from nodeplug.control.leases import Answer, Question
from nodeplug.control.sockets import bind_socket, connect, open_directory

Answering = Callable[[socket.socket], None]


@contextlib.contextmanager
def other_server(folder: Path, answer: Answering) -> Iterator[None]:
    """Run another server in the daemon's place, which calls `answer` with one connection."""
    with open_directory(folder) as at:
        listening = bind_socket(at)
    listening.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):  # the client has disconnected, or the test has ended
            connection, _ = listening.accept()
            with connection:
                answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(30)


def test_slow_answer_times_out(tmp_path: Path) -> None:
    def drip(connection: socket.socket) -> None:
        over = threading.Event()
        while not over.wait(0.01):
            connection.sendall(b" ")

    with other_server(tmp_path, drip), pytest.raises(client.NotRunning, match=r"does not answer within 0\.1 s"):
        client.ask(tmp_path, Question(), Answer, 0.1)


def test_endless_answer_is_refused_at_the_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_BYTES", 1 << 20)

    def flood(connection: socket.socket) -> None:
        while True:
            connection.sendall(b" " * 65536)

    with other_server(tmp_path, flood), pytest.raises(client.NotRunning, match="more than 1048576 bytes"):
        client.ask(tmp_path, Question(), Answer, 30)


def test_closed_connection_is_reported(tmp_path: Path) -> None:
    """The daemon does this if it has too many connections: the question stays unread, and the kernel sends a reset."""

    def hang_up(connection: socket.socket) -> None:
        connection.recv(1, socket.MSG_PEEK)

    with (
        other_server(tmp_path, hang_up),
        pytest.raises(client.NotRunning, match=r"closed the connection.*8 others are connected"),
    ):
        client.ask(tmp_path, Question(), Answer, 30)


def test_file_instead_of_the_state_directory_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.touch()
    with pytest.raises(client.NoSocket, match=f"there is no {file}/control.sock: no daemon runs"):
        client.ask(file, Question(), Answer)


def test_full_connection_queue_times_out(tmp_path: Path) -> None:
    """A stopped daemon accepts no connection; the kernel queues them up to a limit."""
    with open_directory(tmp_path) as at, bind_socket(at) as listening, contextlib.ExitStack() as waiting:
        listening.listen(0)
        waiting.enter_context(connect(tmp_path, 30))
        with pytest.raises(client.NotRunning, match=r"does not answer within 0\.1 s"):
            client.ask(tmp_path, Question(), Answer, 0.1)
