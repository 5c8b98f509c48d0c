"""What can go wrong on the kubelet's side. Texts are the kubelet's own, where it has one."""

import re

from google.protobuf.message import DecodeError

from grpcunix import RpcError, Status


class KubeletError(Exception):
    """Root of this package's errors."""


class NodeError(KubeletError):
    """The node cannot do what was asked."""


class DialError(KubeletError):
    """Nobody serves at a plugin's socket."""


class RegistrationError(KubeletError):
    """A plugin is not accepted."""


class AllocationError(KubeletError):
    """A container cannot have its devices."""


class ClaimError(KubeletError):
    """A pod cannot have its claims."""


class PluginCallError(KubeletError):
    """A call to a plugin failed; the text is what the kubelet's gRPC library says."""


# what grpcio says itself of a call, and what Go's gRPC library (1.82) says of the same
_WORDS = (
    (r"(?:Stream removed \()?Socket closed\)?", "error reading from server: EOF"),
    (
        r"(?:Stream removed \()?recvmsg:Connection reset by peer \(104\)\)?",
        "error reading from server: connection reset by peer",
    ),
    (
        r"(?:Stream removed \()?(?:CLIENT: )?Received message larger than max (\(\d+ vs\. \d+\))\)?",
        r"grpc: received message larger than max \1",
    ),
)


def go_code(code: Status) -> str:
    """The name that Go's gRPC library gives a status: `DeadlineExceeded`."""
    names = {Status.OK: "OK", Status.CANCELLED: "Canceled"}
    return names.get(code) or code.name.title().replace("_", "")


def go_text(error: RpcError) -> str:
    """The text that Go's gRPC library gives an error: `rpc error: code = Internal desc = ...`."""
    details = error.details
    if isinstance(error.__cause__, DecodeError):
        details = "grpc: failed to unmarshal the received message"
    elif error.code is Status.DEADLINE_EXCEEDED and details == "Deadline Exceeded":
        details = "context deadline exceeded"  # our own library's word for it
    for ours, gos in _WORDS:
        if found := re.fullmatch(ours, details):
            details = found.expand(gos)
    return f"rpc error: code = {go_code(error.code)} desc = {details}"
