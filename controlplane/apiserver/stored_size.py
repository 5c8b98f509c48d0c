"""The largest size of an object: the limits of a real server's etcd, with etcd's error texts.

An object that is too large with its managedFields is stored without them. Source: k8s.io/apiserver, endpoints/handlers
(isTooLargeError); etcd, `--max-request-bytes` and its client's limit for what it sends.
"""

from typing import Any

import msgspec

from controlplane.apiserver import protobuf
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.status import internal
from resourceapi.objects import DecodeError

MAX_REQUEST = 3 * 512 * 1024
"""The most bytes of a request that etcd accepts."""
MAX_SENT = 2 * 1024 * 1024
"""The most bytes that etcd's client sends."""
_MANY_VALUES = 50_000  # values
_REQUEST_OVERHEAD = 128
"""Bytes of a request in addition to the object."""


def with_storable_size(obj: Plain) -> Plain:
    """Return the object as it can be stored: without managedFields if it is too large with them.

    Raises ApiError 500 if it is still too large.
    """
    if _fits(obj):
        return obj
    metadata = {name: item for name, item in obj["metadata"].items() if name != "managedFields"}
    obj = {**obj, "metadata": metadata}
    if _fits(obj):
        return obj
    if (size := _size(obj)) > MAX_SENT:
        text = f"trying to send message larger than max ({size} vs. {MAX_SENT})"
        raise internal(f"rpc error: code = ResourceExhausted desc = {text}")
    raise internal("etcdserver: request is too large")


def refuse_early(obj: Plain) -> None:
    """Raise ApiError 500 for an object that is too large and has so many values that its rules would take seconds.

    With fewer values, the rules report their errors first.
    """
    if has_many_values(obj, _MANY_VALUES):
        with_storable_size(obj)


def has_many_values(obj: Plain, many: int) -> bool:
    """Return whether an object has at least `many` values, in objects and lists."""
    count, left = 0, list[Any]([obj])
    while left and count < many:
        value = left.pop()
        items = value.values() if isinstance(value, dict) else value
        count += len(items)
        left += [item for item in items if isinstance(item, dict | list)]
    return count >= many


def _fits(obj: Plain) -> bool:
    # JSON is faster to write than messages, and never shorter
    return len(msgspec.json.encode(obj)) + _REQUEST_OVERHEAD <= MAX_REQUEST or _size(obj) <= MAX_REQUEST


def _size(obj: Plain) -> int:
    """The bytes of a request that stores the object: as a message, or as JSON if its kind has none."""
    if protobuf.message_of(obj["apiVersion"], obj["kind"]) is not None:
        try:
            return len(protobuf.encode(obj)) + _REQUEST_OVERHEAD
        except DecodeError:
            pass  # such objects are stored as JSON here
    return len(msgspec.json.encode(obj)) + _REQUEST_OVERHEAD
