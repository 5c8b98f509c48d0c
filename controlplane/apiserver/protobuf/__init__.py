"""Kubernetes' protobuf: JSON values to the bytes that a real API server writes, and back."""

from controlplane.apiserver.protobuf.codec import without_omitted_members
from controlplane.apiserver.protobuf.envelope import MEDIA_TYPE, MessageError, decode, encode, watch_frame
from controlplane.apiserver.protobuf.members import known_members
from controlplane.apiserver.protobuf.messages import message_of
from controlplane.apiserver.protobuf.unstructured import converted
from controlplane.apiserver.protobuf.wire import ProtobufError

__all__ = [
    "MEDIA_TYPE",
    "MessageError",
    "ProtobufError",
    "converted",
    "decode",
    "encode",
    "known_members",
    "message_of",
    "watch_frame",
    "without_omitted_members",
]
