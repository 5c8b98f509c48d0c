"""gRPC on unix sockets, as kubelet and plugins use it: services from descriptors, sockets with one owner, channels.

Shared by both ends (`deviceplugin`, `dra_plugin`, `kubelet`), which otherwise never import each other.
"""

from grpcunix.channel import connect, is_live
from grpcunix.folder import FolderWatch
from grpcunix.service import Client, Handler, handler
from grpcunix.socket import GrpcUnixError, SocketInUse, SocketPathTooLong, UnixServer

__all__ = [
    "Client",
    "FolderWatch",
    "GrpcUnixError",
    "Handler",
    "SocketInUse",
    "SocketPathTooLong",
    "UnixServer",
    "connect",
    "handler",
    "is_live",
]
