"""Request bodies: read with a size limit, in a thread if they are long, and checked against the kind of the path."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from controlplane.apiserver import protobuf
from controlplane.apiserver.json_faults import shown_body
from controlplane.apiserver.kinds import Plain, Registry
from controlplane.apiserver.negotiation import MAX_BODY, read_body, type_fault
from controlplane.apiserver.protobuf.messages import TYPE_MEMBERS
from controlplane.apiserver.status import ApiError, bad_request, too_large
from controlplane.apiserver.target import Target
from resourceapi.objects import DecodeError, quoted_text

LARGE_BODY = 64 * 1024
"""Bytes of a body above which reading it takes noticeably long."""

T = TypeVar("T")


async def body_of(request: Request) -> bytes:
    """Return a request's body. Raises ApiError 413 if it is too long."""
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY:
            raise too_large(f"limit is {MAX_BODY}")
        pieces.append(piece)
    return b"".join(pieces)


async def run_off_loop_if_large(size: int, read: Callable[..., T], *values: Any) -> T:
    """Run `read` on a body. A long body is read in a thread, so that the server can answer other requests meanwhile."""
    if size < LARGE_BODY:
        return read(*values)
    return await asyncio.to_thread(read, *values)


async def read_unstored_body(request: Request, registry: Registry, kind: str, *api_versions: str) -> Plain:
    """Return a body that is not stored, with the types of its kind. Raises ApiError 400.

    It can have any of `api_versions`; a body without a version has the first.
    """
    data = await body_of(request)
    value = read_body(data, request.headers.get("Content-Type", ""), kind, api_versions[0])
    _check_type_members(value, data, kind)
    api_version, name = value.get("apiVersion") or api_versions[0], value.get("kind") or kind
    if name != kind or api_version not in api_versions:
        raise _not_handled(api_version, name, kind, api_versions[0], registry)
    message = protobuf.message_of(api_version, kind)
    try:
        if message is not None:
            protobuf.without_omitted_members(
                message, {name: item for name, item in value.items() if name not in TYPE_MEMBERS}
            )
    except DecodeError as error:
        version = api_version.rpartition("/")[2]
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {error.reason}') from None
    return value


def kind_checked(value: Plain, data: bytes, target: Target, registry: Registry, *, is_checked: bool = True) -> Plain:
    """Return the body if its kind and version are those of the path. Raises ApiError 400.

    `is_checked`: the fields are checked, too; without that, a real server words the error for a missing kind otherwise.
    """
    kind, expected = target.kind, target.api_version
    api_version, name = value.get("apiVersion"), value.get("kind")
    _check_type_members(value, data, kind.kind)
    if kind.from_definition:
        if name and "apiVersion" in value and api_version is None:
            why = ".apiVersion accessor error: <nil> is of the type <nil>, expected string"
            raise bad_request(f'{name} in version "" cannot be handled as a {kind.kind}: {why}')
        if not name:
            text = f"Object 'Kind' is missing in '{data.decode('utf-8', 'replace')}'"
            if not is_checked:
                found = f'{kind.kind} in version "{target.version}" cannot be handled as a {kind.kind}'
                raise bad_request(f"{found}: {text}")
            unrecognized = f"the object provided is unrecognized (must be of type {kind.kind})"
            raise bad_request(f"{unrecognized}: {text} ({shown_body(data)})")
        if not api_version:
            text = f"the API version in the data () does not match the expected API version ({expected})"
            raise bad_request(text)
    api_version, name = api_version or expected, name or kind.kind
    if name == kind.kind and api_version != expected:
        group, _, other = api_version.rpartition("/")
        if kind.from_definition or (group == kind.group and kind.served(other)):
            text = f"the API version in the data ({api_version}) does not match the expected API version ({expected})"
            raise bad_request(text)
    if kind.from_definition and api_version == expected:
        value["apiVersion"], value["kind"] = api_version, name
        return value  # whether the kind matches is checked when it is stored
    if (api_version, name) != (expected, kind.kind):
        raise _not_handled(api_version, name, kind.kind, expected, registry)
    value["apiVersion"], value["kind"] = api_version, name
    return value


def _check_type_members(value: Plain, data: bytes, kind: str) -> None:
    if why := type_fault(value):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): {why} ({shown_body(data)})")


def _not_handled(api_version: str, name: str, kind: str, expected: str, registry: Registry) -> ApiError:
    """The error 400 for a body whose kind is not `kind` of version `expected`; it can be any other or unknown kind."""
    short = api_version.rpartition("/")[2]
    found = f"{name} in version {quoted_text(short)} cannot be handled as a {kind}"
    if registry.by_kind(api_version, name):
        group = (expected.rpartition("/")[0] or "core").partition(".")[0]
        return bad_request(f"{found}: converting ({short}.{name}) to ({group}.{kind}): unknown conversion")
    where = f'for version {quoted_text(api_version)} in scheme "pkg/runtime/scheme.go:111"'
    return bad_request(f"{found}: no kind {quoted_text(name)} is registered {where}")


async def drain_body(request: Request) -> None:
    """Read the unread rest of a body; otherwise the connection would be closed before the client's next request."""
    size = 0
    with contextlib.suppress(ClientDisconnect, RuntimeError):  # RuntimeError: already read
        async for piece in request.stream():
            size += len(piece)
            if size > MAX_BODY:
                return
