"""Kubernetes' protobuf: plain JSON-shaped values to the bytes that a real API server writes, and back."""

from controlplane.apiserver.protobuf.envelope import MEDIA_TYPE, MessageError, decode, encode, watch_frame
from controlplane.apiserver.protobuf.wire import ProtobufError

__all__ = ["MEDIA_TYPE", "MessageError", "ProtobufError", "decode", "encode", "watch_frame"]
