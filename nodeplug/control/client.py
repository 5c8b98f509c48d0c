"""The client of the control socket, for commands: one request, one answer, or the reason why there is none.

The answer has a limit, and so has the total time: a slow server cannot block a command.
"""

import contextlib
import socket
import time
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from nodeplug.control.protocol import Refusal, Reply
from nodeplug.control.sockets import MAX_CONNECTIONS, SOCKET_NAME, connect

TIMEOUT = 15.0
"""The time limit for an answer that needs only the daemon."""
LONG_TIMEOUT = 75.0
"""The time limit for an answer that also needs the kubelet, the host or the API server. The daemon's own is shorter."""
MAX_BYTES = 1 << 28
"""The most bytes of an answer; the status of 40,000 devices has some 20 MiB."""
_PIECE = 1 << 18  # bytes
T = TypeVar("T")


class NotRunning(Exception):
    """No daemon answers; the message is the reason and what to do."""


class NoSocket(NotRunning):
    """No daemon has this state directory; one can have another."""


def ask(directory: Path, question: Struct, kind: type[T], seconds: float = TIMEOUT) -> T:
    """Return the answer of the daemon whose state is in `directory`. Raises `NotRunning` and `Refusal`."""
    path = directory / SOCKET_NAME
    try:
        received = _exchange(directory, question, seconds)
    except (FileNotFoundError, NotADirectoryError):
        raise NoSocket(
            f"there is no {path}: no daemon runs with this state directory; start it (systemctl start nodeplug)"
        ) from None
    except ConnectionRefusedError:
        raise NotRunning(
            f"nothing listens at {path}: the daemon has ended, or cannot write there; see its log"
        ) from None
    except PermissionError:
        raise NotRunning(f"{path}: only root and the user of the daemon may ask it") from None
    except TimeoutError:
        raise NotRunning(f"{path}: the daemon does not answer within {seconds:g} s; its log may say why") from None
    except OSError as error:
        raise NotRunning(f"{path}: {error.strerror or error}") from None
    if len(received) > MAX_BYTES:
        raise NotRunning(f"{path}: the answer has more than {MAX_BYTES} bytes")
    if not received.endswith(b"\n"):
        raise NotRunning(
            f"{path}: the daemon closed the connection: it ended, or {MAX_CONNECTIONS} others are connected; try again"
        )
    try:
        reply = msgspec.json.decode(received, type=Reply)
        if reply.answer is None:
            raise Refusal(reply.error, reply.findings)
        return msgspec.convert(reply.answer, kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise NotRunning(f"{path}: the daemon's answer is not what this version expects: {error}") from None


def _exchange(directory: Path, question: Struct, seconds: float) -> bytes:
    """Return the whole answer, up to the limit or to the end of the connection. Raises OSError."""
    deadline = time.monotonic() + seconds
    received = bytearray()
    with connect(directory, seconds) as connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        _limit_to(deadline, connection)
        connection.sendall(msgspec.json.encode(question) + b"\n")
        while len(received) <= MAX_BYTES:
            _limit_to(deadline, connection)
            piece = connection.recv(_PIECE)
            if not piece:
                break
            received += piece
    return bytes(received)


def _limit_to(deadline: float, connection: socket.socket) -> None:
    """Limit the next call on the connection to the deadline. Raises TimeoutError if that has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)
