"""nodeplug's spec files in a CDI directory. Blocking: call from a thread.

Rules:
1. A file is complete when it appears: it is written under another name and renamed. Writing unchanged content does
   nothing.
2. Only nodeplug's own files are ever listed or removed: `nodeplug-<owner>~<name>.json`.
3. The directory can vanish at any time (/var/run is empty after a reboot): a missing one counts as empty, and writing
   creates it again.
4. A file that another program has removed, edited, replaced or made unreadable is detected (`is_modified`).
5. Nothing is synced. The content of the files is recorded elsewhere, and is compared and written again at every start.
   A power cut can empty a file or bring an old one back, on a disk as well as in memory.
"""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from cdi.errors import CdiError, InvalidSpec
from cdi.spec import Spec, encode
from cdi.validate import policy_problems, validate

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:-]*")
FILE_PREFIX = "nodeplug-"
_OWNER = re.compile(r"[a-z0-9-]+")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # see `_replace`
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_OTHERS, _READ_BY_OTHERS = 0o066, 0o044  # permissions of users other than the owner
_MAX_NAME = 160  # leaves room in the 255 bytes of a file name for the prefix and a temporary name's suffix

_FileState: TypeAlias = tuple[int, ...]
"""The state of a file: its identity, owner, permissions, size, and when it was last written.

Not the time of change, which labels and links also update without any effect for readers.
"""


def file_name(kind: str, key: str = "") -> str:
    """Return the file name for the spec of `kind`; `key`, such as a claim's uid, distinguishes several of a kind."""
    name = kind.replace("/", "~") + (f"~{key}" if key else "")
    if len(name) > _MAX_NAME:
        from hashlib import blake2b  # on first use: it loads OpenSSL

        digest = blake2b(name.encode(), digest_size=8).hexdigest()
        name = f"{name[: _MAX_NAME - len(digest) - 1]}~{digest}"
    return name


def replace_file(
    path: str | Path,
    data: bytes,
    before_rename: Callable[[os.stat_result], object] | None = None,
    *,
    is_synced: bool = False,
) -> None:
    """Make `path` a file with this content, readable by all, which is complete when it appears.

    Raises OSError for `path`, never for its temporary name.

    Missing folders are created. An existing file is replaced, never written to: a process that has it open keeps the
    old content. After a power cut the file can be empty, unless `is_synced`: otherwise this is for files that are
    checked and written again at every start. `before_rename` is called with the file's status just before it appears.
    """
    try:
        _replace(path, data, before_rename, is_synced=is_synced)
    except (FileNotFoundError, NotADirectoryError):  # the folder vanished, or another daemon removed the temporary file
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        _replace(path, data, before_rename, is_synced=is_synced)


