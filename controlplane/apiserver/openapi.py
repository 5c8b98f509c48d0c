"""OpenAPI documents of the served kinds, for kubectl explain, apply and create, and for request generators.

There is one document for each group and version (v3), and one for all (v2). Schemas come from the kinds (allocator.md
5.3).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from controlplane.apiserver import openapi_protobuf
from controlplane.apiserver.discovery import version_info
from controlplane.apiserver.kinds import Kind, Plain, Registry, Schema, Served
from controlplane.apiserver.negotiation import JSON, preferred_media_type
from controlplane.apiserver.patch import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from controlplane.apiserver.status import PlainNotFound, method_not_allowed
from resourceapi.objects.release import Release
from resourceapi.objects.schemas import metadata_schema

_STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_SHARED: Plain = {
    _STATUS: {"type": "object", "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Status"}]},
    _DELETE_OPTIONS: {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "dryRun": {"type": "array", "items": {"type": "string"}},
            "gracePeriodSeconds": {"type": "integer", "format": "int64"},
            "orphanDependents": {"type": "boolean"},
            "preconditions": {
                "type": "object",
                "properties": {"uid": {"type": "string"}, "resourceVersion": {"type": "string"}},
            },
            "propagationPolicy": {"type": "string"},
        },
    },
    _LIST_META: {
        "type": "object",
        "properties": {
            "continue": {"type": "string"},
            "remainingItemCount": {"type": "integer", "format": "int64"},
            "resourceVersion": {"type": "string"},
        },
    },
}
_PRETTY = ("pretty", "string")
_WRITE = (("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"))
_LIST = (
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
)
_DELETE = (
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
)


class OpenApi:
    """The answers of /openapi."""

    def __init__(self, registry: Registry, release: Release) -> None:
        self._registry = registry
        self._info = {"title": "Kubernetes", "version": version_info(release)["gitVersion"]}

    def answer(self, request: Request, steps: list[str]) -> Response:
        """Return the document of a path below /openapi."""
        if request.method != "GET":
            raise method_not_allowed()
        accept = request.headers.get("Accept", "")
        if steps == ["v2"]:
            document = {"swagger": "2.0", "info": self._info} | document_v2(self._registry)
            media_type = preferred_media_type(accept, JSON, *openapi_protobuf.ACCEPTED)
            if media_type in openapi_protobuf.ACCEPTED:
                return _tagged(request, document, openapi_protobuf.encoded, openapi_protobuf.MEDIA_TYPE)
            return _tagged(request, document) if media_type else Response(status_code=406)
        if steps == ["v3"]:
            return _tagged(request, self._index(), media_type="text/plain")  # for any Accept header
        if steps[:1] == ["v3"] and (name := "/".join(steps[1:])) in dict(self._versions()):
            document = self._document(*dict(self._versions())[name])
            wanted, found = request.query_params.get("hash"), _hash(document)
            if wanted and wanted != found:
                return RedirectResponse(f"/openapi/v3/{name}?hash={found}", 301)
            return _tagged(request, document) if preferred_media_type(accept, JSON) else Response(status_code=406)
        if steps[:1] == ["v3"]:
            return Response(status_code=404)
        raise PlainNotFound

    def _versions(self) -> Iterator[tuple[str, tuple[str, str]]]:
        for group, versions in self._registry.groups().items():
            for version in versions:
                yield (f"apis/{group}/{version}" if group else f"api/{version}"), (group, version)

    def _document(self, group: str, version: str) -> Plain:
        return document_v3(self._registry, group, version) | {"info": self._info}

    def _index(self) -> Plain:
        paths = {}
        for name, (group, version) in self._versions():
            tag = _hash(self._document(group, version))
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={tag}"}
        return {"paths": paths}


def document_v3(registry: Registry, group: str, version: str) -> Plain:
    """Return the OpenAPI v3 document of a group's version, without the `info` of the server."""
    paths: Plain = {}
    schemas = dict(_SHARED)
    for kind in registry:
        served = kind.served(version)
        if kind.group != group or served is None:
            continue
        name = schema_name(kind, version)
        schemas[name] = _with_type(kind, version, served.schema)
        schemas[f"{name}List"] = _list_schema(kind, version, f"#/components/schemas/{name}", "#/components/schemas/")
        paths |= _paths(kind, served)
    return {"openapi": "3.0.0", "paths": paths, "components": {"schemas": schemas}}


