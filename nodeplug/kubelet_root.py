"""The kubelet whose pods have the leases: `kubelet-root` in the state directory records its root directory.

Another kubelet on the host does not know these pods. If it were asked, their leases would end, unless the kernel shows
that they run, and their devices would be allocated to other pods.

Rules:
1. The kubelet is the same if its root has the same path, or if the folder of its sockets is the same (device and
   inode): that folder was renamed, or a container mounts it at another path.
2. The same path is enough: a kubelet that was set up again has new folders, and device numbers change at a reboot.
3. Without leases or without a record (a first start, a ledger of an older version), any kubelet is accepted.
4. A record that cannot be read is not a missing one: with leases, no kubelet is accepted. The record is synced to the
   disk before it appears, so that a power cut does not leave an empty one.
"""

import contextlib
import logging
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

import cdi
from checkpoint.tracked_files import Identity, identity
from nodeplug.config import Settings
from nodeplug.records import InvalidRecord, read_record

_MARK: Final = "kubelet-root"
log = logging.getLogger("nodeplug")


class _KubeletRecord(Struct, frozen=True):
    root: str
    folder: Identity | None = None  # of `device-plugins`, which a DaemonSet mounts; None: it was not there


class _Unreadable(Exception):
    """The record exists and cannot be read; the text says why."""


def other_kubelet(settings: Settings) -> str:
    """Return why the leases belong, or might belong, to pods of another kubelet, and the fix; empty if they do not.

    Raises PermissionError.
    """
    now = _current(settings)
    try:
        recorded = _recorded(settings)
    except _Unreadable as error:
        mark = _mark(settings)
        return (
            f"{mark} names the kubelet whose pods have the leases, and cannot be read: {error}; another kubelet cannot"
            f" say when the leases end; if they are of pods of the kubelet at {now.root} (settings.kubeletRoot), remove"
            f" {mark} and start nodeplug again"
        )
    if recorded is None or recorded.root == now.root or (now.folder is not None and recorded.folder == now.folder):
        return ""
    return (
        f"settings.kubeletRoot is {now.root}, and the leases in {settings.state_directory} are of pods of the kubelet"
        f" at {recorded.root}: the kubelet at {now.root} cannot say when they end; set kubeletRoot to {recorded.root},"
        f" or, if the kubelet has moved, remove {_mark(settings)} and start nodeplug again"
    )


def record_kubelet(settings: Settings) -> None:
    """Record this kubelet as the one whose pods have the leases. Call it once this process owns the state."""
    recorded, now, mark = None, _current(settings), _mark(settings)
    try:
        recorded = _recorded(settings)
    except (_Unreadable, PermissionError) as error:
        log.warning("%s is replaced, because it cannot be read: %s", mark, error)
    if recorded is not None and recorded.root == now.root and now.folder in (None, recorded.folder):
        return
    try:
        cdi.replace_file(mark, msgspec.json.encode(now), is_synced=True)
    except OSError as error:
        log.warning("the root directory of the kubelet cannot be recorded in %s: %s", mark, error)
        with contextlib.suppress(OSError):
            mark.unlink()  # no record is better than that of another kubelet


def _current(settings: Settings) -> _KubeletRecord:
    folder = None
    with contextlib.suppress(OSError):
        folder = identity(f"{settings.kubelet_root}/device-plugins")
    return _KubeletRecord(settings.kubelet_root, folder)


def _recorded(settings: Settings) -> _KubeletRecord | None:
    """Return the record; None if there is none. Raises `_Unreadable` and PermissionError."""
    try:
        return read_record(_mark(settings), _KubeletRecord)
    except (FileNotFoundError, NotADirectoryError):  # the ledger reports that the folder is none
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise _Unreadable(error.strerror or str(error)) from error
    except InvalidRecord as error:
        raise _Unreadable(f"its content is not a record ({error})") from error


def _mark(settings: Settings) -> Path:
    return Path(settings.state_directory) / _MARK
