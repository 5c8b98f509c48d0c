"""Lines to a daemon's control socket: each gets an answer that a command of the same version can read, or an error.

The daemon runs in this process during a request. Earlier requests (`withhold`, `release`, `reload`) affect later
ones.
"""

import asyncio
import functools
import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from checkpoint import Ledger
from nodeplug.control.protocol import MAX_BYTES, QUESTIONS, Head, Reply
from nodeplug.control.sockets import SOCKET_NAME
from tests.checkpoint.build import lease
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest

_UNIT = {"resource": FUSE["name"], "api": "device-plugin", "unit": "misc-fuse"}
_CONTENT = f'{{"resources": [{json.dumps(KVM)}]}}'
_FIELDS: dict[str, list[dict[str, Any]]] = {
    "dry_run": [{"resource": FUSE["name"], "count": 2}, {"resource": KVM["name"], "devices": ["misc-kvm"]}],
    "events": [{}, {"after": 1, "log": 1.5}],  # only forms that do not wait
    "explain": [{"name": "misc-fuse"}, {"name": FUSE["name"]}],
    "preview": [{"content": _CONTENT}, {"content": "resources: [", "source": "a.yaml"}],
    "readmit": [{"device": "misc-kvm"}],
    "release": [_UNIT, {**_UNIT, "force": True}],
    "withhold": [{"device": "misc-kvm", "reason": "fan"}, {"device": "/dev/fuse"}],
    "witnesses": [_UNIT],
}


class _Daemon:
    """A daemon on a made-up host with a lease. Its event loop runs during requests."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz")
        folder = Path(self._folder.name)
        self._loop = asyncio.new_event_loop()
        self._asked = DaemonUnderTest(folder, folder / "kubelet", MadeUpHost(folder / "host", "fuse", "kvm"))
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        ledger = Ledger(self._asked.state, "boot")
        await ledger.take()
        await ledger.grant([lease("misc-fuse", FUSE["name"])])
        await ledger.close()
        await self._asked.start(FUSE, KVM)

    def ask(self, line: bytes) -> bytes:
        """Return the answer to a line."""
        return self._loop.run_until_complete(self._ask(line))

    async def _ask(self, line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._asked.state / SOCKET_NAME, limit=MAX_BYTES)
        writer.write(line + b"\n")
        answered = await reader.read()
        writer.close()
        return answered


@functools.cache
def _daemon() -> _Daemon:
    return _Daemon()


def question(data: bytes) -> str:
    """A line gets an answer or an error, and the error is not an internal failure of the daemon."""
    line = data.replace(b"\n", b" ")
    answered = _daemon().ask(line)
    assert answered.endswith(b"\n")
    reply = msgspec.json.decode(answered, type=Reply)
    assert (reply.answer is None) == bool(reply.error)
    if reply.error:
        assert not reply.error.startswith("nodeplug failed"), reply.error
        return "refused"
    name = msgspec.json.decode(line, type=Head).question  # other fields can contain bytes that are not text
    msgspec.convert(reply.answer, importlib.import_module(f"nodeplug.control.{name}").Answer)
    return "answered"


@functools.cache
def questions() -> tuple[bytes, ...]:
    """Return at least one request of each kind."""
    return tuple(
        json.dumps({"question": name, **fields}).encode() for name in QUESTIONS for fields in _FIELDS.get(name, [{}])
    )
