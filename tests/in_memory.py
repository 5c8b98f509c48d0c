"""Temporary folders in memory: the tests write and sync many small files, and a disk takes a third of their time.

If root runs the tests, they have a tmpfs in a mount namespace of their own, which ends with them.
Source: unshare(2), mount_namespaces(7).
"""

import ctypes
import itertools
import os
import subprocess
import tempfile

_NEW_MOUNTS = 0x20000  # CLONE_NEWNS, linux/sched.h
_LIBC = ctypes.CDLL(None, use_errno=True)


def keep_in_memory() -> None:
    """Put the temporary folders of this process and its children into memory.

    They stay on the disk if TMPDIR is set, or if this process cannot mount. Call it before any thread starts: a thread
    would stay in the previous namespace.
    """
    if "TMPDIR" in os.environ or os.geteuid() != 0:
        return
    folder = _short()
    _remove_at_the_end(folder)
    if (
        _LIBC.unshare(_NEW_MOUNTS) == 0
        and _does("mount", "--make-rslave", "/")
        and _does("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", folder)
    ):
        os.environ["TMPDIR"] = tempfile.tempdir = folder


def _short() -> str:
    """Make a folder with a short path: a socket's path has at most 107 bytes."""
    for number in itertools.count():
        folder = f"{tempfile.gettempdir()}/{number}"
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
        return folder
    raise AssertionError


def _remove_at_the_end(folder: str) -> None:
    """Start a process in the previous namespace that removes the folder when this process ends, however it ends."""
    reader, _ = os.pipe()  # the other end closes only when this process ends
    waits = 'trap "" INT TERM; read -r _; rmdir "$0"'
    os.posix_spawnp("sh", ["sh", "-c", waits, folder], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0)])
    os.close(reader)


def _does(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
