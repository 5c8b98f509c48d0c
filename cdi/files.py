"""Our spec files in a CDI directory. Blocking: call from a thread.

Rules:
1. A file is complete when it appears: written beside, renamed. Writing what is there already does nothing.
2. Only our own files are ever listed or removed: `nodeplug-<owner>~<name>.json`.
3. The directory may vanish at any time (/var/run is empty after a reboot): missing means empty, writing makes it again.
4. What somebody else has removed, edited, replaced or kept from readers is no longer as it was written (`is_touched`).
5. Nothing is synced. What our files say is on record elsewhere, and is compared and written again at every start: a
   power cut may leave one empty, or bring one back, on a disk as it does in memory.
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
from cdi.validate import own_problems, validate

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:-]*")
FILE_PREFIX = "nodeplug-"
_OWNER = re.compile(r"[a-z0-9-]+")
_HALF_WRITTEN = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # see `_replace`
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_OTHERS, _READ_BY_OTHERS = 0o066, 0o044  # what may be done by those whose file it is not
_LONGEST_NAME = 160  # leaves room for our prefix and a temporary name's suffix in the 255 bytes of a file name

_Mark: TypeAlias = tuple[int, ...]
"""How a file looks: which it is, whose, with what rights, how long, and when it was written to. Not when it was
labelled or linked, which changes nothing for its readers."""


def file_name(kind: str, key: str = "") -> str:
    """Return the file name for the spec of `kind`; `key`, such as a claim's uid, tells several of a kind apart."""
    name = kind.replace("/", "~") + (f"~{key}" if key else "")
    if len(name) > _LONGEST_NAME:
        from hashlib import blake2b  # here, for it loads OpenSSL

        digest = blake2b(name.encode(), digest_size=8).hexdigest()
        name = f"{name[: _LONGEST_NAME - len(digest) - 1]}~{digest}"
    return name


def replace_file(path: str | Path, data: bytes, appears: Callable[[os.stat_result], object] | None = None) -> None:
    """Make `path` a file with this content, readable by all, which is complete when it appears. Raises OSError.

    Missing folders are made. What lies at the path is replaced, never written to: who has it open keeps it as it was.
    After a power cut it may be empty: for what is looked at and written again at every start. `appears` is called with
    the file's status just before that.
    """
    try:
        _replace(path, data, appears)
    except (FileNotFoundError, NotADirectoryError):  # or the folder went meanwhile, or another daemon tidied up
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        _replace(path, data, appears)


