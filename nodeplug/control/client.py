"""Asking the daemon, for commands: one question, one answer, or who is to blame that there is none."""

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from nodeplug.control.protocol import Refusal, Reply
from nodeplug.control.sockets import SOCKET_NAME, connect

SECONDS = 15.0
"""To wait for an answer that needs nobody but the daemon."""
LONG = 75.0
"""To wait for others, too: the kubelet, the host, the API server. The daemon gives up before."""
_PIECE = 1 << 18  # bytes
T = TypeVar("T")


class NotRunning(Exception):
    """No daemon answers there; says why and what to do."""


def ask(directory: Path, question: Struct, kind: type[T], seconds: float = SECONDS) -> T:
    """Return what the daemon whose state is in `directory` answers. Raises `NotRunning` and `Refusal`."""
    path = directory / SOCKET_NAME
    try:
        with connect(directory, seconds) as connection:
            connection.sendall(msgspec.json.encode(question) + b"\n")
            received = bytearray()
            while piece := connection.recv(_PIECE):
                received += piece
    except FileNotFoundError:
        raise NotRunning(
            f"there is no {path}: no daemon runs with this state directory; start it (systemctl start nodeplug), or"
            " name the one of its configuration (settings.stateDirectory)"
        ) from None
    except ConnectionRefusedError:
        raise NotRunning(f"nobody listens at {path}: the daemon has ended; its log says why") from None
    except PermissionError:
        raise NotRunning(f"{path}: only root may ask the daemon") from None
    except TimeoutError:
        raise NotRunning(f"{path}: the daemon does not answer within {seconds:g} s; its log may say why") from None
    except OSError as error:
        raise NotRunning(f"{path}: {error.strerror or error}") from None
    if not received.endswith(b"\n"):
        raise NotRunning(f"{path}: the daemon ended before it had answered, or has too much to do; ask again")
    try:
        reply = msgspec.json.decode(received, type=Reply)
        if reply.answer is None:
            raise Refusal(reply.error, reply.findings)
        return msgspec.convert(reply.answer, kind)
    except msgspec.MsgspecError as error:
        raise NotRunning(f"{path}: the daemon answers otherwise than this version expects: {error}") from None
