"""The real node, booted once for all end-to-end tests, and the daemon as a process on this machine."""

import asyncio
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from checkpoint import Lease, Ledger
from tests.e2e.realnode import HOME, RealNode, skip_reason
from tests.e2e.sticks import FIRST, SECOND, Sticks

MOUNTED = Path(tempfile.gettempdir()) / "nodeplug-e2e-mount"
TRANSPORT = os.environ.get("NODEPLUG_E2E_TRANSPORT", "builtin")
PROGRAM = shlex.split(os.environ.get("NODEPLUG_E2E_PROGRAM", f"{sys.executable} -m nodeplug"))
"""The program under test: this checkout, or one that was built for another architecture."""

RESOURCES: list[dict[str, Any]] = [
    {
        "name": "e2e.example/fuse",
        "select": "fuse",
        "shares": 4,
        "env": {"FUSE_NODES": "{devnodes}"},
        "mounts": [{"hostPath": str(MOUNTED), "containerPath": "/from-host"}],
        "annotations": {"e2e.example/ids": "{ids}"},
    },
    {"name": "e2e.example/kvm", "select": "kvm", "shares": 4, "cdi": True},
    {
        "name": "e2e.example/tun",
        "select": "tun",
        "shares": 4,
        "cdi": True,
        "access": {"uid": 1000, "gid": 1000, "mode": "0600"},
    },
    {"name": "e2e.example/loop", "select": {"kind": "block", "path": "/dev/loop*"}, "dangerous": True},
    {"name": "e2e.example/veth", "select": {"kind": "nic", "attributes": {"virtual": True}, "id": "nic-npe2e*"}},
]


IMAGE = "localhost/nodeplug:e2e"
CHECKOUT = Path(__file__).resolve().parents[2]


def _image(folder: Path) -> Path:
    """Build the wheel and the shipped image."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(CHECKOUT)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    image = folder / "nodeplug.oci.tar"
    command = [sys.executable, "-m", "deploy.image", str(wheel), str(image), "--name", IMAGE]
    subprocess.run(command, cwd=CHECKOUT, check=True)
    return image


class DaemonProcess:
    """`nodeplug run` with its own state; tests start and stop it."""

    def __init__(
        self,
        node: RealNode,
        folder: Path,
        resources: list[dict[str, Any]] | None = None,
        *,
        root: Path = Path("/"),
        wrapper: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        """Prepare the daemon; `root` contains the host's sys/, proc/ and dev/.

        `wrapper` is a command that runs the daemon's.
        """
        self.state = folder / "state"
        self.log = folder / "daemon.log"
        self.config = folder / "config.yaml"
        self._command = [*wrapper, *PROGRAM, "run", "--config", str(self.config), "--root", str(root)]
        self._settings = {
            "kubeletRoot": str(node.kubelet_dir),
            "stateDirectory": str(self.state),
            "cdiDirectory": str(node.cdi_dir),
            "allowedMounts": [str(MOUNTED)],
            "transport": TRANSPORT,
        } | settings
        MOUNTED.mkdir(exist_ok=True)
        (MOUNTED / "hello").write_text("from the host\n")
        self.configure(resources or RESOURCES)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The running process."""
        assert self._process is not None
        return self._process.pid

    def configure(self, resources: list[dict[str, Any]]) -> None:
        """Write the configuration file, which a running daemon reads as well."""
        self.config.write_text(json.dumps({"settings": self._settings, "resources": resources}))

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log)

    def update(self, is_up: Callable[[], object]) -> int:
        """Start a second daemon, as with maxSurge; end the first once `is_up` returns; return its exit code."""
        old = self._process
        assert old is not None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log, env=os.environ | {"POD_UID": str(uuid.uuid4())})
        is_up()
        old.send_signal(signal.SIGTERM)
        return old.wait(timeout=10)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code, which is negative for a signal."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(timeout=10)

    def leases(self) -> list[Lease]:
        """Read the current leases, even while the daemon runs."""

        async def read() -> list[Lease]:
            ledger = Ledger(self.state, "any")
            try:
                await ledger.read()
                return list(ledger.leases())
            finally:
                await ledger.close()

        return asyncio.run(read())

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    if reason := skip_reason():
        pytest.skip(reason)
    with (HOME / "tests.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.exit(f"other tests use the node in {HOME}: one would take it away from the other")
        booted = RealNode()
        booted.up(_image(tmp_path_factory.mktemp("image")))
        yield booted
        booted.down()


@pytest.fixture
def daemon(node: RealNode, tmp_path: Path) -> Iterator[DaemonProcess]:
    """A running daemon whose resources are on the node."""
    process = DaemonProcess(node, tmp_path)
    process.start()
    try:
        node.wait_resource("e2e.example/fuse", 4)
        node.wait_resource("e2e.example/kvm", 4)
        node.wait_resource("e2e.example/tun", 4)
        yield process
    finally:
        process.end()
        for resource in RESOURCES:  # otherwise the next test would use the old node status
            node.wait_resource(resource["name"], 0)
        if os.environ.get("NODEPLUG_E2E_LOG"):
            print(process.log.read_text())


@pytest.fixture
def sticks(tmp_path: Path) -> Iterator[Sticks]:
    """Both sticks, each at its first place."""
    made = Sticks(tmp_path)
    made.plug(FIRST, SECOND)
    yield made
    made.close()
