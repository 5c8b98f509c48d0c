"""Whether the OCI runtime (runc, crun) can move interfaces: it is asked, for one that cannot says nothing.

A runtime without `netDevices` (runc before 1.4) starts the container without its interface, and no error. A container
runtime whose CDI is older than 1.1.0 refuses the container by itself. Source: OCI runtime specification, `features`.
"""

import os
import subprocess
from collections.abc import Sequence

import msgspec

UNCHECKED = "unchecked"
_NAMES = ("runc", "crun")
_FOLDERS = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/var/lib/rancher/k3s/data/current/bin",
    "/var/lib/k0s/bin",
)
_TIMEOUT = 5.0  # seconds


class OciRuntime:
    """The program at `path`; with an empty one, the first that is found where it usually is."""

    def __init__(self, path: str = "") -> None:
        """Prepare; nothing is looked at yet."""
        self._path = path
        self._asked: tuple[object, str] = (None, "")  # of which file, and the answer

    def why_not(self) -> str:
        """Return why it cannot move interfaces, or why that is not known; empty where it can. Blocks."""
        if self._path == UNCHECKED:
            return ""
        path = self._path or _found()
        if not path:
            return (
                f"whether the node's runtime can move interfaces is not known: no {' or '.join(_NAMES)} is seen here;"
                " say in settings.ociRuntime where it is"
            )
        try:
            file = os.stat(path)
        except OSError as error:
            return f"settings.ociRuntime: {path}: {error.strerror}"
        identity = (file.st_dev, file.st_ino, file.st_mtime_ns)  # an upgrade is another file
        if self._asked[0] != identity:
            answer = _ask([path, "features"])
            if not answer:
                return f"whether {path} can move interfaces is not known: `{path} features` says nothing"
            self._asked = (identity, _why_not(path, answer))
        return self._asked[1]


def _found() -> str:
    paths = (f"{folder}/{name}" for folder in _FOLDERS for name in _NAMES)
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def _why_not(path: str, answer: bytes) -> str:
    try:
        features = msgspec.json.decode(answer)
        has_it = features["linux"]["netDevices"]["enabled"] is True
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, TypeError):
        has_it = False
    if has_it:
        return ""
    return f"the runtime {path} cannot move interfaces (`{path} features` has no linux.netDevices): runc can since 1.4"


def _ask(command: Sequence[str]) -> bytes:
    try:
        return subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return b""
