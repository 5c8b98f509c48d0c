"""Temporary folders in memory: the tests write and sync many small files, and a disk takes a third of their time.

Root has a tmpfs of its own in a mount namespace of its own, which nobody else sees and which ends with the tests.
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
    """Have this process and what it starts make their temporary folders in memory.

    They stay on the disk where TMPDIR is set, and where nothing can be mounted. To be called before there are threads,
    which would stay in the namespace of before.
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
    """Make a folder whose path leaves most of the 107 bytes of a socket's."""
    for number in itertools.count():
        folder = f"{tempfile.gettempdir()}/{number}"
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
        return folder
    raise AssertionError


def _remove_at_the_end(folder: str) -> None:
    """Have another process, which sees no mount there, remove it once this one has ended, in whatever way."""
    reader, _ = os.pipe()  # the other end is closed by nobody else
    waits = 'trap "" INT TERM; read -r _; rmdir "$0"'
    os.posix_spawnp("sh", ["sh", "-c", waits, folder], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0)])
    os.close(reader)


def _does(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
