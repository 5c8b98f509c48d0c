"""A daemon on a made-up host, and commands that query it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hostdevices import Host
from kubelet.node import Node
from nodeplug.cli import main
from nodeplug.config import loads
from nodeplug.config_file import ConfigFile
from nodeplug.control.sockets import SOCKET_NAME
from nodeplug.daemon import Daemon
from telemetry import Telemetry
from tests.controlplane.scheduler.kit import Json
from tests.deviceplugin.host import MadeUpHost
from tests.running import running, until

FUSE: Json = {"name": "example.com/fuse", "select": "fuse", "shares": 2}
KVM: Json = {"name": "example.com/kvm", "select": "kvm"}


class DaemonUnderTest:
    """A daemon in this process, its configuration file, and commands for it."""

    def __init__(self, folder: Path, kubelet: Path, host: MadeUpHost) -> None:
        self.state = folder / "state"
        self.root = host.root
        self.host: Host | None = None  # the daemon's host, if it is not the tree at `root`
        self.path = folder / "config.yaml"
        self.path.symlink_to(folder / "elsewhere.yaml")  # a link is not watched: the file is read only on request
        self._settings = {
            "kubeletRoot": str(kubelet),
            "stateDirectory": str(self.state),
            "cdiDirectory": str(folder / "cdi"),
            "rescanSeconds": 1,
        }
        self.telemetry = Telemetry()
        self._stack = AsyncExitStack()

    def write(self, *resources: Json, **settings: Any) -> None:
        """Write the file, one resource per line from the third line on."""
        lines = ",\n".join(map(json.dumps, resources))
        self.path.write_text(f'{{"settings": {json.dumps(self._settings | settings)},\n"resources": [\n{lines}]}}')

    async def start(self, *resources: Json, **settings: Any) -> None:
        """Start the daemon; wait until it answers and has scanned."""
        self.write(*resources, **settings)
        content = self.path.read_bytes()
        config = loads(content, str(self.path))
        offering = asyncio.Event()
        file = ConfigFile(self.path, config, content, self.telemetry)
        daemon = Daemon(config, self.host or Host(self.root), lambda *_: offering.set(), file, self.telemetry)
        await self._stack.enter_async_context(running(daemon.run()))
        await asyncio.wait_for(offering.wait(), 30)
        await until((self.state / SOCKET_NAME).exists)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def run(self, *words: str | Path) -> Result:
        """Run a command that queries the daemon."""
        arguments = [str(word) for word in words]
        if "--against" not in arguments:
            arguments += ["--state", str(self.state)]
        return await asyncio.to_thread(CliRunner().invoke, main, arguments)

    async def run_as_is(self, *words: str) -> Result:
        """Run a command unchanged."""
        return await asyncio.to_thread(CliRunner().invoke, main, list(words))

    async def json(self, *words: str) -> Any:
        """Run a command that must succeed; return its JSON output."""
        result = await self.run(*words, "-o", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
async def daemon(
    tmp_path: Path, socket_dir: Path, made_up: MadeUpHost, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonUnderTest]:
    monkeypatch.setattr("nodeplug.config_file.DEBOUNCE", 0.01)
    made = DaemonUnderTest(tmp_path, socket_dir, made_up)
    yield made
    await made.stop()


def cells(output: str) -> list[list[str]]:
    """Return the words of each line."""
    return [line.split() for line in output.splitlines()]


@pytest.fixture
async def node(socket_dir: Path) -> AsyncIterator[Node]:
    """The kubelet of the daemon's node."""
    async with Node(socket_dir) as node:
        yield node