def document_v2(registry: Registry) -> Plain:
    """Return the OpenAPI v2 (Swagger) document of all kinds."""
    definitions = dict(_SHARED)
    paths: Plain = {}
    for kind in registry:
        for served in kind.versions:
            name = schema_name(kind, served.name)
            definitions[name] = _with_type(kind, served.name, served.schema)
            definitions[f"{name}List"] = _list_schema(kind, served.name, f"#/definitions/{name}", "#/definitions/")
            paths |= {path: _without_bodies(item) for path, item in _paths(kind, served).items()}
    return {"swagger": "2.0", "paths": paths, "definitions": definitions}


def schema_name(kind: Kind, version: str) -> str:
    """Return the name of a kind's schema: upstream's package, or a definition's group in reverse; version, kind."""
    if kind.from_definition:
        return f"{'.'.join(reversed(kind.group.split('.')))}.{version}.{kind.kind}"
    return f"io.k8s.api.{kind.group.partition('.')[0] or 'core'}.{version}.{kind.kind}"


def _with_type(kind: Kind, version: str, schema: Schema) -> Plain:
    properties = {**schema.get("properties", {}), "metadata": metadata_schema()}
    return {
        **_clean(schema),
        "properties": _clean(properties),
        "x-kubernetes-group-version-kind": [_gvk(kind, version)],
    }


def _list_schema(kind: Kind, version: str, item: str, prefix: str) -> Plain:
    return {
        "type": "object",
        "description": f"A list of {kind.kind}.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": f"{prefix}{_LIST_META}"},
            "items": {"type": "array", "items": {"$ref": item}},
        },
        "x-kubernetes-group-version-kind": [_gvk(kind, version) | {"kind": kind.list_kind_name}],
    }


def _clean(value: Any) -> Any:
    """A schema in its published form."""
    if isinstance(value, Mapping):
        result = {name: _clean(item) for name, item in value.items()}
        if result.get("x-kubernetes-int-or-string"):
            result.pop("type", None)
            result["oneOf"] = [{"type": "string"}, {"type": "number"}]
        return result
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _gvk(kind: Kind, version: str) -> Plain:
    return {"group": kind.group, "version": version, "kind": kind.kind}