def _replace(path: str | Path, data: bytes, appears: Callable[[os.stat_result], object] | None) -> None:
    folder, name = os.path.split(path)
    temporary = f"{folder}/.{name}.{os.urandom(4).hex()}.tmp"  # runtimes read *.json and *.yaml only
    try:
        descriptor = os.open(temporary, _NEW, 0o644)
        try:
            os.fchmod(descriptor, 0o644)  # whatever the umask
            while data:
                data = data[os.write(descriptor, data) :]
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if appears is not None:
            appears(status)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def remove_half_written(folder: Path) -> None:
    """Remove from a folder of ours alone what `replace_file` had not finished when its process was killed.

    Raises OSError.
    """
    with os.scandir(folder) as entries:
        left = [x.path for x in entries if _HALF_WRITTEN.fullmatch(x.name) and x.is_file(follow_symlinks=False)]
    for path in left:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class CdiDirectory:
    """The files of one owner in a directory that runtimes read, such as /var/run/cdi.

    Owners (`device-plugin`, `dra`) do not see each other's files.
    """

    def __init__(self, path: Path, owner: str) -> None:
        """Prepare; nothing is touched yet. Raises `CdiError` for an owner that cannot be part of a file's name."""
        if not _OWNER.fullmatch(owner):
            raise CdiError(f'owner "{owner}" must have only lower-case letters, digits and "-"')
        self.path = path
        self._folder = os.fspath(path)
        self._prefix = f"{FILE_PREFIX}{owner}~"
        self._marks: dict[str, _Mark | None] = {}  # of what we left, by name; None while it is written

    def write(self, name: str, spec: Spec) -> bool:
        """Put `spec` in place under `name` (see `file_name`) and tell whether anything changed.

        Raises `InvalidSpec` for a spec that a runtime would refuse or that we never write, and OSError of the disk.
        """
        problems = validate(spec) + own_problems(spec)
        if problems:
            raise InvalidSpec(f"CDI spec {name}", problems)
        target, data = self.file(name), encode(spec)
        if (mark := _mark_of_content(target, data)) is not None:
            self._marks[name] = mark
            return False
        self._marks[name] = None
        try:
            replace_file(target, data, partial(self._appears, name))
        except BaseException:
            del self._marks[name]
            raise
        return True

    def _appears(self, name: str, status: os.stat_result) -> None:
        self._marks[name] = _mark_of(status)  # before it is there: somebody may change it at once

    def remove(self, name: str) -> bool:
        """Remove the file and tell whether it was there. Raises OSError of the disk."""
        target = self.file(name)
        self._marks.pop(name, None)
        try:
            os.unlink(target)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_touched(self, name: str) -> bool:
        """Tell whether somebody else has changed, made or removed a file since it was written, compared or removed.

        By how it looks, without reading it; `name` may be any.
        """
        mark = self._marks.get(name, ())
        return mark is not None and mark != _mark(self._path(name))

    def ours(self) -> tuple[str, ...]:
        """Return the names of our files, sorted; none where the directory is missing."""
        return tuple(sorted(map(self.name_of, filter(self.is_ours, self._entries()))))

    def name_of(self, entry: str) -> str:
        """Return the name under which a file of ours was written, by what it is called in the directory."""
        return entry.removeprefix(self._prefix).removesuffix(".json")

    def is_ours(self, entry: str) -> bool:
        """Tell whether what is called `entry` in the directory is a file of ours."""
        return entry.startswith(self._prefix) and entry.endswith(".json")

    def sync(self, wanted: Iterable[tuple[str, Spec]], stale: Iterable[str] | None = None) -> None:
        """Make our files exactly `wanted`: at start, after a reboot, after a crash. Raises as `write` does.

        With `stale` those of them that are not wanted go, and what else is there stays. Writes come first, so that a
        name that stays is there at every moment; one after the other, for a spec of thousands of devices is large.
        """
        names = set()
        for name, spec in wanted:
            self.write(name, spec)
            names.add(name)
        if stale is None:
            self.keep(names)
        else:
            for name in set(stale) - names:
                self.remove(name)

    def keep(self, names: Collection[str]) -> None:
        """Remove our files but these, and what a crash left half written. Raises OSError of the disk."""
        for name in self.ours():
            if name not in names:
                self.remove(name)
        for entry in self._entries():
            if entry.startswith(f".{self._prefix}") and entry.endswith(".tmp"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._folder}/{entry}")

    def file(self, name: str) -> str:
        """Return where a spec lies. Raises `CdiError` for a name that `file_name` did not make."""
        if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            raise CdiError(f'"{name}" cannot be a file name of ours; make it with file_name()')
        return self._path(name)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{self._prefix}{name}.json"

    def _entries(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except (FileNotFoundError, NotADirectoryError):
            return []


def _mark(path: str) -> _Mark:
    """Return how what lies at a path looks; empty where there is nothing."""
    try:
        return _mark_of(os.lstat(path))
    except OSError:
        return ()


def _mark_of(found: os.stat_result) -> _Mark:
    return found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_size, found.st_mtime_ns


def _mark_of_content(path: str, data: bytes) -> _Mark | None:
    """Return how a file looks that has this content and is as we make ours; None for what is missing or is otherwise.

    Everybody can read it, and its owner, who we are, alone write to it.
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
            return _mark_of(found) if file.read(len(data)) == data else None
    finally:
        os.close(descriptor)
