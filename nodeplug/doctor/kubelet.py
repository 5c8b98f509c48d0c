"""The kubelet: its folders and sockets."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from checkpoint import CheckpointError
from checkpoint.database import Database
from folderwatch import is_folder, path_exists
from grpcunix import is_live
from nodeplug.config import Settings
from nodeplug.doctor.finding import Finding
from nodeplug.kubelet_root import other_kubelet

_SUBJECT = "kubelet"
_ROOT = "settings.kubeletRoot must be the kubelet's --root-dir"


def examine(settings: Settings, *, needs_registry: bool) -> Iterator[Finding]:
    """Check the kubelet's folders; `needs_registry`: something registers through its plugin watcher."""
    if (problem := other_kubelet(settings)) and _may_have_leases(settings):
        yield Finding("wrong", _SUBJECT, problem, "a daemon would not start with it")
    root = Path(settings.kubelet_root)
    plugins, registry = root / "device-plugins", root / "plugins_registry"
    if not is_folder(root):
        yield Finding("wrong", _SUBJECT, f"there is no {root}: no kubelet has run on this node", _ROOT)
        return
    yield _socket(plugins / "kubelet.sock", "devices cannot be registered; start the kubelet")
    yield _socket(root / "pod-resources/kubelet.sock", "leases of ended pods stay until it answers")
    for folder in (plugins, *((registry,) if needs_registry else ())):
        if not is_folder(folder):
            yield Finding("wrong", _SUBJECT, f"there is no {folder}", f"the kubelet creates it when it starts; {_ROOT}")
        elif not os.access(folder, os.W_OK | os.X_OK):
            yield Finding("wrong", _SUBJECT, f"{folder} cannot be written to", "the daemon must run as root")


def _may_have_leases(settings: Settings) -> bool:
    try:
        return len(Database(Path(settings.state_directory)).peek()) > 0
    except CheckpointError:
        return True


def _socket(path: Path, without: str) -> Finding:
    """Return whether a process listens there. Raises PermissionError if this user must not connect."""
    if not path_exists(path):
        return Finding("wrong", _SUBJECT, f"there is no {path}", without)
    if not os.access(path, os.W_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if not is_live(path):
        return Finding("wrong", _SUBJECT, f"nothing listens at {path}", without)
    return Finding("ok", _SUBJECT, f"it listens at {path}")
