"""Calls to plugins as the kubelet makes them: a dial that waits, and errors in the kubelet's words."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc.aio
from msgspec import Struct

from grpcunix import connect
from kubelet.errors import DialError, PluginCallError, go_text


class Timeouts(Struct, frozen=True):
    """How long the kubelet waits, in seconds. Only tests have reason to change these."""

    dial: float = 10.0
    pre_start: float = 30.0
    get_info: float = 1.0
    notify: float = 5.0
    claims: float = 45.0  # NodePrepareResources, NodeUnprepareResources


DEFAULT_TIMEOUTS = Timeouts()


async def dial(path: Path, seconds: float, authority: str = "localhost") -> grpc.aio.Channel:
    """Connect to `path`, waiting up to that many seconds for somebody to serve there. Raises `DialError`."""
    channel = connect(path, authority)
    try:
        async with asyncio.timeout(seconds):
            await channel.channel_ready()
    except TimeoutError:
        await channel.close()
        raise DialError("context deadline exceeded") from None
    except BaseException:
        await channel.close()
        raise
    return channel


async def answer(call: Awaitable[Any]) -> Any:
    """The answer of a unary call. Raises `PluginCallError`."""
    try:
        message = await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # nobody gave up: the connection was closed under the call
        closing = "rpc error: code = Canceled desc = grpc: the client connection is closing"
        raise PluginCallError(closing) from None
    except grpc.aio.AioRpcError as error:
        raise PluginCallError(go_text(error)) from error
    if message is None:  # the library's way to say that the bytes are not this message
        raise PluginCallError("rpc error: code = Internal desc = grpc: failed to unmarshal the received message")
    return message
