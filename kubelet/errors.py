"""The errors of the kubelet's side. The texts are the kubelet's, where the kubelet has one."""

import re

from google.protobuf.message import DecodeError

from grpcunix import RpcError, Status


class KubeletError(Exception):
    """Root of this package's errors."""


class NodeError(KubeletError):
    """The node cannot do what was requested."""


class DialError(KubeletError):
    """No plugin serves at a socket."""


class RegistrationError(KubeletError):
    """A plugin is not accepted."""


class AllocationError(KubeletError):
    """A container cannot have its devices."""


class ClaimError(KubeletError):
    """A pod cannot have its claims."""


class PluginCallError(KubeletError):
    """A call to a plugin failed; the text is that of the kubelet's gRPC library."""


# grpcio's own error texts, and those of Go's gRPC library (1.82) for the same errors
_GO_TEXTS = (
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
    """Return the name of a status in Go's gRPC library: `DeadlineExceeded`."""
    names = {Status.OK: "OK", Status.CANCELLED: "Canceled"}
    return names.get(code) or code.name.title().replace("_", "")


def go_text(error: RpcError) -> str:
    """Return the text of an error in Go's gRPC library: `rpc error: code = Internal desc = ...`."""
    details = error.details
    if isinstance(error.__cause__, DecodeError):
        details = "grpc: failed to unmarshal the received message"
    elif error.code is Status.DEADLINE_EXCEEDED and details == "Deadline Exceeded":
        details = "context deadline exceeded"  # replaces grpcunix's text
    for pattern, replacement in _GO_TEXTS:
        if found := re.fullmatch(pattern, details):
            details = found.expand(replacement)
    return f"rpc error: code = {go_code(error.code)} desc = {details}"
