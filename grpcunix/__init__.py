"""gRPC on unix sockets, as kubelet and plugins use it: services from descriptors, sockets with one owner, channels.

Shared by both ends (`deviceplugin`, `dra_plugin`, `kubelet`), which otherwise never import each other.
"""

from grpcunix.backoff import Backoff
from grpcunix.channel import connect, is_live
from grpcunix.folder import FolderWatch
from grpcunix.lasting import LastingServer
from grpcunix.service import Client, Handler, handler
from grpcunix.socket import MAX_PATH, GrpcUnixError, SocketInUse, SocketPathTooLong, UnixServer, remove_dead_sockets

__all__ = [
    "MAX_PATH",
    "Backoff",
    "Client",
    "FolderWatch",
    "GrpcUnixError",
    "Handler",
    "LastingServer",
    "SocketInUse",
    "SocketPathTooLong",
    "UnixServer",
    "connect",
    "handler",
    "is_live",
    "remove_dead_sockets",
]
