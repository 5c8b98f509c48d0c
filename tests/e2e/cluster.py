"""The node with a daemon that also offers devices through DRA, and the objects of a test."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubelet.release import DEVICE_TAINTS
from tests.e2e.conftest import DaemonProcess
from tests.e2e.realnode import HOME, NODE, RELEASE, RealNode

DRIVER = "e2e.nodeplug.dev"


def dra_daemon(node: RealNode, folder: Path, resources: list[dict[str, Any]], **settings: Any) -> DaemonProcess:
    """A daemon that can use the API server; it is not started yet."""
    kubeconfig = str(HOME / "run/conf/admin.kubeconfig")
    settings = {"kubeconfig": kubeconfig, "nodeName": NODE, "driverName": DRIVER, **settings}
    return DaemonProcess(node, folder, resources, **settings)


@contextlib.contextmanager
def device_classes(node: RealNode, daemon: DaemonProcess) -> Iterator[None]:
    """The DeviceClasses that `nodeplug classes` prints."""
    command = [sys.executable, "-m", "nodeplug", "classes", str(daemon.config)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    node.kubectl("apply", "-f", "-", stdin=printed)
    yield
    node.kubectl("delete", "-f", "-", stdin=printed)


class Cluster:
    """The node with a daemon of DRA resources, and the objects of a test."""

    def __init__(self, node: RealNode, daemon: DaemonProcess) -> None:
        self.node = node
        self.daemon = daemon
        self._made: list[tuple[str, str, str]] = []

    def make(self, *objects: dict[str, Any]) -> None:
        """Create objects. They are deleted after the test, pods first."""
        for each in objects:
            meta = each["metadata"]
            self._made.append((each["kind"].lower(), meta["name"], meta.get("namespace", "default")))
        self.node.apply(*objects)

    def clean(self) -> None:
        for kind, name, namespace in sorted(self._made, key=lambda made: made[0] != "pod"):
            self.node.kubectl(
                "delete", kind, name, "-n", namespace, "--ignore-not-found", "--wait=true", "--grace-period=1"
            )

    def succeeded(self, name: str, namespace: str = "default", timeout: int = 60) -> str:
        """Wait until a pod has succeeded, and return its log."""
        self.node.kubectl(
            "wait", f"pod/{name}", "-n", namespace, "--for=jsonpath={.status.phase}=Succeeded", f"--timeout={timeout}s",
            timeout=timeout + 10,
        )  # fmt: skip
        return self.node.kubectl("logs", name, "-n", namespace)

    def running(self, name: str) -> None:
        self.node.wait(f"pod/{name}", ".status.phase", "Running", timeout=60)

    def slices(self) -> list[dict[str, Any]]:
        """Return the daemon's ResourceSlices."""
        listed = self.node.get("resourceslices", f"--field-selector=spec.driver={DRIVER}")
        return list(listed["items"])

    def devices(self) -> dict[str, dict[str, Any]]:
        """Return the published devices by name."""
        return {device["name"]: device for each in self.slices() for device in each["spec"].get("devices", ())}

    def is_kept_from_claims(self, device: str) -> bool:
        """Return whether a device is tainted, or not published if the server drops taints."""
        published = self.devices().get(device)
        return bool(published and published.get("taints")) if RELEASE.has(DEVICE_TAINTS) else published is None

    def until_published(self, *resources: str, gone: bool = False) -> None:
        """Wait until devices of these resources are published, or gone."""
        want = {f"e2e.example/{resource}" for resource in resources}
        self.node.until(
            lambda: want.isdisjoint(self.published()) if gone else want <= self.published(), f"{want}, {gone=}"
        )

    def published(self) -> set[str]:
        return {device["attributes"]["resource"]["string"] for device in self.devices().values()}

    def cdi_files(self) -> list[Path]:
        return sorted(self.node.cdi_dir.glob("nodeplug-dra~*"))


@contextlib.contextmanager
def offering(node: RealNode, daemon: DaemonProcess) -> Iterator[Cluster]:
    """A running daemon; its objects and those of the test are removed afterwards."""
    daemon.start()
    started = Cluster(node, daemon)
    try:
        yield started
        started.clean()
        assert started.cdi_files() == []
    finally:
        try:
            started.clean()
        finally:  # otherwise a broken node would leave the daemon running
            daemon.end()
        node.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={DRIVER}")
        if os.environ.get("NODEPLUG_E2E_LOG"):
            print(daemon.log.read_text())
