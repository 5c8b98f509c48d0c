"""Calls to plugins as the kubelet makes them: a dial that waits, and errors in the kubelet's words."""

import asyncio
import socket
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from grpcunix import Handler, RpcError, Status, UnixServer
from grpcunix.grpcio import GrpcioChannel
from kubelet.errors import DialError, PluginCallError, go_text


class Timeouts(Struct, frozen=True):
    """How long the kubelet waits, in seconds. Only tests have reason to change these."""

    dial: float = 10.0
    pre_start: float = 30.0
    get_info: float = 1.0
    notify: float = 5.0
    claims: float = 45.0  # NodePrepareResources, NodeUnprepareResources


DEFAULT_TIMEOUTS = Timeouts()
_NOBODY = ("failed to connect", "sendmsg:")  # the second: it went before the channel noticed, which Go does at once
LONGEST_MESSAGE = 4 << 20  # bytes; the default of gRPC, which the kubelet leaves as it is


def connect(path: Path, authority: str = "localhost") -> GrpcioChannel:
    """Open a channel as the kubelet would: with the gRPC library that the plugin under test did not bring."""
    return GrpcioChannel(path, authority, LONGEST_MESSAGE)


async def dial(path: Path, seconds: float, authority: str = "localhost") -> GrpcioChannel:
    """Connect to `path`, waiting up to that many seconds for somebody to serve there. Raises `DialError`."""
    channel = connect(path, authority)
    try:
        async with asyncio.timeout(seconds):
            await channel.grpc.channel_ready()
    except TimeoutError:
        await channel.close()
        raise DialError("context deadline exceeded") from None
    except BaseException:
        await channel.close()
        raise
    return channel


class KubeletServer(UnixServer):
    """A server of a kubelet, which leaves its socket behind whichever way it ends."""

    def __init__(self, path: Path, handlers: Sequence[Handler]) -> None:
        """Prepare; it speaks with grpcio, as `connect` does."""
        super().__init__(path, handlers, transport="grpcio")

    def is_in_place(self) -> bool:
        """Never, so that nobody removes it."""
        return False


async def await_unary(call: Awaitable[Any], path: Path | None = None) -> Any:
    """The response to a unary call to a plugin at `path`. Raises `PluginCallError`."""
    try:
        return await call
    except RpcError as error:
        raise PluginCallError(_dial_text(error, path) or go_text(error)) from error


def _dial_text(error: RpcError, path: Path | None) -> str:
    """The kubelet's words for a call that found nobody at `path`; empty for other errors."""
    if path is None or error.code is not Status.UNAVAILABLE or not any(each in error.details for each in _NOBODY):
        return ""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except OSError as refused:
            reason = (refused.strerror or str(refused)).lower()
        else:
            return ""  # somebody is back by now
    return (
        'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing:'
        f' dial unix {path}: connect: {reason}"'
    )
