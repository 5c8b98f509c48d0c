"""Body formats: reading the body of a request, and choosing the form of its answer (allocator.md 5.4)."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import yaml

from controlplane.apiserver import protobuf
from controlplane.apiserver.json_faults import json_fault, shown_body
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.protobuf import MessageError, ProtobufError
from controlplane.apiserver.status import (
    UnroutedError,
    bad_request,
    go_name,
    internal,
    not_acceptable,
    unsupported_media_type,
)
from resourceapi.manifests import ManifestError, read_yaml
from resourceapi.objects import DecodeError, parse_json
from resourceapi.objects.json_value import MAX_DEPTH, check_depth
from resourceapi.objects.strict import parse_members

JSON, YAML, PROTOBUF = "application/json", "application/yaml", protobuf.MEDIA_TYPE
ACCEPTED = f"{JSON}, {YAML}, {PROTOBUF}"
_ACCEPTED_STREAMS = f"{JSON};stream=watch, {PROTOBUF};stream=watch"
MAX_BODY = 3 * 1024 * 1024
_ANYTHING = ("*/*", "application/*")
AGGREGATED = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
"""The media type parameters with which a client requests all groups in one document."""
VIEWS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
_DELETE_OPTIONS, _META = "DeleteOptions", "meta.k8s.io/v1"
_NO_TYPE = "couldn't get version/kind; json parse error: json: cannot unmarshal"
_TYPED = r"""struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"""
_NO_MESSAGE = (
    "object *unstructured.Unstructured does not implement the protobuf marshalling interface and cannot be encoded to a"
    " protobuf message"
)
_NOT_ACCEPTABLE = "406: Not Acceptable\n\nAvailable representations: "
# Plain text that Go's YAML reads as a boolean, null, a number (also in base 60), or a time
_NOT_TEXT = re.compile(
    r"|~|null|Null|NULL|[yYnN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|true|True|TRUE|false|False|FALSE"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|[-+]?[0-9][0-9_]*|[-+]?0(x[0-9a-fA-F_]+|b[01_]+|o[0-7_]+)"
    r"|[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?[ \t]*(Z|[-+][0-9]{2}:[0-9]{2})?)?",
    re.ASCII,
)
_BROWSERS = ("curl", "Wget", "Mozilla/5.0")


class Form(NamedTuple):
    """The form of an answer: media type, another view of the object if requested, indented or not."""

    media_type: str = JSON
    view: str = ""
    view_version: str = ""
    pretty: bool = False


def wanted_form(
    accept: str,
    query_pretty: str | None,
    user_agent: str,
    views: tuple[str, ...] = VIEWS,
    *,
    is_custom: bool = False,
    is_list: bool = False,
    is_watch: bool = False,
) -> Form:
    """Return the first form in an Accept header that can be served. Raises ApiError 406.

    Custom resources have protobuf for their metadata only; tables have no protobuf, and watches no YAML.
    """
    pretty = user_agent.startswith(_BROWSERS) if query_pretty is None else query_pretty in ("1", "true")
    known = False
    for media_type, parameters in _clauses(accept):
        media_type = JSON if media_type in _ANYTHING else media_type
        if media_type not in (JSON, YAML, PROTOBUF):
            continue
        known = True
        view = parameters.get("as", "")
        stream = parameters.get("stream", "watch" if is_watch else "")
        if stream and (stream != "watch" or media_type == YAML):
            continue
        if not view and not (media_type == PROTOBUF and is_custom):
            return Form(media_type, pretty=pretty)
        if (
            view in views
            and (parameters.get("g"), parameters.get("v")) in (("meta.k8s.io", "v1"), ("meta.k8s.io", "v1beta1"))
            and not (media_type == PROTOBUF and view == "Table")
        ):
            return Form(media_type, view, parameters["v"], pretty)
    if known or is_custom:
        accepted = _ACCEPTED_STREAMS if is_watch else ACCEPTED
        raise not_acceptable(f"only the following media types are accepted: {accepted}")
    available = f"{ACCEPTED}, {_ACCEPTED_STREAMS}" if is_list else ACCEPTED
    raise UnroutedError(406, f"{_NOT_ACCEPTABLE}{available}", "NotAcceptable", {})


def check_json(accept: str) -> None:
    """Check that a client accepts JSON, for answers that have no other form. Raises ApiError 406."""
    if not any(media_type in (JSON, "*/*") for media_type, _ in _clauses(accept)):
        raise UnroutedError(406, f"{_NOT_ACCEPTABLE}{JSON}", "NotAcceptable", {})


def aggregated_form(accept: str) -> Form | None:
    """Return the form in which a client requests all groups in one document; None if it prefers anything else."""
    for media_type, parameters in _clauses(accept):
        found = JSON if media_type in _ANYTHING else media_type
        if all(parameters.get(name) == value for name, value in AGGREGATED.items()):
            if found in (JSON, PROTOBUF) and "profile" not in parameters:
                return Form(found)
        elif found in (JSON, YAML, PROTOBUF) and not parameters.get("as"):
            return None
    return None


def preferred_media_type(accept: str, *media_types: str) -> str:
    """Return the media type that a client prefers; the first if it accepts any; empty if it accepts none of them."""
    for found, _ in _clauses(accept):
        if found in media_types:
            return found
        if found in _ANYTHING:
            return media_types[0]
    return ""


def encode_answer(value: Plain, form: Form) -> bytes:
    """Return an object in the form of the answer. Raises ApiError 500 if its protobuf message cannot represent it."""
    if form.media_type == PROTOBUF:
        try:
            return protobuf.encode(value)
        except DecodeError as error:
            raise internal(str(error)) from None
    if form.media_type == YAML:
        text: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=80)
        return text.encode()
    text_json = msgspec.json.encode(value)
    return msgspec.json.format(text_json, indent=2) if form.pretty else text_json + b"\n"


def written_event(event: Plain, form: Form) -> bytes:
    """Return an event of a watch (`type` and `object`): a line, or a frame of protobuf."""
    if form.media_type == PROTOBUF:
        return protobuf.watch_frame(event)
    return encode_answer(event, form._replace(pretty=False))


def check_type(content_type: str) -> None:
    """Raise ApiError 415 for a body of an unsupported media type, before other errors of the request."""
    if _media_type(content_type) not in (JSON, YAML, PROTOBUF):
        raise unsupported_media_type(ACCEPTED)


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower() or JSON


def read_body(data: bytes, content_type: str, kind: str, api_version: str = "v1", *, is_custom: bool = False) -> Plain:
    """Return the object in a body; null is an object without members. Raises ApiError 400 or 415.

    `kind` and `api_version` are those that the request expects.
    """
    media_type = _media_type(content_type)
    unrecognized = f"the object provided is unrecognized (must be of type {kind})"
    if media_type == YAML:
        try:
            value = read_yaml(data)
        except ManifestError as error:
            raise bad_request(f"{unrecognized}: yaml: {error.in_go} ({shown_body(data)})") from None
    elif media_type == JSON:
        try:
            value = read_json(data)
        except ValueError as error:
            text = f"couldn't get version/kind; json parse error: {error} ({shown_body(data)})"
            raise bad_request(f"{unrecognized}: {text}") from None
    elif media_type == PROTOBUF:
        try:
            value = _read_protobuf(data, kind, api_version, is_custom=is_custom)
        except ValueError as error:
            raise bad_request(f"{unrecognized}: {error} ({shown_body(data, is_binary=True)})") from None
    else:
        raise unsupported_media_type(ACCEPTED)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{unrecognized}: {_type_fault_text(value)} ({shown_body(data)})")
    return value


def type_fault(value: Plain) -> str:
    """Return why an object's apiVersion or kind cannot be read; empty if they can."""
    for member in ("apiVersion", "kind"):
        text = value.get(member)
        if text is not None and not isinstance(text, str):
            return f"{_NO_TYPE} {go_name(text)} into Go struct field .{member} of type string"
    return ""


