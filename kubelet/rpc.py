"""Calls to plugins as the kubelet makes them: a dial that waits, and errors with the kubelet's texts."""

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
    """The kubelet's timeouts in seconds. Only tests have a reason to change them."""

    dial: float = 10.0
    pre_start: float = 30.0
    get_info: float = 1.0
    notify: float = 5.0
    claims: float = 45.0  # NodePrepareResources, NodeUnprepareResources


DEFAULT_TIMEOUTS = Timeouts()
# "sendmsg:": the plugin ended before grpcio noticed; Go notices at once
_DIAL_ERRORS = ("failed to connect", "sendmsg:")
MAX_MESSAGE = 4 << 20  # bytes; the default of gRPC, which the kubelet does not change


def connect(path: Path, authority: str = "localhost") -> GrpcioChannel:
    """Open a channel as the kubelet would: with grpcio, a gRPC library independent of the plugin under test."""
    return GrpcioChannel(path, authority, MAX_MESSAGE)


async def dial(path: Path, seconds: float, authority: str = "localhost") -> GrpcioChannel:
    """Connect to `path`, waiting up to `seconds` for a server there. Raises `DialError`."""
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
    """A server of a kubelet, which always leaves its socket file behind when it ends."""

    def __init__(self, path: Path, handlers: Sequence[Handler]) -> None:
        """Prepare; the server uses grpcio, like `connect`."""
        super().__init__(path, handlers, transport="grpcio")

    def is_in_place(self) -> bool:
        """Return False, so that stopping does not remove the socket."""
        return False


async def await_unary(call: Awaitable[Any], path: Path | None = None) -> Any:
    """Return the response to a unary call to a plugin at `path`. Raises `PluginCallError`."""
    try:
        return await call
    except RpcError as error:
        raise PluginCallError(_dial_text(error, path) or go_text(error)) from error


def _dial_text(error: RpcError, path: Path | None) -> str:
    """Return the kubelet's text for a call without a server at `path`; empty for other errors."""
    if path is None or error.code is not Status.UNAVAILABLE or not any(each in error.details for each in _DIAL_ERRORS):
        return ""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except OSError as refused:
            reason = (refused.strerror or str(refused)).lower()
        else:
            return ""  # a server is there again
    return (
        'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing:'
        f' dial unix {path}: connect: {reason}"'
    )
