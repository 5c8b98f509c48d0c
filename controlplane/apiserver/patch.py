"""Reading of patches, and those that need no schema: JSON patch (RFC 6902) and JSON merge patch (RFC 7386)."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.negotiation import read_json
from controlplane.apiserver.status import (
    ApiError,
    UnroutedError,
    bad_request,
    go_name,
    too_large,
    unsupported_media_type,
)
from resourceapi.manifests import ManifestError, read_yaml
from resourceapi.objects.json_value import canonical, check_depth, json_equal
from resourceapi.objects.release import Release
from resourceapi.objects.strict import duplicates, members

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

MAX_OPERATIONS = 10_000
MAX_COPIED = 3 * 1024 * 1024
"""The most bytes that the `copy` operations of a patch can add together."""

_TEXTS = ("op", "path", "from")
_OF_THE_LIBRARY = ("jsonpatch.Patch", "jsonpatch.Operation")
_UNDECODED = "error decoding patch: json: cannot unmarshal"
_INDEX = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)  # Go's Atoi


def patch_type_of(content_type: str, *, is_custom: bool) -> str:
    """Return the media type of a patch. Raises ApiError 415. Custom resources have no strategic merge patches."""
    found, known = content_type.partition(";")[0].strip(), (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
    if is_custom and found not in known:
        raise unsupported_media_type(", ".join(known))
    if found not in (*known, STRATEGIC_MERGE_PATCH):
        raise UnroutedError(415, "415: Unsupported Media Type", "UnsupportedMediaType", {})
    return found


class Patch(NamedTuple):
    """A patch: its media type, its value, and the problems that strict field validation finds in its text."""

    type: str
    value: Any
    problems: tuple[str, ...] = ()


def read_patch(data: bytes, patch_type: str) -> Patch:
    """Return the patch in a body. Raises ValueError if its text is not JSON, or, for an apply patch, not YAML."""
    value = read_yaml(data) if patch_type == APPLY_PATCH else read_json(data)
    found: tuple[str, ...] = ()
    if patch_type == JSON_PATCH:
        found = tuple(_problems_of_operations(value))
    elif patch_type in (MERGE_PATCH, STRATEGIC_MERGE_PATCH):
        found = tuple(duplicates(value))
    return Patch(patch_type, msgspec.to_builtins(value), found)


def is_parsed_after_lookup(data: bytes, patch_type: str, release: Release) -> bool:
    """Return whether a body is read after its object is looked up. An apply patch that looks like JSON always is."""
    if patch_type == APPLY_PATCH:
        return not release.decodes_patches_first or data.lstrip().startswith(b"{")
    return not release.decodes_patches_first


def parse_error(error: ValueError, patch_type: str, release: Release, *, is_late: bool) -> ApiError:
    """Return the error 400 for a body that `read_patch` could not read."""
    if isinstance(error, ManifestError) and not is_late:
        return bad_request(f"error encoding patch: yaml: {error.in_go}")
    if isinstance(error, ManifestError):
        return bad_request(f"{apply_error_prefix(release)}: error converting YAML to JSON: yaml: {error.in_go}")
    if release.decodes_patches_first:
        return bad_request("invalid JSON patch")
    return bad_request(str(error) if patch_type == STRATEGIC_MERGE_PATCH else f"error decoding patch: {error}")


def apply_error_prefix(release: Release) -> str:
    """Return the beginning of the error text for a configuration that cannot be applied."""
    return f"error decoding {'patch' if release.decodes_patches_first else 'YAML'}"


def json_patch(obj: Plain, operations: Any, *, is_checked: bool = True) -> Plain:
    """Return the object after the operations. Raises ApiError: 400 for an invalid patch, 413, 422 for a failure.

    `is_checked`: the fields of the patch are validated. The reference uses another decoder then, whose types have other
    names.
    """
    undecoded = _UNDECODED if is_checked else "json: cannot unmarshal"
    whole, one = ("[]handlers.jsonPatchOp", "handlers.jsonPatchOp") if is_checked else _OF_THE_LIBRARY
    if not isinstance(operations, list):
        raise bad_request(f"{undecoded} {go_name(operations)} into Go value of type {whole}")
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            raise bad_request(f"{undecoded} {go_name(operation)} into Go value of type {one}")
        for name, item in (operation or {}).items() if is_checked else ():
            if name in _TEXTS and item is not None and not isinstance(item, str):
                field = f"Go struct field jsonPatchOp.{name} of type string"
                raise bad_request(f"{_UNDECODED} {go_name(item)} into {field}")
    if len(operations) > MAX_OPERATIONS:
        count = len(operations)
        raise too_large(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}")
    result: Any = msgspec.to_builtins(obj)
    copied = 0
    try:
        for operation in operations:
            if operation["op"] == "copy":
                copied += len(canonical(_get(*_resolve(result, operation["from"]))))
                if copied > MAX_COPIED:
                    raise ValueError("copied too much")
            result = _operate(result, operation)
            for pointer in ("path", "from"):
                _sort_above(result, operation.get(pointer) or "")
        check_depth(result)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, RecursionError):
        text = "the server rejected our request due to an error in our request"
        raise ApiError(422, text, "Invalid", {}) from None
    if not isinstance(result, dict):
        raise ApiError(422, "the server rejected our request due to an error in our request", "Invalid", {})
    return result


def merge_patch(value: Any, patch: Any) -> Any:
    """Return the value after a merge patch. As in the reference's library, changed objects have sorted members."""
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
    """Return a merge patch of an object. Raises ApiError for any other value."""
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        found = go_name(patch)
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )
    return patch