def _type_fault_text(value: Any) -> str:
    return f"{_NO_TYPE} {go_name(value)} into Go value of type {_TYPED}"


def read_delete_options(data: bytes, content_type: str) -> Plain:
    """Return the DeleteOptions in a body. Raises ApiError 400 or 415."""
    media_type = _media_type(content_type)
    try:
        if media_type == PROTOBUF:
            value = protobuf.decode(data, "v1", _DELETE_OPTIONS)
        elif media_type in (JSON, YAML):
            value = read_yaml(data) if media_type == YAML else read_json(data)
        else:
            raise unsupported_media_type(ACCEPTED)
    except ProtobufError as error:
        raise bad_request(str(error)) from None
    except ManifestError as error:
        raise bad_request(f"yaml: {error.in_go}") from None
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if value is None:
        return {}
    if not isinstance(value, dict) or type_fault(value):
        raise bad_request(type_fault(value) if isinstance(value, dict) else _type_fault_text(value))
    if value.get("kind") not in (None, "", _DELETE_OPTIONS):
        where = f'for version "{value.get("apiVersion") or _META}" in scheme "pkg/runtime/scheme.go:111"'
        raise bad_request(f'no kind "{value["kind"]}" is registered {where}')
    return value


def _read_protobuf(data: bytes, kind: str, api_version: str, *, is_custom: bool) -> Plain:
    """The object in a protobuf body. Raises ApiError 400 for another kind, ValueError for an invalid message."""
    try:
        value = protobuf.decode(data, api_version, kind)
        check_depth(value)
    except MessageError as error:
        version = error.api_version.rpartition("/")[2]
        raise bad_request(f'{error.kind} in version "{version}" cannot be handled as a {kind}: {error}') from None
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if is_custom:
        version = str(value["apiVersion"]).rpartition("/")[2]
        raise bad_request(f'{value["kind"]} in version "{version}" cannot be handled as a {kind}: {_NO_MESSAGE}')
    return value


def read_json(data: bytes) -> Any:
    """Return the value of a JSON text, with its duplicate members. Raises ValueError with Go's message.

    Values that are nested deeper than MAX_DEPTH raise it too.
    """
    try:
        parse_json(data)
    except DecodeError as error:
        raise ValueError(json_fault(data) or error.reason.removeprefix("json: ")) from None
    value = parse_members(data)
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        check_depth(value)
    return value


_FAST: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # 60 times as fast: a list of 100 MB took minutes


class _Dumper(_FAST):  # type: ignore[misc]  # either has the same methods
    """YAML in Kubernetes' format: without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True

    def represent_text(self, data: str) -> yaml.Node:
        """Write text: in block style if it has several lines, in double quotes if it would be read as another type."""
        style = "|" if "\n" in data else '"' if _NOT_TEXT.fullmatch(data) else None
        node: yaml.Node = self.represent_scalar("tag:yaml.org,2002:str", data, style)
        return node


_Dumper.add_representer(str, _Dumper.represent_text)


def _clauses(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The media types of an Accept header with their parameters, in order of preference."""
    found = []
    for clause in (accept or "*/*").split(","):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        try:
            weight = float(parameters.pop("q", 1))
        except ValueError:
            weight = 0.0
        found.append((weight, media_type.lower(), parameters))
    for _, media_type, parameters in sorted(found, key=lambda each: -each[0]):
        yield media_type, parameters
