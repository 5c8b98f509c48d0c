"""Whether the OCI runtime (runc, crun) can move interfaces: it must be asked, because one that cannot ignores them.

A runtime without `netDevices` (runc before 1.4) starts the container without its interface, and without an error. A
container runtime with CDI older than 1.1.0 refuses the container by itself. Only the container runtime knows which OCI
runtime containers get: if several are found, such as Docker's beside a distribution's, all of them must support it.
Source: OCI runtime specification, `features`.
"""

import errno
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
    "/usr/libexec/crio",
    "/var/lib/rancher/k3s/data/current/bin",
    "/var/lib/k0s/bin",
)
_TIMEOUT = 5.0  # seconds
_NOT_EXECUTABLE = (errno.EACCES, errno.ENOENT, errno.ENOEXEC, errno.EPERM)


class OciRuntime:
    """The program at `path`; if that is empty, all runtimes found in `folders`."""

    def __init__(self, path: str = "", folders: Sequence[str] = _FOLDERS) -> None:
        """Prepare; nothing is run yet."""
        self._path = path
        self._folders = folders
        self._results: dict[str, tuple[object, str]] = {}  # by path: the file's identity, and why it cannot

    def problem(self) -> str:
        """Return why interfaces cannot be moved, or why that is unknown; empty if they can.

        Blocks. Raises OSError if a runtime cannot be run now.
        """
        if self._path == UNCHECKED:
            return ""
        paths = [self._path] if self._path else _installed(self._folders)
        if not paths:
            return (
                f"it is not known whether the node's container runtime can move interfaces: no"
                f" {' or '.join(_NAMES)} is visible; set settings.ociRuntime to its path"
            )
        refusals = [why for why in map(self._problem_of, paths) if why]
        if 0 < len(refusals) < len(paths):
            return f"{refusals[0]}; set settings.ociRuntime to the one that runs the containers ({', '.join(paths)})"
        return refusals[0] if refusals else ""

    def _problem_of(self, path: str) -> str:
        try:
            file = os.stat(path)
        except OSError as error:
            return f"settings.ociRuntime: {path}: {error.strerror}"
        identity = (file.st_dev, file.st_ino, file.st_mtime_ns)  # an upgrade replaces the file
        known, why = self._results.get(path, (None, ""))
        if known != identity:
            answer = _run([path, "features"])
            if not answer:
                return (
                    f"it is not known whether {path} can move interfaces: `{path} features` failed or printed nothing"
                )
            why = _missing_feature(path, answer)
            self._results[path] = identity, why
        return why


def _installed(folders: Sequence[str]) -> list[str]:
    """Return the runtimes that are present, each once: /usr/sbin can be a link to /usr/bin."""
    paths = (f"{folder}/{name}" for folder in folders for name in _NAMES)
    found = {os.path.realpath(path): path for path in paths if os.access(path, os.X_OK)}
    return list(found.values())


def _missing_feature(path: str, answer: bytes) -> str:
    try:
        features = msgspec.json.decode(answer)
        is_supported = features["linux"]["netDevices"]["enabled"] is True
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, TypeError):
        is_supported = False
    if is_supported:
        return ""
    return (
        f"the runtime {path} cannot move interfaces (`{path} features` has no linux.netDevices); use runc 1.4 or newer"
    )


def _run(command: Sequence[str]) -> bytes:
    try:
        return subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False).stdout
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {_TIMEOUT:g} s", command[0]) from None
    except OSError as error:
        if error.errno in _NOT_EXECUTABLE:
            return b""
        raise
