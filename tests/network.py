"""Network namespaces for tests: the test's own, and those of pods, into which interfaces are moved as by runc.

Needs root. Hardware is not tested here: the kernel returns it when a namespace ends, which `back` imitates.
"""

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET, linux/sched.h
_LIBC = ctypes.CDLL(None, use_errno=True)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def ip(*arguments: str, namespace: str = "") -> str:
    """Run ip(8), in another network namespace if its file is given."""
    inside = ["nsenter", f"--net={namespace}"] if namespace else []
    return subprocess.run([*inside, "ip", *arguments], check=True, capture_output=True, text=True).stdout


@contextmanager
def own_network() -> Iterator[str]:
    """Run this thread, and the threads that it starts, in a new network namespace. Yields the namespace's file."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _unshare()
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            yield f"/proc/{os.getpid()}/fd/{own}"
        finally:
            os.close(own)
    finally:
        assert _LIBC.setns(before, _NEW_NETWORK) == 0
        os.close(before)


class PodNetwork:
    """The network namespace of a pod, until `end`."""

    def __init__(self, home: str) -> None:
        self._home = home
        thread = threading.Thread(target=self._make)
        thread.start()
        thread.join()

    def _make(self) -> None:
        _unshare()
        self._descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    @property
    def file(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def take(self, name: str, inside: str) -> None:
        """Move an interface in as runc does: it keeps its permanent global addresses, and is up afterwards."""
        listed = ip("-o", "addr", "show", "dev", name, "scope", "global", "permanent")
        ip("link", "set", name, "down")
        ip("link", "set", name, "netns", self.file, "name", inside)
        for line in listed.splitlines():
            self.ip("addr", "add", line.split()[3], "dev", inside)
        self.ip("link", "set", inside, "up")

    def back(self, inside: str) -> None:
        """Return an interface as the kernel returns hardware when a namespace ends: without its addresses."""
        self.ip("link", "set", inside, "netns", self._home)

    def ip(self, *arguments: str) -> str:
        return ip(*arguments, namespace=self.file)

    def end(self) -> None:
        os.close(self._descriptor)


def show_in_sysfs(root: Path, name: str) -> None:
    """Add an interface of this thread's network namespace to a made-up /sys."""
    folder = root / "sys/devices/virtual/net" / name
    folder.mkdir(parents=True, exist_ok=True)
    real = next(line for line in ip("-o", "link", "show", "dev", name).splitlines())
    words = real.split()
    (folder / "ifindex").write_text(words[0].rstrip(":"))
    (folder / "address").write_text(words[words.index("link/ether") + 1])
    (folder / "mtu").write_text(words[words.index("mtu") + 1])
    (folder / "type").write_text("1")
    link = root / "sys/class/net" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(f"../../devices/virtual/net/{name}")


def _unshare() -> None:
    if _LIBC.unshare(_NEW_NETWORK) != 0:
        pytest.skip("no network namespaces here")
