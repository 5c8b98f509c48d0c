"""The daemon as a process that is forked from one with all imports.

Imports take four fifths of a daemon's start, and thousands are started. The rest is as in an ordinary process: the
program's `main` with its own arguments, environment and standard error. The library that injects faults is loaded
before the fork, and starts to count calls after it.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from signal import SIGKILL, SIGTERM
from unittest.mock import patch

from tests.faults.shim import library

_IMPORTED = (  # the program, and the modules that it imports once it knows its configuration
    "asyncio.unix_events",
    "concurrent.futures.thread",
    "deviceplugin.lifecycle",
    "dra_plugin",
    "nodeplug.cli",
    "nodeplug.commands.run",
    "nodeplug.signals",
    "resourceapi.client",
    "tests.faults.daemon",
)


class Daemon:
    """`nodeplug WORDS...` in a running loop. `errors` is the file for its standard error."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], errors: Path) -> None:
        self.errors = errors
        errors.touch()
        self._process = _context().Process(target=_main, args=(tuple(words), dict(environment), str(errors)))
        self._process.start()
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._process.sentinel, self._end)

    @property
    def returncode(self) -> int | None:
        """The exit status, or minus the number of the signal that ended it; None while it runs."""
        return self._process.exitcode if self._ended.is_set() else None

    async def wait(self) -> None:
        """Wait until the process has ended."""
        await self._ended.wait()

    def terminate(self) -> None:
        """Send SIGTERM, unless the process has ended."""
        self._signal(SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, unless the process has ended."""
        self._signal(SIGKILL)

    def _signal(self, number: int) -> None:
        if not self._ended.is_set() and self._process.pid is not None:
            with suppress(ProcessLookupError):  # it has just ended, unknown to the loop
                os.kill(self._process.pid, number)

    def _end(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self._process.join()
        self._ended.set()


@cache
def _context() -> ForkServerContext:
    """Return the fork server, started once with the fault library preloaded."""
    context = get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    with patch.dict(os.environ, LD_PRELOAD=str(library())):
        forkserver.ensure_running()
    return context


def _main(words: tuple[str, ...], environment: dict[str, str], errors: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    sys.argv = ["nodeplug", *words]
    from nodeplug.__main__ import main

    ctypes.CDLL(str(library())).faults_begin()
    main()
