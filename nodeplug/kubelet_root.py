"""The kubelet whose pods have the leases: `kubelet-root` in the state directory records its root directory.

Another kubelet on the host does not know these pods. If it were asked, their leases would end, unless the kernel shows
that they run, and their devices would be allocated to other pods.

Rules:
1. The kubelet is the same if its root has the same path, or if the folder of its sockets is the same (device and
   inode): that folder was renamed, or a container mounts it at another path.
2. The same path is enough: a kubelet that was set up again has new folders, and device numbers change at a reboot.
3. Without leases or without a record (a first start, a ledger of an older version), any kubelet is accepted.
"""

import contextlib
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

import cdi
from checkpoint.held import Identity, identity
from nodeplug.config import Settings

_MARK: Final = "kubelet-root"


class _KubeletRecord(Struct, frozen=True):
    root: str
    folder: Identity | None = None  # of `device-plugins`, which a DaemonSet mounts; None: it was not there


def other_kubelet(settings: Settings) -> str:
    """Return why the leases belong to pods of another kubelet, and the fix; empty if they do not."""
    recorded, now = _recorded(settings), _current(settings)
    if recorded is None or recorded.root == now.root or (now.folder is not None and recorded.folder == now.folder):
        return ""
    return (
        f"settings.kubeletRoot is {now.root}, and the leases in {settings.state_directory} are of pods of the kubelet"
        f" at {recorded.root}: the kubelet at {now.root} cannot say when they end; set kubeletRoot to {recorded.root},"
        f" or, if the kubelet has moved, remove {_mark(settings)} and start nodeplug again"
    )


def record_kubelet(settings: Settings) -> None:
    """Record this kubelet as the one whose pods have the leases. Call it once this process owns the state."""
    recorded, now = _recorded(settings), _current(settings)
    if recorded is not None and recorded.root == now.root and now.folder in (None, recorded.folder):
        return
    mark = _mark(settings)
    try:
        cdi.replace_file(mark, msgspec.json.encode(now))
    except OSError:  # the ledger in the same folder reports what is wrong with the disk
        with contextlib.suppress(OSError):
            mark.unlink()  # no record is better than that of another kubelet


def _current(settings: Settings) -> _KubeletRecord:
    folder = None
    with contextlib.suppress(OSError):
        folder = identity(f"{settings.kubelet_root}/device-plugins")
    return _KubeletRecord(settings.kubelet_root, folder)


def _recorded(settings: Settings) -> _KubeletRecord | None:
    try:
        return msgspec.json.decode(_mark(settings).read_bytes(), type=_KubeletRecord)
    except (OSError, msgspec.DecodeError):  # empty, perhaps, after a power cut
        return None


def _mark(settings: Settings) -> Path:
    return Path(settings.state_directory) / _MARK
