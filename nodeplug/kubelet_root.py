"""Whose pods the leases are of: `kubelet-root` in the state directory names the kubelet's root directory.

Another kubelet on the host names none of these pods. By its words their leases would end, except those of which the
kernel contradicts, and other pods would be allocated the devices.

Rules:
1. The kubelet is the same one where its root has the same path, or where the folder of its sockets is the same one
   (device and inode): a folder that was renamed, or that a container sees at another path.
2. The same path is enough: a kubelet that was set up again has new folders, and device numbers change at a reboot.
3. Where nothing is leased, or nothing is noted (a first start, a ledger of an older version), any kubelet will do.
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


class _Noted(Struct, frozen=True):
    root: str
    folder: Identity | None = None  # of `device-plugins`, which a DaemonSet mounts; None: it was not there


def other_kubelet(settings: Settings) -> str:
    """Return that the leases are of pods of another kubelet, and what to do; empty where they are not."""
    noted, now = _noted(settings), _now(settings)
    if noted is None or noted.root == now.root or (now.folder is not None and noted.folder == now.folder):
        return ""
    return (
        f"settings.kubeletRoot is {now.root}, and the leases in {settings.state_directory} are of pods of the kubelet"
        f" at {noted.root}: the kubelet at {now.root} cannot say when they end; set kubeletRoot to {noted.root}, or, if"
        f" the kubelet has moved, remove {_mark(settings)} and start nodeplug again"
    )


def note_kubelet(settings: Settings) -> None:
    """Note that leases are of pods of this kubelet from now on. Call it once the state is ours."""
    noted, now = _noted(settings), _now(settings)
    if noted is not None and noted.root == now.root and now.folder in (None, noted.folder):
        return
    mark = _mark(settings)
    try:
        cdi.replace_file(mark, msgspec.json.encode(now))
    except OSError:  # the ledger, which lies beside it, says what is wrong with the disk
        with contextlib.suppress(OSError):
            mark.unlink()  # no note is better than another kubelet's


def _now(settings: Settings) -> _Noted:
    folder = None
    with contextlib.suppress(OSError):
        folder = identity(f"{settings.kubelet_root}/device-plugins")
    return _Noted(settings.kubelet_root, folder)


def _noted(settings: Settings) -> _Noted | None:
    try:
        return msgspec.json.decode(_mark(settings).read_bytes(), type=_Noted)
    except (OSError, msgspec.DecodeError):  # empty, perhaps, after a power cut
        return None


def _mark(settings: Settings) -> Path:
    return Path(settings.state_directory) / _MARK
