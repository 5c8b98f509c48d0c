"""The common part of conformance tests: recorded checks, and the process under test."""

import asyncio
import contextlib
import os
import re
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct

from grpcunix import is_live
from kubelet.node import Node

Outcome = Literal["pass", "warn", "fail", "skip"]
T = TypeVar("T")

GRACE = 30.0  # seconds between SIGTERM and SIGKILL; a pod's default
PAUSE = 1.0
"""Seconds before a plugin starts again: a kubelet looks once a second for containers that have ended."""

CDI_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+=[A-Za-z0-9_.:-]+")


class Check(Struct, frozen=True):
    """The result of one check."""

    group: str
    name: str
    outcome: Outcome
    detail: str = ""


class PluginProcess:
    """The process of the plugin under test. It can be stopped and started again.

    Like a container's runtime, it sends SIGTERM to the command only, and kills what the command leaves behind.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """`command` is the command line."""
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._is_running = asyncio.Event()  # from a start until we stop it
        self.starts = 0

    async def start(self) -> None:
        """Start the process; its output goes to our stderr. Raises OSError."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=2, process_group=0
        )
        self.starts += 1
        self._is_running.set()

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.returncode if self._process is not None else None

    async def unexpected_exit(self) -> None:
        """Return when the process has ended although it was not stopped."""
        while True:
            await self._is_running.wait()
            process = self._process
            assert process is not None, "it was started"
            await process.wait()
            if self._is_running.is_set() and process is self._process:
                return

    async def terminate(self, seconds: float) -> int | None:
        """Stop the process with SIGTERM; return its exit code, or None if it had to be killed after `seconds`."""
        return await self._end(signal.SIGTERM, seconds)

    async def kill(self) -> None:
        """End the process as a crash does."""
        await self._end(signal.SIGKILL, None)

    async def _end(self, number: signal.Signals, seconds: float | None) -> int | None:
        process = self._process
        if process is None or not self._is_running.is_set():  # never started, or stopped before
            return self.exit_code
        self._is_running.clear()
        if process.returncode is None:
            process.send_signal(number)
        try:
            async with asyncio.timeout(seconds):
                return await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            return None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: setuid programs
                os.killpg(process.pid, signal.SIGKILL)


def remove_dead_sockets(folder: Path) -> None:
    """Remove the sockets that a killed plugin has left, so that they are not counted as left by a later one."""
    for path in _dead_sockets(folder):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def kubelet_folder(folder: Path | None) -> Iterator[Path]:
    """Yield the kubelet's folder: `folder`, or a temporary one."""
    if folder is not None:
        yield folder
        return
    # a child process that the command left behind can still write into it
    with tempfile.TemporaryDirectory(prefix="kubelet-", ignore_cleanup_errors=True) as name:
        yield Path(name)