def _replace(
    path: str | Path, data: bytes, before_rename: Callable[[os.stat_result], object] | None, *, is_synced: bool
) -> None:
    folder, name = os.path.split(path)
    temporary = f"{folder}/.{name}.{os.urandom(4).hex()}.tmp"  # runtimes read *.json and *.yaml only
    try:
        descriptor = os.open(temporary, _CREATE_FLAGS, 0o644)
        try:
            os.fchmod(descriptor, 0o644)  # regardless of the umask
            while data:
                data = data[os.write(descriptor, data) :]
            status = os.fstat(descriptor)
            if is_synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if before_rename is not None:
            before_rename(status)
        os.rename(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):  # the temporary name is another one each time, and a full disk names none
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def remove_half_written(folder: Path) -> None:
    """Remove the files in a folder of nodeplug that `replace_file` had not finished when its process was killed.

    Raises OSError.
    """
    with os.scandir(folder) as entries:
        leftover = [x.path for x in entries if _TEMPORARY.fullmatch(x.name) and x.is_file(follow_symlinks=False)]
    for path in leftover:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class CdiDirectory:
    """The files of one owner in a directory that runtimes read, such as /var/run/cdi.

    Owners (`device-plugin`, `dra`) do not see each other's files.
    """

    def __init__(self, path: Path, owner: str) -> None:
        """Prepare; no file is touched yet. Raises `CdiError` for an owner that cannot be part of a file's name."""
        if not _OWNER.fullmatch(owner):
            raise CdiError(f'owner "{owner}" must have only lower-case letters, digits and "-"')
        self.path = path
        self._folder = os.fspath(path)
        self._prefix = f"{FILE_PREFIX}{owner}~"
        # of the last written or compared state, by name; None while it is being written
        self._states: dict[str, _FileState | None] = {}

    def write(self, name: str, spec: Spec) -> bool:
        """Write `spec` under `name` (see `file_name`) and return whether anything changed.

        Raises `InvalidSpec` for a spec that a runtime would refuse or that nodeplug never writes, and OSError of the
        disk.
        """
        problems = validate(spec) + policy_problems(spec)
        if problems:
            raise InvalidSpec(f"CDI spec {name}", problems)
        target, data = self.file(name), encode(spec)
        if (state := _state_if_content(target, data)) is not None:
            self._states[name] = state
            return False
        self._states[name] = None
        try:
            replace_file(target, data, partial(self._record_state, name))
        except BaseException:
            del self._states[name]
            raise
        return True

    def _record_state(self, name: str, status: os.stat_result) -> None:
        self._states[name] = _state_of(status)  # before the file appears: another program can change it at once

    def remove(self, name: str) -> bool:
        """Remove the file and return whether it existed. Raises OSError of the disk."""
        target = self.file(name)
        self._states.pop(name, None)
        try:
            os.unlink(target)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_modified(self, name: str) -> bool:
        """Return whether another program has changed, created or removed a file since the last operation on it.

        The file's status is compared, not its content; `name` can be any name.
        """
        state = self._states.get(name, ())
        return state is not None and state != _read_state(self._path(name))

    def own_names(self) -> tuple[str, ...]:
        """Return the names of nodeplug's files, sorted; none if the directory is missing."""
        return tuple(sorted(map(self.name_of, filter(self.is_own_file, self._entries()))))

    def name_of(self, entry: str) -> str:
        """Return the name under which a file was written, from its name in the directory."""
        return entry.removeprefix(self._prefix).removesuffix(".json")

    def is_own_file(self, entry: str) -> bool:
        """Return whether `entry` in the directory is a file of this owner."""
        return entry.startswith(self._prefix) and entry.endswith(".json")

    def sync(self, desired: Iterable[tuple[str, Spec]], stale: Iterable[str] | None = None) -> None:
        """Make the files exactly `desired`: at start, after a reboot, after a crash. Raises the errors of `write`.

        With `stale` only those of them that are not wanted are removed, and other files stay. Writes come first, so
        that a name that stays exists at every moment; one after the other, because a spec of thousands of devices is
        large.
        """
        names = set()
        for name, spec in desired:
            self.write(name, spec)
            names.add(name)
        if stale is None:
            self.remove_others(names)
        else:
            for name in set(stale) - names:
                self.remove(name)

    def remove_others(self, names: Collection[str]) -> None:
        """Remove all files of this owner except these, and half-written ones from a crash.

        Raises OSError of the disk.
        """
        for name in self.own_names():
            if name not in names:
                self.remove(name)
        for entry in self._entries():
            if entry.startswith(f".{self._prefix}") and entry.endswith(".tmp"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._folder}/{entry}")

    def file(self, name: str) -> str:
        """Return the path of a spec. Raises `CdiError` for a name that is not from `file_name`."""
        if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
            raise CdiError(f'"{name}" cannot be a file name of ours; make it with file_name()')
        return self._path(name)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{self._prefix}{name}.json"

    def _entries(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except (FileNotFoundError, NotADirectoryError):
            return []


def _read_state(path: str) -> _FileState:
    """Return the state of the file at a path; empty if there is none."""
    try:
        return _state_of(os.lstat(path))
    except OSError:
        return ()


def _state_of(found: os.stat_result) -> _FileState:
    return found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_size, found.st_mtime_ns


def _state_if_content(path: str, data: bytes) -> _FileState | None:
    """Return the state of a file if it has this content and nodeplug's owner and permissions, otherwise None.

    All users can read it, and only its owner, the daemon's user, can write to it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if not is_ours or found.st_mode & _OTHERS != _READ_BY_OTHERS or found.st_size != len(data):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return _state_of(found) if file.read(len(data)) == data else None
    finally:
        os.close(descriptor)
