"""The common part of conformance tests: recorded checks, and the process under test."""

import asyncio
import contextlib
import re
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct

from kubelet.node import Node

Outcome = Literal["pass", "warn", "fail", "skip"]
T = TypeVar("T")

CDI_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+=[A-Za-z0-9_.:-]+")


class Check(Struct, frozen=True):
    """The result of one check."""

    group: str
    name: str
    outcome: Outcome
    detail: str = ""


class PluginProcess:
    """The plugin under test."""

    def __init__(self, command: Sequence[str]) -> None:
        """`command` is the command line."""
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopping = False

    async def start(self) -> None:
        """Start the process; its output goes to our stderr. Raises OSError."""
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.DEVNULL, stdout=2)

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.returncode if self._process is not None else None

    async def unexpected_exit(self) -> None:
        """Return when the process has ended without being told to."""
        assert self._process is not None, "it was started"
        await self._process.wait()
        if self._is_stopping:
            await asyncio.Event().wait()

    async def terminate(self, seconds: float) -> int | None:
        """Stop the process with SIGTERM; return its exit code, or None if it had to be killed."""
        self._is_stopping = True
        if self._process is None:
            return None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(seconds):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            return None


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

    def __init__(self, seconds: float, report: Callable[[Check], None]) -> None:
        """`seconds` is the timeout of each step; `report` is called with each check."""
        self.checks: list[Check] = []
        self.group = ""  # the group of the current checks
        self.seconds = seconds
        self._report = report
        self._refusal = self._ending = ""  # the kubelet's texts since the last successful registration
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
                self._refusal = self._ending = ""
            elif event.kind == "devices" and event.text:
                self.repeated[event.about] = event.text

    @property
    def reasons(self) -> str:
        """The recorded reasons, to append to the text of a failed check."""
        return "".join(f"; {each}" for each in (self._refusal, self._ending) if each)

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
        """Perform the checks; if the process ends without being told to, they end too."""
        checking, ended = asyncio.create_task(self.check(node, process)), asyncio.create_task(process.unexpected_exit())
        listening = asyncio.create_task(self._listen(node))
        try:
            await asyncio.wait([checking, ended], return_when=asyncio.FIRST_COMPLETED)
            if checking.done():
                checking.result()
            else:
                refusal = f"; the kubelet had {self._refusal}" if self._refusal else ""
                self.note(
                    "still runs",
                    "fail",
                    f"the command ended with {_exit_message(process.exit_code)}{refusal}{self.new_refusals()}",
                )
        finally:
            tasks = [checking, ended, listening]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def stop_and_check(self, process: PluginProcess) -> bool:
        """Stop the plugin and record how it ended; return whether it stopped without being killed."""
        started = time.monotonic()
        code = await process.terminate(min(self.seconds, 30.0))
        took = f"{time.monotonic() - started:.2f} s"
        if code is None:
            self.note("stops on SIGTERM", "fail", f"had to be killed after {took}")
            return False
        message = _exit_message(code) if code >= 0 else f"{_exit_message(code)}, which it does not handle,"
        self.note("stops on SIGTERM", "pass" if code == 0 else "warn", f"{message} after {took}")
        return True


def _exit_message(code: int | None) -> str:
    return f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