def _paths(kind: Kind, served: Served) -> Plain:
    base = f"/apis/{kind.group}/{served.name}" if kind.group else f"/api/{served.name}"
    gvk = _gvk(kind, served.name)
    ref = {"$ref": f"#/components/schemas/{schema_name(kind, served.name)}"}
    list_ref = {"$ref": f"{ref['$ref']}List"}
    inside = f"{base}/namespaces/{{namespace}}" if kind.namespaced else base
    shared = [_parameter("namespace", "string", "path")] if kind.namespaced else []
    name = _parameter("name", "string", "path")
    patch_types = [APPLY_PATCH, JSON_PATCH, MERGE_PATCH]
    if not kind.from_definition:
        patch_types.append(STRATEGIC_MERGE_PATCH)
    deleted = ref if kind.shows_deleted(served.name) else {"$ref": f"#/components/schemas/{_STATUS}"}
    options = {JSON: {"schema": {"$ref": f"#/components/schemas/{_DELETE_OPTIONS}"}}}
    body = {"required": True, "content": {JSON: {"schema": ref}}}
    patch_body = {"required": True, "content": {each: {"schema": {"type": "object"}} for each in patch_types}}
    patch = _operation("patch", gvk, (*_WRITE, ("force", "boolean"), _PRETTY), {200: ref, 201: ref}, patch_body)
    put = _operation("put", gvk, (*_WRITE, _PRETTY), {200: ref, 201: ref}, body)
    listed = _operation("list", gvk, (*_LIST, _PRETTY), {200: list_ref})
    paths: Plain = {
        f"{inside}/{kind.plural}": {
            "get": listed,
            "post": _operation("post", gvk, (*_WRITE, _PRETTY), {200: ref, 201: ref, 202: ref}, body),
            "delete": _operation(
                "deletecollection", gvk, (*_LIST[1:6], *_DELETE, _PRETTY), {200: list_ref}, {"content": options}
            ),
            "parameters": shared,
        },
        f"{inside}/{kind.plural}/{{name}}": {
            "get": _operation("get", gvk, (_PRETTY,), {200: ref}),
            "put": put,
            "patch": patch,
            "delete": _operation(
                "delete", gvk, (*_DELETE, _PRETTY), {200: deleted, 202: deleted}, {"content": options}
            ),
            "parameters": [*shared, name],
        },
    }
    if kind.namespaced:
        paths[f"{base}/{kind.plural}"] = {"get": listed}
    for part in kind.parts:
        get = _operation("get", gvk, (_PRETTY,), {200: ref})
        written = {"get": get, "put": put, "patch": patch, "parameters": [*shared, name]}
        paths[f"{inside}/{kind.plural}/{{name}}/{part}"] = written
    return paths


def _operation(
    action: str, gvk: Plain, query: tuple[tuple[str, str], ...], answers: dict[int, Plain], body: Plain | None = None
) -> Plain:
    responses: Plain = {
        str(code): {"description": "OK", "content": {JSON: {"schema": schema}}} for code, schema in answers.items()
    }
    responses["default"] = {
        "description": "refused",
        "content": {JSON: {"schema": {"$ref": f"#/components/schemas/{_STATUS}"}}},
    }
    operation: Plain = {
        "parameters": [_parameter(name, kind, "query") for name, kind in query],
        "responses": responses,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
    }
    return operation | ({"requestBody": body} if body else {})


def _parameter(name: str, kind: str, where: str) -> Plain:
    parameter: Plain = {"name": name, "in": where, "schema": {"type": kind}}
    return parameter | ({"required": True} if where == "path" else {})


def _without_bodies(item: Plain) -> Plain:
    """A path's operations in the form of version 2."""
    result: Plain = {}
    for verb, operation in item.items():
        if verb == "parameters":
            result[verb] = [_parameter_v2(each) for each in operation]
            continue
        kept = {name: part for name, part in operation.items() if name.startswith("x-")}
        kept["parameters"] = [_parameter_v2(each) for each in operation["parameters"]]
        kept["responses"] = {code: {"description": "OK"} for code in operation["responses"]}
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]
            kept["consumes"] = list(content)
            schema = next(iter(content.values()))["schema"]
            if "$ref" in schema:
                schema = {"$ref": schema["$ref"].replace("/components/schemas/", "/definitions/")}
            kept["parameters"].append({"name": "body", "in": "body", "schema": schema})
        result[verb] = kept
    return result


def _parameter_v2(parameter: Plain) -> Plain:
    plain = {name: part for name, part in parameter.items() if name != "schema"}
    return plain | {"type": parameter["schema"]["type"]}


def _hash(document: Plain) -> str:
    return hashlib.sha512(msgspec.json.encode(document)).hexdigest().upper()[:64]


def _tagged(
    request: Request,
    document: Plain,
    encode: Callable[[Plain], bytes] = msgspec.json.encode,
    media_type: str = JSON,
) -> Response:
    tag = f'"{_hash(document)}"'
    headers = {"ETag": tag, "Vary": "Accept"}
    if request.headers.get("If-None-Match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(encode(document), headers=headers, media_type=media_type)
