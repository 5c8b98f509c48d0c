"""HTTP/2 as gRPC on a unix socket needs it: bytes in, events out, bytes to send out. No I/O, no asyncio.

Rules:
1. Strict: a frame or header that the state does not allow ends the connection with RFC 9113's error code. All clients
   speak gRPC, so there are no browsers to tolerate, and a connection that ends cannot be exploited further.
2. Everything that the other end can make grow has a bound in `limits`.
3. Not implemented: TLS, push, priorities, compression of messages, HTTP/1.1 and its upgrade, CONNECT.

Source: RFC 9113 (HTTP/2), RFC 7541 (HPACK), gRPC's PROTOCOL-HTTP2.md.
"""

from grpcunix.http2.client import ClientConnection, Ended, Message
from grpcunix.http2.limits import DEFAULT_LIMITS, Limits, SharedUsage
from grpcunix.http2.server import Cancelled, Request, ServerConnection

__all__ = [
    "DEFAULT_LIMITS",
    "Cancelled",
    "ClientConnection",
    "Ended",
    "Limits",
    "Message",
    "Request",
    "ServerConnection",
    "SharedUsage",
]
