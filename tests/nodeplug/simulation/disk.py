"""The disk of a process: counts the effects on it, and can fail or kill the process at each of them.

An effect survives the process: creating, syncing, renaming or removing a file, setting its mode, creating or removing
a folder, committing a transaction. A process can die before each effect, and after a commit. A full disk refuses
effects that create something, a read-only one all.
"""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal
from unittest.mock import patch

Failure = Literal["full", "read-only"]
_ERRORS = {"full": errno.ENOSPC, "read-only": errno.EROFS}
_SQLITE_ERRORS = {
    "full": ("database or disk is full", sqlite3.SQLITE_FULL),
    "read-only": ("attempt to write a readonly database", sqlite3.SQLITE_READONLY),
}


class ProcessDied(BaseException):
    """The process is dead; the message says before or after which effect."""


class Disk:
    """The disk of a simulation."""

    def __init__(self) -> None:
        self.dead = False
        self.dying: Callable[[str], object] = lambda _: None  # gets the effect before or after which the process dies
        self.effects = 0
        self.refused = 0
        self._watching = False
        self._dies_in: int | None = None
        self._fails_in: int | None = None
        self._failure: Failure = "full"

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Count the effects of this block as the process's."""
        self._watching, before = True, self._watching
        try:
            yield
        finally:
            self._watching = before

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """Do not count the effects of this block: they are another program's."""
        self._watching, before = False, self._watching
        try:
            yield
        finally:
            self._watching = before

    def die_after(self, after: int) -> None:
        """Kill the process instead of the effect after `after` more effects."""
        self._dies_in = after

    def fail_after(self, after: int, failure: Failure) -> None:
        """Refuse effects, after `after` more effects."""
        self._fails_in, self._failure = after, failure

    @property
    def fails(self) -> bool:
        """Return whether it refuses effects, or is going to."""
        return self._fails_in is not None

    def recover(self) -> None:
        """Work again, for a new process."""
        self.dead, self._dies_in, self._fails_in = False, None, None

    def effect(self, what: str, *, makes: bool = True, can_fail: bool = True) -> Failure | None:
        """Count an effect that is about to happen. Returns why it fails, or raises `ProcessDied`."""
        if not self._watching:
            return None
        if self.dead:
            raise ProcessDied(what)
        self.effects += 1
        if self._dies_in is not None:
            if self._dies_in == 0:
                self.dead = True
                self.dying(what if what.startswith("after") else f"before {what}")
                raise ProcessDied(what)
            self._dies_in -= 1
        if self._fails_in is None or not can_fail:
            return None
        if self._fails_in:
            self._fails_in -= 1
            return None
        if self._failure == "full" and not makes:
            return None
        self.refused += 1
        return self._failure


class _Connection(sqlite3.Connection):
    disk: Disk

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql != "COMMIT":
            return super().execute(sql, *parameters)
        if failure := self.disk.effect("commit"):
            words, code = _SQLITE_ERRORS[failure]
            error = sqlite3.OperationalError(words)
            error.sqlite_errorcode = code
            raise error
        done = super().execute(sql)
        self.disk.effect("after commit", can_fail=False)
        return done


@contextlib.contextmanager
def in_place(disk: Disk) -> Iterator[None]:
    """Route effects through `disk` for the block."""

    def through(name: str, makes: bool, concerns: Callable[..., bool] = lambda *_, **__: True) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if concerns(*arguments, **options) and (failure := disk.effect(name, makes=makes)):
                raise OSError(_ERRORS[failure], os.strerror(_ERRORS[failure]), str(arguments[0]))
            return real(*arguments, **options)

        return call

    connection = type("Connection", (_Connection,), {"disk": disk})
    with contextlib.ExitStack() as stack:
        for name, makes in {"mkdir": True, "fchmod": True, "fsync": True, "rename": False}.items():
            stack.enter_context(patch.object(os, name, through(name, makes)))
        for name in ("unlink", "rmdir"):
            stack.enter_context(patch.object(os, name, through(name, makes=False)))
        stack.enter_context(patch.object(os, "open", through("open", True, _makes_a_file)))
        stack.enter_context(patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=connection)))
        yield


def _makes_a_file(path: object, flags: int, *_: object, **__: object) -> bool:
    return bool(flags & os.O_CREAT)
