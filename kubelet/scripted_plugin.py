"""Scripted plugins for tests: every call is recorded, and every answer can be replaced, delayed, failed or cut off."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from google.protobuf.message import Message

from grpcunix import Context, RpcError, Status
from kubeletapi.pluginregistration.v1 import api_pb2 as registration

REGISTRATION = registration.DESCRIPTOR.services_by_name["Registration"]
"""The service through which a plugin watcher identifies a plugin."""

StubReply = Message | bytes
Behaviour = Callable[[Any], Awaitable[StubReply]]


class PluginFault(RpcError):
    """Raised in a behaviour to answer with this gRPC status."""

    def __init__(self, text: str, code: Status = Status.INTERNAL) -> None:
        """`text` becomes the details."""
        super().__init__(code, text)


class ScriptedPlugin(ABC):
    """The base of all stubs: recorded calls, behaviours, streams, and the service for the plugin watcher.

    Use it as a context manager, or `start` and `stop` it.
    """

    def __init__(self, plugin_type: str, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """The arguments are the answer to a plugin watcher's GetInfo."""
        self.info = registration.PluginInfo(type=plugin_type, name=name, endpoint=endpoint, supported_versions=versions)
        self.calls: list[tuple[str, Any]] = []  # (method, request), in order
        self.behaviours: dict[str, Behaviour] = {}  # method -> replaces the default answer
        self.streams_opened = 0  # in total
        self._streams: list[asyncio.Queue[StubReply | None]] = []
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Start serving."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        await self.stop()

    @abstractmethod
    async def start(self) -> None:
        """Start serving."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop serving. Idempotent."""

    def send(self, message: StubReply) -> None:
        """Send a message, or raw bytes (also invalid ones), on every stream."""
        for stream in self._streams:
            stream.put_nowait(message)

    def end_streams(self) -> None:
        """End every stream without an error; the plugin continues to serve."""
        for stream in self._streams:
            stream.put_nowait(None)

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    def called(self, method: str) -> list[Any]:
        """Return the requests of a method, in order."""
        return [request for name, request in self.calls if name == method]

    async def until(self, predicate: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until `predicate` is true; checks after each call and each change of streams. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not predicate():
                await self._changed.wait()

    async def get_info(self, request: registration.InfoRequest, _: Context) -> StubReply:
        """`Registration.GetInfo` of the plugin watcher."""
        return await self.reply_to("GetInfo", request, self.info)

    async def notify_registration_status(self, request: registration.RegistrationStatus, _: Context) -> StubReply:
        """`Registration.NotifyRegistrationStatus` of the plugin watcher."""
        response = registration.RegistrationStatusResponse()
        return await self.reply_to("NotifyRegistrationStatus", request, response)

    async def reply_to(self, method: str, request: Any, usual: StubReply | Callable[[], StubReply]) -> StubReply:
        """Record a call and return the reply: that of the method's behaviour if there is one, otherwise `usual`."""
        self.calls.append((method, request))
        self._notify()
        behaviour = self.behaviours.get(method)
        if behaviour is None:
            return usual() if callable(usual) else usual
        return await behaviour(request)

    async def stream(self, first: Awaitable[StubReply]) -> AsyncIterator[StubReply]:
        """Yield the first message, then each message that `send` sends."""
        message = await first
        stream: asyncio.Queue[StubReply | None] = asyncio.Queue()
        self._streams.append(stream)
        self.streams_opened += 1
        self._notify()
        try:
            yield message
            while (sent := await stream.get()) is not None:
                yield sent
        finally:
            self._streams.remove(stream)
            self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def failing(text: str, code: Status = Status.INTERNAL) -> Behaviour:
    """Return a behaviour that answers with a gRPC error."""

    async def fail(_: Any) -> StubReply:
        raise PluginFault(text, code)

    return fail


def answering(*answers: StubReply) -> Behaviour:
    """Return a behaviour that returns these answers one after the other, and the last one from then on."""
    left = list(answers)

    async def give(_: Any) -> StubReply:
        return left.pop(0) if len(left) > 1 else left[0]

    return give


class Gate:
    """A behaviour that waits until the test opens it, and then returns `answer`."""

    def __init__(self, answer: StubReply) -> None:
        self.answer = answer
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Release all present and future callers."""
        self._opened.set()

    async def __call__(self, _: Any) -> StubReply:
        """Wait until the gate is open, and return the answer."""
        await self._opened.wait()
        return self.answer
