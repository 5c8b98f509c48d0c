"""How large an object may be: what a real server's etcd takes, with etcd's words for what it does not.

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
"""Bytes that etcd takes in one request."""
MAX_SENT = 2 * 1024 * 1024
"""Bytes that its client sends."""
_MANY = 50_000  # values
_AROUND = 128
"""Bytes of a request beside the object."""


def fitting(obj: Plain) -> Plain:
    """The object as it can be stored: without managedFields if it is too large with them.

    Raises ApiError 500 for one that is too large anyway.
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
    """Raises ApiError 500 for what cannot be stored and is of so many values that its rules would take seconds.

    Of fewer values the rules say first what is wrong.
    """
    if has_many_values(obj, _MANY):
        fitting(obj)


def has_many_values(obj: Plain, many: int) -> bool:
    """Whether an object has so many values, in objects and lists."""
    count, left = 0, list[Any]([obj])
    while left and count < many:
        value = left.pop()
        items = value.values() if isinstance(value, dict) else value
        count += len(items)
        left += [item for item in items if isinstance(item, dict | list)]
    return count >= many


def _fits(obj: Plain) -> bool:
    # JSON is quicker to write than messages, and never shorter
    return len(msgspec.json.encode(obj)) + _AROUND <= MAX_REQUEST or _size(obj) <= MAX_REQUEST


def _size(obj: Plain) -> int:
    """The bytes of a request that stores it: as a message, or as JSON where its kind has none."""
    if protobuf.message_of(obj["apiVersion"], obj["kind"]) is not None:
        try:
            return len(protobuf.encode(obj)) + _AROUND
        except DecodeError:
            pass  # what a message cannot say is stored here as it is
    return len(msgspec.json.encode(obj)) + _AROUND
