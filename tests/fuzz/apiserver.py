"""Contents of requests to the stand-in API server: three kinds of patches, and protobuf bodies."""

import functools
import json
from random import Random
from typing import Any

from controlplane.apiserver.patch import checked_merge_patch, json_patch, merge_patch
from controlplane.apiserver.protobuf import ProtobufError
from controlplane.apiserver.protobuf import decode as decode_body
from controlplane.apiserver.protobuf import encode as encode_body
from controlplane.apiserver.status import ApiError
from controlplane.apiserver.strategic import strategic_merge
from tests.controlplane.apiserver.test_pure_functions import FULL, SCHEMA
from tests.fuzz.mutation import mutated

_NAMES = (
    "labels",
    "names",
    "plain",
    "items",
    "id",
    "a",
    "",
    "$patch",
    "$retainKeys",
    "$setElementOrder/items",
    "0",
)
_LEAVES = (None, True, 0, 1, -1, 1.5, "", "x", "1", "merge", "delete", "replace")
_PATHS = (
    "",
    "/",
    "/labels",
    "/labels/a",
    "/names/-",
    "/items/0/id",
    "/items/-1",
    "/items/99",
    "/~0~1",
    "x",
)


def _value(source: Random, depth: int) -> Any:
    kind = source.randrange(3) if depth else 0
    if kind == 1:
        return {source.choice(_NAMES): _value(source, depth - 1) for _ in range(source.randrange(4))}
    if kind == 2:
        return [_value(source, depth - 1) for _ in range(source.randrange(4))]
    return source.choice(_LEAVES)


def _object(source: Random, depth: int) -> Any:
    """Return an object, or rarely another value."""
    if source.random() < 0.05:
        return _value(source, 1)
    return {source.choice(_NAMES): _value(source, depth - 1) for _ in range(source.randrange(4))}


def _operation(source: Random) -> Any:
    made = {
        "op": source.choice(("add", "remove", "replace", "move", "copy", "test", "", "Add")),
        "path": source.choice(_PATHS),
        "from": source.choice(_PATHS),
        "value": _value(source, 2),
    }
    for name in list(made):
        if source.random() < 0.01:
            made[name] = _value(source, 1)
        elif source.random() < 0.01:
            del made[name]
    return made if source.random() < 0.98 else _value(source, 1)


def patches(seed: int) -> str:
    """Random patches, applied one after the other: each gives an object, or an error for the client."""
    source = Random(seed)
    value, outcome = json.loads(json.dumps(FULL)), "done"
    for _ in range(3):
        before = json.dumps(value)
        try:
            match source.randrange(3):
                case 0:
                    result = json_patch(value, [_operation(source) for _ in range(source.randrange(1, 4))])
                case 1:
                    result = merge_patch(value, checked_merge_patch(_object(source, 3)))
                case _:
                    result = strategic_merge(value, _object(source, 4), SCHEMA)
        except ApiError as error:
            known = ("merge key", "not identical")  # 500 also in upstream
            if error.code not in (400, 413, 422) and not any(text in str(error) for text in known):
                raise
            outcome = "refused"
            result = value
        assert json.dumps(value) == before, "a patch changes no object, it makes another"
        assert isinstance(result, dict)
        value = json.loads(json.dumps(result))
    return outcome


@functools.cache
def _bodies() -> tuple[bytes, ...]:
    meta = {"name": "x", "namespace": "default", "labels": {"a": "b"}, "creationTimestamp": "2026-01-01T00:00:00Z"}
    attributes = {"a": {"int": 1}, "b": {"version": "1.0.0"}}
    device = {
        "name": "d",
        "attributes": attributes,
        "capacity": {"m": {"value": "1Gi"}},
    }
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    values: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "v"}, "binaryData": {"b": "AAEC"}},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": meta,
            "spec": {"driver": "d.x", "nodeName": "n", "pool": pool, "devices": [device]},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    ]
    return tuple(map(encode_body, values))


def protobuf(seed: int) -> str:
    """The decoded value can be written as JSON, or the body is refused."""
    source = Random(seed)
    data = mutated(source, _bodies(), [b"\x0a", b"\x12\x80\x80\x80\x80\x10", b"\x1a\x00", b"\xff" * 10, b"k8s\0"])
    try:
        value = decode_body(data, "v1", "Pod")
    except (ProtobufError, ValueError, RecursionError):  # the server refuses these, too
        return "refused"
    json.dumps(value)
    return "read"
