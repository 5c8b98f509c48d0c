"""Decoding: from the body of a write to the object that its path names, or to the refusal.

Objects are JSON values in the version of the request. Every refusal is an ApiError.
"""

from collections.abc import Callable
from typing import Any

from controlplane.apiserver import protobuf
from controlplane.apiserver.kinds import Decoded, Plain
from controlplane.apiserver.options import WriteOptions
from controlplane.apiserver.patch import STRATEGIC_MERGE_PATCH, Patch, apply_error_prefix
from controlplane.apiserver.rules.owner_references import without_repeated_owners
from controlplane.apiserver.status import ApiError, bad_request, go_name, internal, invalid
from controlplane.apiserver.target import Target
from resourceapi.objects import DecodeError, ErrorList
from resourceapi.objects.release import Release

_TYPE = ("apiVersion", "kind")
_MAX_PROBLEMS = 100
"""The most problems that are reported for one body. Source: sigs.k8s.io/json (saveStrictError)."""


def decode(target: Target, value: Plain, options: WriteOptions) -> Decoded:
    """Return the object of a body. Raises ApiError 400 if the body is not of the kind."""
    kind = target.kind
    found = f'{kind.kind} in version "{target.version}" cannot be handled as a {kind.kind}'
    try:
        decoded = kind.rules.decode(value, target.version)
    except DecodeError as error:
        raise bad_request(f"{found}: {error.reason}") from None
    problems = decoded.problems if kind.from_definition else decoded.problems[:_MAX_PROBLEMS]
    if options.field_validation == "Strict" and problems:
        raise bad_request(f"{found}: strict decoding error: {', '.join(problems)}")
    decoded = decoded._replace(problems=problems if options.field_validation == "Warn" else ())
    return without_repeated_owners(decoded, is_patched=False)


def decode_patched(
    target: Target,
    value: Plain,
    options: WriteOptions,
    shown: Callable[[], str],
    patch: Patch | None,
    config: Plain | None = None,
) -> Decoded:
    """Return the result of a patch, or of applying a configuration.

    Raises ApiError 422 if it is not of the kind; `shown` returns the result as the refusal shows it.
    """
    kind, errors = target.kind, ErrorList()
    if not kind.from_definition:  # if a patch removes apiVersion or kind, those of the path apply
        value = {"apiVersion": target.api_version, "kind": kind.kind} | {
            member: item for member, item in value.items() if item not in (None, "") or member not in _TYPE
        }
    api_version, name = value.get("apiVersion"), value.get("kind")
    is_strategic = patch is not None and patch.type == STRATEGIC_MERGE_PATCH
    try:
        for text in (api_version, name) if is_strategic else ():
            if not isinstance(text, str):
                is_whole = type(text) is int
                raise DecodeError("cannot convert int64 to string" if is_whole else "unrecognized type: string")
        for member, text in (("apiVersion", api_version), ("kind", name)):
            if not isinstance(text, str) and not kind.from_definition:
                found = f"cannot unmarshal {go_name(text)} into Go struct field .{member} of type string"
                raise DecodeError(f"couldn't get version/kind; json parse error: json: {found}")
        if (api_version, name) != (target.api_version, kind.kind):
            where = f'for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"'
            raise DecodeError(f'no kind "{name}" is registered {where}')
        unknown: list[str] = []
        message = protobuf.message_of(target.api_version, kind.kind)
        if (is_strategic or patch is None) and message is not None and not kind.from_definition:
            rest = {member: item for member, item in value.items() if member not in _TYPE}
            value = value | protobuf.converted(message, rest, unknown, kind.rules.kept)
        decoded = (kind.rules.decode if patch else kind.rules.decode_applied)(value, target.version)
        decoded = decoded._replace(problems=(*unknown, *decoded.problems))
    except DecodeError as error:
        if config is not None and not kind.from_definition:  # the types of its values were checked before
            raise conversion_error(config, error.reason) from None
        errors.invalid("patch", shown(), error.reason)
        raise invalid("", "", "", errors) from None
    of_patch = tuple(dict.fromkeys(patch.problems if patch else ()))[:_MAX_PROBLEMS]
    of_object = sorted(decoded.problems) if is_strategic else decoded.problems
    if not is_strategic and not kind.from_definition:
        of_object = of_object[:_MAX_PROBLEMS]
    problems = tuple(dict.fromkeys((*of_patch, *of_object)))
    if options.field_validation == "Strict" and problems:
        errors.invalid("patch", shown(), f"strict decoding error: {', '.join(problems)}")
        raise invalid("", "", "", errors)
    decoded = decoded._replace(problems=problems if options.field_validation == "Warn" else ())
    return without_repeated_owners(decoded, is_patched=True)


def conversion_error(config: Plain, why: str) -> ApiError:
    """The error 500 if the result of applying a configuration does not fit Go's type."""
    metadata = config.get("metadata") or {}
    group, _, version = config["apiVersion"].rpartition("/")
    kind = f"Kind={config['kind']}"
    named = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {group}/{version}, {kind}"
    text = f"unable to convert unstructured object to {group}/{version}, {kind}: {why}"
    return internal(f"failed to convert new object ({named}) to proper version: {text}")


def configuration(target: Target, value: Any, release: Release) -> Plain:
    """Return the configuration to apply if it is of the type of the path. Raises ApiError 400."""
    config = {} if value is None else value
    if not isinstance(config, dict):
        found = f"json: cannot unmarshal {go_name(config)} into Go value of type map[string]interface {{}}"
        raise bad_request(f"{apply_error_prefix(release)}: error unmarshaling JSON: while decoding JSON: {found}")
    api_version, kind = (_text_of(config.get(member)) for member in ("apiVersion", "kind"))
    if (api_version, kind) != (target.api_version, target.kind.kind):
        group, _, version = api_version.rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={kind}")
    return config


def in_namespace(target: Target, obj: Plain) -> Plain:
    """Return the object with the request's namespace; without a namespace if the kind is cluster-scoped."""
    metadata = {**obj["metadata"]}
    if not target.kind.namespaced:
        metadata.pop("namespace", None)
        return {**obj, "metadata": metadata}
    if metadata.get("namespace", target.namespace) not in ("", target.namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = target.namespace
    return {**obj, "metadata": metadata}


def _text_of(value: Any) -> str:
    """A text; any other value becomes the empty text."""
    return value if isinstance(value, str) else ""
