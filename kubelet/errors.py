"""What can go wrong on the kubelet's side. Texts are the kubelet's own, where it has one."""

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


def go_text(error: RpcError) -> str:
    """The text that Go's gRPC library gives an error: `rpc error: code = Internal desc = ...`."""
    code = "Canceled" if error.code is Status.CANCELLED else error.code.name.title().replace("_", "")
    details = error.details
    if isinstance(error.__cause__, DecodeError):
        details = "grpc: failed to unmarshal the received message"
    elif error.code is Status.DEADLINE_EXCEEDED and details == "Deadline Exceeded":
        details = "context deadline exceeded"  # our own library's word for it
    return f"rpc error: code = {'OK' if code == 'Ok' else code} desc = {details}"