class Run(ABC):
    """One conformance test; `checks` contains the checks so far."""

    def __init__(self, seconds: float, report: Callable[[Check], None], *, has_plugin_restarts: bool) -> None:
        """`seconds` is the timeout of each step; `report` is called with each check.

        Without `has_plugin_restarts`, the plugin is stopped only at the end.
        """
        self.checks: list[Check] = []
        self.group = ""  # the group of the current checks
        self.seconds = seconds
        self.has_plugin_restarts = has_plugin_restarts
        self._report = report
        self._refusal = self._ending = ""  # the kubelet's texts since the last successful registration
        self._left = ""  # the sockets that a stopped plugin has left, until it registers again
        self.repeated: dict[str, str] = {}  # resource -> the repeated id in its list

    @property
    def is_passed(self) -> bool:
        """Whether no check failed."""
        return all(check.outcome != "fail" for check in self.checks)

    def note(self, name: str, outcome: Outcome, detail: str = "") -> bool:
        """Record a check; return whether it did not fail."""
        check = Check(self.group, name, outcome, detail)
        self.checks.append(check)
        self._report(check)
        return outcome != "fail"

    async def _listen(self, node: Node) -> None:
        """Record why registrations were refused, streams ended and unprepare failed; never returns."""
        async for event in node.events():
            if event.kind == "refused":
                self._refusal = f"refused {event.about}: {event.text}"
            elif event.kind == "disconnected" and event.text:
                self._ending = f"the stream of {event.about} ended: {event.text}"
            elif event.kind == "unprepare failed":
                self._ending = event.text
            elif event.kind in ("registered", "driver registered"):
                self._refusal = self._ending = self._left = ""
            elif event.kind == "devices" and event.text:
                self.repeated[event.about] = event.text

    @property
    def reasons(self) -> str:
        """The recorded reasons, to append to the text of a failed check."""
        return "".join(f"; {each}" for each in (self._refusal, self._ending, self._left) if each)

    def new_refusals(self) -> str:
        """Return what an API server has refused since the last call, to append to the text of a failed check."""
        return ""

    async def within_timeout(self, call: Awaitable[T]) -> T:
        """Await a call within `seconds` and return its result. Raises TimeoutError."""
        async with asyncio.timeout(self.seconds):
            return await call

    @abstractmethod
    async def check(self, node: Node, process: PluginProcess) -> None:
        """Perform all checks of a plugin that was started."""

    async def start_and_check(self, node: Node, command: Sequence[str]) -> None:
        """Start the plugin, check it, and stop it. Raises OSError if it cannot be started."""
        process = PluginProcess(command)
        await process.start()
        try:
            await self._check_while_running(node, process)
        finally:
            await process.terminate(self.seconds)

    async def _check_while_running(self, node: Node, process: PluginProcess) -> None:
        """Perform the checks; if the process ends although it was not stopped, they end too."""
        checking, ended = asyncio.create_task(self.check(node, process)), asyncio.create_task(process.unexpected_exit())
        listening = asyncio.create_task(self._listen(node))
        try:
            await asyncio.wait([checking, ended], return_when=asyncio.FIRST_COMPLETED)
            if checking.done():
                checking.result()
            else:
                refusal = f"; the kubelet had {self._refusal}" if self._refusal else ""
                command = "the command" if process.starts == 1 else "the command, which was started again,"
                left = f"; {self._left}" if self._left else ""
                text = f"{command} ended with {_exit_message(process.exit_code)}{refusal}{left}{self.new_refusals()}"
                self.note("still runs", "fail", text)
        finally:
            tasks = [checking, ended, listening]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def stop_plugin(
        self,
        node: Node,
        process: PluginProcess,
        name: str,
        folder: Path,
        is_gone: Callable[[], bool],
        *,
        is_crash: bool,
    ) -> bool:
        """Stop the plugin with SIGTERM, or kill it, so that it can start again; return whether the kubelet has lost it.

        If `is_gone` remains false, the check `name` fails. `folder` is that of the plugin's sockets.
        """
        if is_crash:
            await process.kill()
        else:
            await process.terminate(min(self.seconds, GRACE))
        try:
            await node.until(is_gone, self.seconds)
        except TimeoutError:
            text = f"it is still connected {self.seconds:.0f} s after its end: another process serves its socket"
            return self.note(name, "fail", text)
        self._refusal = self._ending = ""  # of the plugin before
        await asyncio.sleep(PAUSE)
        if left := sorted(path.name for path in _dead_sockets(folder)):
            text = "which an earlier start has left, was there when it started again; remove it before you listen"
            self._left = f"the socket {', '.join(left)}, {text}"
        return True

    async def stop_and_check(self, process: PluginProcess) -> bool:
        """Stop the plugin and record how it ended; return whether it stopped without being killed."""
        started = time.monotonic()
        code = await process.terminate(min(self.seconds, GRACE))
        took = f"{time.monotonic() - started:.2f} s"
        if code is None:
            self.note("stops on SIGTERM", "fail", f"had to be killed after {took}")
            return False
        message = _exit_message(code) if code >= 0 else f"ended by {_exit_message(code)}, which it does not handle,"
        self.note("stops on SIGTERM", "pass" if code == 0 else "warn", f"{message} after {took}")
        return True


def _dead_sockets(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_socket() and not is_live(path)]


def _exit_message(code: int | None) -> str:
    return f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
