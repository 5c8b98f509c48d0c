"""Services from their descriptors: a server's handlers and a client's calls, without generated service code.

Generated service code refuses every grpcio older than its generator; the descriptors contain the same information. A
servicer or caller does not depend on the transport of its calls.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from grpcunix.status import RpcError, Status


class Context(Protocol):
    """What a servicer gets about a call besides its request."""

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller's deadline; None without a deadline."""
        ...

    def trace_context(self) -> Mapping[str, str]:
        """Return the caller's span, from the `TRACE_FIELDS` of its metadata; empty without one."""
        ...


TRACE_FIELDS: Final = ("traceparent", "tracestate")
"""The fields of W3C's Trace Context, section 3; all other metadata is ignored."""
MAX_TRACE_FIELD: Final = 512  # characters; the specification requires that this length is supported


class Method(Struct, frozen=True):
    """A method of a servicer. `behaviour(request, context)` is a coroutine, or an async generator if it streams."""

    decode: Callable[[bytes], Any]
    behaviour: Callable[[Any, Context], Any]
    streams: bool

    def read(self, request: bytes) -> Any:
        """Decode a request. Raises `RpcError`."""
        try:
            return self.decode(request)
        except DecodeError as error:
            raise RpcError(Status.INTERNAL, f"the request cannot be decoded: {error}") from error


class Handler(Struct, frozen=True):
    """A service that can be served: its full name, and its methods by their names in the `.proto` file."""

    service: str
    methods: Mapping[str, Method]


class Stream(Protocol):
    """The messages of a streaming call, encoded. Ends with the call; raises `RpcError` if the call fails."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate once."""
        ...

    def cancel(self) -> None:
        """End the call. Idempotent; the iteration raises CANCELLED."""
        ...


class Channel(Protocol):
    """A connection to one server; see `connect`."""

    async def unary(self, path: str, request: bytes, seconds: float | None) -> bytes:
        """Call a unary method by its path; `seconds` is the time limit. Raises `RpcError`."""
        ...

    def stream(self, path: str, request: bytes) -> Stream:
        """Call a streaming method by its path."""
        ...

    async def close(self) -> None:
        """End all calls. Idempotent."""
        ...

    async def __aenter__(self) -> "Channel":
        """Return the channel."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        ...


def snake_case(method: str) -> str:
    """Return a method's name in Python's style: `ListAndWatch` -> `list_and_watch`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method).lower()


def encode(message: Message | bytes) -> bytes:
    """Return an encoded message; bytes are a message that was encoded already (and might be cached)."""
    return message if isinstance(message, bytes) else message.SerializeToString()


def handler(service: ServiceDescriptor, servicer: object) -> Handler:
    """Create the handler of `service` from the coroutine methods of `servicer`, which have snake_case names.

    A method takes (request, context) and returns a message or its bytes; a streaming one is an async generator of them.
    It refuses with `RpcError`; any other exception is logged and reaches the caller as UNKNOWN. It is cancelled when
    its caller has gone or its deadline has passed. Methods that `servicer` lacks answer UNIMPLEMENTED, as gRPC
    requires.
    """
    methods = {}
    for method in service.methods:
        behaviour = getattr(servicer, snake_case(method.name), None)
        if behaviour is not None:
            decode = GetMessageClass(method.input_type).FromString
            methods[method.name] = Method(decode, behaviour, streams=method.server_streaming)
    return Handler(service.full_name, methods)


class Client:
    """The calls of one service over a channel."""

    def __init__(self, channel: Channel, service: ServiceDescriptor) -> None:
        """Bind `service` to `channel`; nothing is sent yet."""
        self._channel = channel
        self._service = service

    def call(self, method: str, request: Message, timeout: float | None = None) -> Awaitable[Any]:
        """Call a unary method by its name in the `.proto` file; `timeout` in seconds. Raises `RpcError`."""
        return self._call(*self._find(method), request, timeout)

    def stream(self, method: str, request: Message) -> "Messages":
        """Call a server-streaming method."""
        found, path = self._find(method)
        return Messages(self._channel.stream(path, encode(request)), found)

    async def _call(self, method: MethodDescriptor, path: str, request: Message, seconds: float | None) -> Any:
        return _decode(method, await self._channel.unary(path, encode(request), seconds))

    def _find(self, method: str) -> tuple[MethodDescriptor, str]:
        return self._service.methods_by_name[method], f"/{self._service.full_name}/{method}"


class Messages:
    """The messages of a streaming call, to be iterated once. Raises `RpcError` if the call fails."""

    def __init__(self, stream: Stream, method: MethodDescriptor) -> None:
        """Decode the messages of `stream`."""
        self._stream = stream
        self._method = method

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate; the call ends with the iteration."""
        try:
            async for data in self._stream:
                yield _decode(self._method, data)
        finally:
            self._stream.cancel()

    def cancel(self) -> None:
        """End the call. Idempotent; the iteration raises CANCELLED."""
        self._stream.cancel()


def _decode(method: MethodDescriptor, data: bytes) -> Any:
    try:
        return GetMessageClass(method.output_type).FromString(data)
    except DecodeError as error:
        name = method.output_type.full_name
        raise RpcError(Status.INTERNAL, f"the answer of {method.full_name} is no {name}: {error}") from error
