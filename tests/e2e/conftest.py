"""The real node, booted once for all end-to-end tests, and the daemon as a process beside it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.realnode import FOLDER, RealNode, why_not

MOUNTED = Path(tempfile.gettempdir()) / "nodeplug-e2e-mount"

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
    """Build the wheel and an image that holds it, without a container engine."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(CHECKOUT)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    image = folder / "nodeplug.tar"
    subprocess.run([str(FOLDER / "image/mkpython.sh"), str(image), IMAGE, str(wheel)], check=True, capture_output=True)
    return image


class DaemonProcess:
    """`nodeplug run` with its own state, started and stopped at will."""

    def __init__(
        self, node: RealNode, folder: Path, resources: list[dict[str, Any]] | None = None, **settings: Any
    ) -> None:
        self.state = folder / "state"
        self.log = folder / "daemon.log"
        self.config = folder / "config.yaml"
        MOUNTED.mkdir(exist_ok=True)
        (MOUNTED / "hello").write_text("from the host\n")
        base = {
            "kubeletRoot": str(node.kubelet_dir),
            "stateDirectory": str(self.state),
            "cdiDirectory": str(node.cdi_dir),
            "allowedMounts": [str(MOUNTED)],
        }
        self.config.write_text(json.dumps({"settings": base | settings, "resources": resources or RESOURCES}))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nodeplug", "run", "--config", str(self.config)], stderr=log
            )

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code; negative for a signal."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(timeout=10)

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    if reason := why_not():
        pytest.skip(reason)
    booted = RealNode()
    booted.up(_image(tmp_path_factory.mktemp("image")))
    yield booted
    booted.down()


@pytest.fixture
def daemon(node: RealNode, tmp_path: Path) -> Iterator[DaemonProcess]:
    """A running daemon whose resources the node has."""
    process = DaemonProcess(node, tmp_path)
    process.start()
    try:
        node.wait_resource("e2e.example/fuse", 4)
        node.wait_resource("e2e.example/kvm", 4)
        node.wait_resource("e2e.example/tun", 4)
        yield process
    finally:
        process.end()
        for resource in RESOURCES:  # or the next daemon's test would take the old one's node status for its own
            node.wait_resource(resource["name"], 0)
        if os.environ.get("NODEPLUG_E2E_LOG"):
            print(process.log.read_text())
