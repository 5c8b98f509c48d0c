"""The disk below a process: it counts what is done to it, and can fail at, or be the end of, any of it.

An effect is what is there after the process has died: a file that is made, gets its mode, is synced, renamed or
removed, a folder that is made or removed, a transaction that is committed. A process can die before each of them, and
after a commit. A full disk refuses what makes something, a read-only one everything.
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


class Died(BaseException):
    """The process is dead; the word says before or after what."""


class Disk:
    """The one disk of a life."""

    def __init__(self) -> None:
        self.dead = False
        self.dying: Callable[[str], object] = lambda _: None  # is told before or after what
        self.effects = 0
        self.refused = 0
        self._watching = False
        self._dies_in: int | None = None
        self._fails_in: int | None = None
        self._failure: Failure = "full"

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """What happens within is done by the process."""
        self._watching, before = True, self._watching
        try:
            yield
        finally:
            self._watching = before

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """What happens within is done by somebody else."""
        self._watching, before = False, self._watching
        try:
            yield
        finally:
            self._watching = before

    def will_be_the_end(self, after: int) -> None:
        """The process dies instead of an effect, `after` others from now."""
        self._dies_in = after

    def will_fail(self, after: int, failure: Failure) -> None:
        """Refuse effects from the one that is `after` others from now."""
        self._fails_in, self._failure = after, failure

    @property
    def fails(self) -> bool:
        """Whether it refuses now, or will."""
        return self._fails_in is not None

    def recover(self) -> None:
        """Be a good disk again, of a new process."""
        self.dead, self._dies_in, self._fails_in = False, None, None

    def effect(self, what: str, *, makes: bool = True, can_fail: bool = True) -> Failure | None:
        """Take note that something is about to be done. Returns why it cannot be, or raises `Died`."""
        if not self._watching:
            return None
        if self.dead:
            raise Died(what)
        self.effects += 1
        if self._dies_in is not None:
            if self._dies_in == 0:
                self.dead = True
                self.dying(what if what.startswith("after") else f"before {what}")
                raise Died(what)
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
    """Let everything go through `disk`."""

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