def patched(obj: Plain, patch: Patch, *, is_checked: bool) -> Plain:
    """Return a value that is not a stored object after a JSON patch, or any other patch as a merge. Raises ApiError."""
    if patch.type == JSON_PATCH:
        return json_patch(obj, patch.value, is_checked=is_checked)
    merged: Plain = merge_patch(obj, checked_merge_patch(patch.value))
    return merged


def _problems_of_operations(operations: Any) -> Iterator[str]:
    """The duplicate and the unknown members of operations."""
    for index, operation in enumerate(operations if isinstance(operations, list) else ()):
        for name, _, is_duplicate in members(operation) if isinstance(operation, dict) else ():
            if is_duplicate:
                yield f'json patch duplicate field "[{index}].{name}"'
            if name not in (*_TEXTS, "value"):
                yield f'json patch unknown field "[{index}].{name}"'


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(value[name]) for name in sorted(value) if value[name] is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _sort_above(root: Any, pointer: str) -> None:
    """Sort the members of all objects above a pointer's end. The reference's library sorts objects that it decodes."""
    for step in _steps(pointer):
        if isinstance(root, dict):
            members_of_root = sorted(root.items())
            root.clear()
            root.update(members_of_root)
        try:
            root = root[_index(root, step)] if isinstance(root, list) else root[step]
        except (KeyError, IndexError, ValueError, TypeError):
            return


def _operate(root: Any, operation: Plain) -> Any:
    """The value after one operation. The reference's library can replace a missing value, and copies it as null."""
    pointer, name = operation["path"], operation["op"]
    if name == "replace" and pointer == "":
        return msgspec.to_builtins(operation.get("value"))
    if name == "test" and pointer == "":
        if not json_equal(root, operation.get("value")):
            raise ValueError("test failed")
        return root
    match name:
        case "add":
            _add(*_resolve(root, pointer), msgspec.to_builtins(operation.get("value")))
        case "remove":
            _remove(*_resolve(root, pointer))
        case "replace":
            inside, step = _resolve(root, pointer)
            inside[_index(inside, step) if isinstance(inside, list) else step] = msgspec.to_builtins(
                operation.get("value")
            )
        case "move":
            source = _resolve(root, operation["from"])
            value = _get(*source)
            _remove(*source)
            _add(*_resolve(root, pointer), value)
        case "copy":
            value = msgspec.to_builtins(_get(*_resolve(root, operation["from"])))
            _add(*_resolve(root, pointer), value)
        case "test":
            if not json_equal(_get(*_resolve(root, pointer)), operation.get("value")):
                raise ValueError("test failed")
        case _:
            raise ValueError("unknown operation")
    return root


def _steps(pointer: str) -> list[str]:
    if not pointer:
        return []
    _, *steps = pointer.split("/")  # the reference's library ignores what is before the first slash
    if not steps:
        raise ValueError("a pointer has a slash")
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def _resolve(root: Any, pointer: str) -> tuple[Any, str]:
    """The object or list that contains a pointer's end, and the last step."""
    *above, last = _steps(pointer)
    for step in above:
        root = root[_index(root, step)] if isinstance(root, list) else root[step]
    if not isinstance(root, dict | list):
        raise TypeError("neither object nor list")
    return root, last


def _get(inside: Any, step: str) -> Any:
    return inside[_index(inside, step)] if isinstance(inside, list) else inside.get(step)


def _add(inside: Any, step: str, value: Any) -> None:
    if isinstance(inside, dict):
        inside[step] = value
    else:
        inside.insert(len(inside) if step == "-" else _index(inside, step, one_more=True), value)


def _remove(inside: Any, step: str) -> None:
    del inside[_index(inside, step) if isinstance(inside, list) else step]


def _index(items: list[Any], step: str, *, one_more: bool = False) -> int:
    if not _INDEX.fullmatch(step):
        raise ValueError(step)
    index, size = int(step), len(items) + one_more
    if index < 0:
        index += size
    if not 0 <= index < size:
        raise IndexError(step)
    return index
