"""gRPC on unix sockets, as kubelet and plugins use it: services from descriptors, sockets with one owner, channels.

Shared by both ends (`deviceplugin`, `dra_plugin`, `kubelet`), which otherwise never import each other. The transport is
nodeplug's own (`http2` without I/O, `endpoint` with it) or grpcio's; servicers and callers work with both.
"""

from grpcunix.backoff import Backoff
from grpcunix.channel import Transport, connect, is_live
from grpcunix.persistent import PersistentServer
from grpcunix.service import Channel, Client, Context, Handler, Messages, Method, handler
from grpcunix.socket import MAX_PATH, GrpcUnixError, SocketInUse, SocketPathTooLong, UnixServer, remove_dead_sockets
from grpcunix.status import RpcError, Status

__all__ = [
    "MAX_PATH",
    "Backoff",
    "Channel",
    "Client",
    "Context",
    "GrpcUnixError",
    "Handler",
    "Messages",
    "Method",
    "PersistentServer",
    "RpcError",
    "SocketInUse",
    "SocketPathTooLong",
    "Status",
    "Transport",
    "UnixServer",
    "connect",
    "handler",
    "is_live",
    "remove_dead_sockets",
]
