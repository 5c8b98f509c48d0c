"""The envelope of a message: the magic, runtime.Unknown with the kind, and the frames of a watch."""

from typing import Any

from controlplane.apiserver.protobuf.codec import decode_message, encode_message
from controlplane.apiserver.protobuf.forms import text_of
from controlplane.apiserver.protobuf.messages import message_of
from controlplane.apiserver.protobuf.wire import LENGTH, ProtobufError, fields, sized, tag

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_TYPE_META, _RAW, _CONTENT_ENCODING, _CONTENT_TYPE = (tag(number, LENGTH) for number in (1, 2, 3, 4))
_API_VERSION, _KIND = _TYPE_META, _RAW


class MessageError(ProtobufError):
    """A message that cannot be read, although its kind could be."""

    def __init__(self, message: str, api_version: str, kind: str) -> None:
        super().__init__(message)
        self.api_version, self.kind = api_version, kind


def encode(value: dict[str, Any]) -> bytes:
    """Return a value with its kind as a real server sends it. Raises DecodeError if its message cannot represent it.

    Members that the message does not have are left out.
    """
    api_version, kind = value.get("apiVersion", ""), value["kind"]
    message = message_of(api_version, kind)
    assert message is not None, f"{api_version} {kind} is answered in JSON"
    type_meta = _API_VERSION + sized(api_version.encode()) + _KIND + sized(kind.encode())
    raw = encode_message(message, value)
    return b"".join(
        (_MAGIC, _TYPE_META, sized(type_meta), _RAW, sized(raw), _CONTENT_ENCODING, b"\0", _CONTENT_TYPE, b"\0")
    )


def decode(data: bytes, api_version: str, kind: str) -> dict[str, Any]:
    """Return the value in a body, as Go writes it in JSON. Raises ProtobufError.

    `api_version` and `kind` apply to a body without a kind. For a kind without a message, only apiVersion and kind are
    returned. As in upstream's decoders, fields that the message does not have are skipped.
    """
    if not data:
        raise ProtobufError("empty data")
    if not data.startswith(_MAGIC):
        shown = " ".join(str(byte) for byte in _MAGIC)
        raise ProtobufError(f"provided data does not appear to be a protobuf message, expected prefix [{shown}]")
    if data == _MAGIC:
        raise ProtobufError("empty body")
    parts = {1: b"", 2: b""}
    for number, _, item in fields(data[len(_MAGIC) :]):
        if number in parts and isinstance(item, bytes):
            parts[number] = item
    names = {number: text_of(item) for number, _, item in fields(parts[1]) if isinstance(item, bytes)}
    api_version, kind = names.get(1) or api_version, names.get(2) or kind
    message = message_of(api_version, kind)
    try:
        return {"kind": kind, "apiVersion": api_version} | (decode_message(message, parts[2]) if message else {})
    except ProtobufError as error:
        raise MessageError(str(error), api_version, kind) from None


def watch_frame(event: dict[str, Any]) -> bytes:
    """Return an event of a watch (`type` and `object`), preceded by its length. Raises DecodeError."""
    raw = _TYPE_META + sized(encode(event["object"]))  # field 1 of runtime.RawExtension has the bytes
    frame = _TYPE_META + sized(event["type"].encode()) + _RAW + sized(raw)
    return len(frame).to_bytes(4, "big") + frame
