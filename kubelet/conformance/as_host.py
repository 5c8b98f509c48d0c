"""A private `/var/lib/kubelet` for this process and its children, because some commands hard-code that path.

It is an empty tmpfs in a mount namespace. Users other than root also get a user namespace, with the same uid and gid.
If the machine has no such folder, its parent is replaced by a tmpfs with the folder and bind mounts of all entries of
the parent. Other processes do not see the mounts, which end with the process. Source: unshare(2), user_namespaces(7),
mount(2).
"""

import contextlib
import ctypes
import os
import tempfile
from pathlib import Path

from kubelet.errors import NodeError

FOLDER = Path("/var/lib/kubelet")

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_BIND, _MOVE, _RECURSIVE, _PRIVATE = 0x1000, 0x2000, 0x4000, 0x40000
_OPTIONS = b"size=256m,mode=0755"
_LIBC = ctypes.CDLL(None, use_errno=True)


def enter(folder: Path = FOLDER) -> None:
    """Mount an empty `folder` for this process, whatever the machine has there. Raises NodeError if not permitted.

    The process must have only one thread.
    """
    try:
        _unshare()
        _mount(None, Path("/"), flags=_RECURSIVE | _PRIVATE)  # mounts do not propagate to other namespaces
        if not folder.is_dir():
            _replace_parent(folder.parent, folder.name)
        _mount_tmpfs(folder)
    except OSError as error:
        raise NodeError(
            f"{folder} cannot be replaced for the command alone: {error}; this needs a mount namespace: run as root"
            " with CAP_SYS_ADMIN, or allow user namespaces (sysctl user.max_user_namespaces,"
            " kernel.apparmor_restrict_unprivileged_userns=0; in a container a seccomp profile that lets unshare pass)"
        ) from error


def _unshare() -> None:
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):  # root in a container can lack CAP_SYS_ADMIN
            _check(_LIBC.unshare(_NEW_MOUNTS), "unshare")
            return
    user, group = os.geteuid(), os.getegid()
    _check(_LIBC.unshare(_NEW_USERS | _NEW_MOUNTS), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _replace_parent(parent: Path, name: str) -> None:
    """Replace `parent` with a tmpfs that has all its entries and an additional empty folder `name`."""
    if not parent.is_dir():
        raise NotADirectoryError(20, "no such folder, and it cannot be created", str(parent))
    staging = Path(tempfile.mkdtemp(prefix="kubelet-parent-"))
    try:
        _mount_tmpfs(staging)
        for entry in sorted(parent.iterdir()):
            copy = staging / entry.name
            if entry.is_symlink():
                copy.symlink_to(entry.readlink())
                continue
            if entry.is_dir():
                copy.mkdir()
            else:
                copy.touch()
            _mount(entry, copy, flags=_BIND | _RECURSIVE)
        (staging / name).mkdir()
        _mount(staging, parent, flags=_MOVE)
    finally:
        with contextlib.suppress(OSError):
            staging.rmdir()


def _mount_tmpfs(target: Path) -> None:
    _mount(Path("tmpfs"), target, kind=b"tmpfs", options=_OPTIONS)


def _mount(
    source: Path | None, target: Path, *, kind: bytes | None = None, flags: int = 0, options: bytes | None = None
) -> None:
    from_ = None if source is None else os.fsencode(source)
    _check(_LIBC.mount(from_, os.fsencode(target), kind, ctypes.c_ulong(flags), options), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
