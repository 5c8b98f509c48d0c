"""Ended calls and connections are freed at once: a kubelet's restarts leave no work for the garbage collector."""

import gc
from collections import Counter
from pathlib import Path

from grpcunix import Client, UnixServer, handler
from grpcunix.builtin_server import BuiltinServer
from grpcunix.http2 import ServerConnection
from grpcunix.http2.client import ClientConnection
from kubelet.rpc import connect
from kubeletapi.pluginregistration.v1 import api_pb2 as api

SERVICE = api.DESCRIPTOR.services_by_name["Registration"]


class Plugin:
    async def get_info(self, request: api.InfoRequest, context: object) -> api.PluginInfo:
        return api.PluginInfo(name="p")


async def test_ended_servers_and_connections_leave_no_reference_cycles(socket_dir: Path) -> None:
    gc.collect()
    before = _live_objects()
    gc.disable()
    try:
        for _ in range(3):
            await _serve_one_call(socket_dir / "p.sock")
        assert _live_objects() - before == Counter()
    finally:
        gc.enable()


async def _serve_one_call(path: Path) -> None:
    server = UnixServer(path, [handler(SERVICE, Plugin())])
    await server.start()
    async with connect(path) as channel:
        await Client(channel, SERVICE).call("GetInfo", api.InfoRequest(), timeout=30)
    await server.stop()


def _live_objects() -> Counter[str]:
    kinds = BuiltinServer, ServerConnection, ClientConnection
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds))
