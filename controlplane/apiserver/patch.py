"""Patches that need no schema: JSON patch (RFC 6902) and JSON merge patch (RFC 7386)."""

import re
from typing import Any

import msgspec

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.status import ApiError, bad_request, go_name, too_large
from resourceapi.objects.json_value import canonical, check_depth, json_equal

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

MAX_OPERATIONS = 10_000
MAX_COPIED = 3 * 1024 * 1024
"""Bytes that the `copy` operations of a patch may add together."""

_INDEX = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)  # Go's Atoi


def json_patch(obj: Plain, operations: Any) -> Plain:
    """The object after the operations. Raises ApiError: 400 for no patch, 413, 422 if one cannot be done."""
    if not isinstance(operations, list):
        found = go_name(operations)
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
        )
    for operation in operations:
        named = operation.get("op") if isinstance(operation, dict) else None
        if named is not None and not isinstance(named, str):
            why = f"json: cannot unmarshal {go_name(named)} into Go struct field jsonPatchOp.op of type string"
            raise bad_request(f"error decoding patch: {why}")
    if len(operations) > MAX_OPERATIONS:
        count = len(operations)
        raise too_large(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}")
    result: Any = msgspec.to_builtins(obj)
    copied = 0
    try:
        for operation in operations:
            if operation["op"] == "copy":
                copied += len(canonical(_get(result, _steps(operation["from"]))))
                if copied > MAX_COPIED:
                    raise ValueError("copied too much")
            result = _operate(result, operation)
        check_depth(result)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, RecursionError):
        text = "the server rejected our request due to an error in our request"
        raise ApiError(422, text, "Invalid", {}) from None
    if not isinstance(result, dict):
        raise ApiError(422, "the server rejected our request due to an error in our request", "Invalid", {})
    return result


def merge_patch(value: Any, patch: Any) -> Any:
    """The value after a merge patch. What the patch touches has its members sorted, as the reference's library does."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, item in patch.items():
        if item is None:
            result.pop(name, None)
        elif isinstance(item, dict) and isinstance(result.get(name), dict):
            result[name] = merge_patch(result[name], item)
        else:
            result[name] = _without_nulls(item)
    return dict(sorted(result.items()))


def checked_merge_patch(patch: Any) -> Plain:
    """A merge patch of an object; raises ApiError for anything else."""
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        found = go_name(patch)
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )
    return patch


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return value


def _operate(root: Any, operation: Plain) -> Any:
    path = _steps(operation["path"])
    match operation["op"]:
        case "add":
            return _add(root, path, msgspec.to_builtins(operation["value"]))
        case "remove":
            return _remove(root, path)
        case "replace":
            if path:
                _get(root, path)
                return _replace(root, path, msgspec.to_builtins(operation["value"]))
            return msgspec.to_builtins(operation["value"])
        case "move":
            source = _steps(operation["from"])
            value = _get(root, source)
            return _add(_remove(root, source), path, value)
        case "copy":
            return _add(root, path, msgspec.to_builtins(_get(root, _steps(operation["from"]))))
        case "test":
            if not json_equal(_get(root, path, missing_is_null=operation.get("value") is None), operation.get("value")):
                raise ValueError("test failed")
            return root
    raise ValueError("unknown operation")


def _steps(pointer: str) -> list[str]:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise ValueError("a pointer begins with a slash")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _get(root: Any, path: list[str], *, missing_is_null: bool = False) -> Any:
    for index, step in enumerate(path):
        if missing_is_null and index == len(path) - 1 and isinstance(root, dict) and step not in root:
            return None
        root = root[_index(root, step)] if isinstance(root, list) else root[step]
    return root


def _add(root: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(root, path[:-1]), path[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else _index(parent, last, one_more=True)
        parent.insert(index, value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise TypeError("neither object nor list")
    return root


def _replace(root: Any, path: list[str], value: Any) -> Any:
    parent = _get(root, path[:-1])
    parent[_index(parent, path[-1]) if isinstance(parent, list) else path[-1]] = value
    return root


def _remove(root: Any, path: list[str]) -> Any:
    parent = _get(root, path[:-1])
    del parent[_index(parent, path[-1]) if isinstance(parent, list) else path[-1]]
    return root


def _index(items: list[Any], step: str, *, one_more: bool = False) -> int:
    if not _INDEX.fullmatch(step):
        raise ValueError(step)
    index = int(step)
    if index < 0:
        index += len(items)
    if not 0 <= index < len(items) + one_more:
        raise IndexError(step)
    return index
