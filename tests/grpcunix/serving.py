"""A server of our own transport, for tests of hostile and broken clients."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from grpcunix import Context, handler
from grpcunix.builtin_server import BuiltinServer
from grpcunix.http2 import DEFAULT_LIMITS, Limits, SharedUsage
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

SERVICE = api.DESCRIPTOR.services_by_name["DevicePlugin"]


class Waiting:
    """A device plugin whose lists do not end. Counts the running calls."""

    def __init__(self) -> None:
        self.running = 0

    async def list_and_watch(self, request: api.Empty, context: Context) -> AsyncIterator[api.ListAndWatchResponse]:
        self.running += 1
        try:
            yield api.ListAndWatchResponse()
            await asyncio.Event().wait()
        finally:
            self.running -= 1


async def serving(folder: Path, servicer: object, limits: Limits = DEFAULT_LIMITS) -> BuiltinServer:
    """Serve at `p.sock` in the folder, with limits of its own."""
    server = BuiltinServer([handler(SERVICE, servicer)], keepalive=None, limits=limits, shared=SharedUsage())
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(folder / "p.sock"))
    await server.start(bound)
    return server
