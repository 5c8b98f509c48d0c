"""Services from their descriptors: a server's handlers and a client's calls, without generated service code.

Generated service code refuses every grpcio older than its generator; the descriptors say all that it would.
"""

import re
from collections.abc import AsyncIterable, Awaitable
from typing import Any, TypeAlias, cast

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

Handler: TypeAlias = grpc.GenericRpcHandler


def snake_case(method: str) -> str:
    """`ListAndWatch` -> `list_and_watch`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method).lower()


def _encode(message: Message | bytes) -> bytes:
    """Messages are encoded here; bytes are a message that its owner has encoded already (and may have cached)."""
    return message if isinstance(message, bytes) else message.SerializeToString()


def handler(service: ServiceDescriptor, servicer: object) -> Handler:
    """Make the handlers of `service` from the coroutine methods of `servicer`, named in Python's spelling.

    A method takes (request, context) and returns a message or its bytes; a streaming one is an async generator of them.
    Methods that `servicer` lacks answer UNIMPLEMENTED, as gRPC demands.
    """
    methods = {}
    for method in service.methods:
        behaviour = getattr(servicer, snake_case(method.name), None)
        if behaviour is None:
            continue
        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        decode = GetMessageClass(method.input_type).FromString
        methods[method.name] = make(behaviour, request_deserializer=decode, response_serializer=_encode)
    return grpc.method_handlers_generic_handler(service.full_name, methods)


class Client:
    """The calls of one service over a channel."""

    def __init__(self, channel: grpc.aio.Channel, service: ServiceDescriptor) -> None:
        """Bind `service` to `channel`; nothing is sent yet."""
        self._channel = channel
        self._service = service

    def call(self, method: str, request: Message, timeout: float | None = None) -> Awaitable[Any]:
        """Call a unary method by its name in the `.proto` file; `timeout` in seconds. Raises `grpc.aio.AioRpcError`."""
        found, path = self._find(method)
        unary = self._channel.unary_unary(
            path, request_serializer=_encode, response_deserializer=GetMessageClass(found.output_type).FromString
        )
        return cast(Awaitable[Any], unary(request, timeout=timeout))

    def stream(self, method: str, request: Message) -> AsyncIterable[Any]:
        """Call a server-streaming method; the result also has the call's `cancel()`. Raises `grpc.aio.AioRpcError`."""
        found, path = self._find(method)
        stream = self._channel.unary_stream(
            path, request_serializer=_encode, response_deserializer=GetMessageClass(found.output_type).FromString
        )
        return cast(AsyncIterable[Any], stream(request))

    def _find(self, method: str) -> tuple[MethodDescriptor, str]:
        return self._service.methods_by_name[method], f"/{self._service.full_name}/{method}"
