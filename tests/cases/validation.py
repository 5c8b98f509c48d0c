"""Runners for a real API server's answers about single objects, compared with the validation functions.

`rest/cases.json`: scenarios that create one object, read it in another version or change its status run on a
dictionary. Scenarios that need a server are skipped; `rest_replay.py` beside the recording runs them.

Lines of `object` with `causes` or `decodeError`: objects with random faults, and the answers of kube-apiserver's own
code, of 1.36.3 unless the line contains another `release`.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from resourceapi.device_selectors import check_device_selector
from resourceapi.objects import DecodeError, KubernetesObject, parse_json, read_object, write_object
from resourceapi.objects.codec import without_unknown
from resourceapi.objects.errors import ErrorList, invalid_status
from resourceapi.objects.metadata_rules import metadata_on_update
from resourceapi.objects.release import RELEASES
from resourceapi.objects.strategy import prepare_create, prepare_status_update
from resourceapi.objects.validate import (
    own_rules_on_update,
    validate_create,
    validate_status_update,
    with_declared,
)
from tests.cases.documents import Document
from tests.cases.results import Case, Format, Skipped, expect_equal

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_SCENARIOS = ("validation/", "metadata/", "body/", "conversion/", "claim/")
_SERVER_ONLY = ("metadata/namespace", "metadata/generate-name", "body/not-json", "body/array")
_SYNTAX = re.compile(r"ERROR: <input>:\d+:\d+: Syntax error")
_BY_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
_KINDS = {
    "deviceclasses": "DeviceClass",
    "devicetaintrules": "DeviceTaintRule",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "resourceslices": "ResourceSlice",
}


class _Route(NamedTuple):
    """The components of a request's path."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, path: str) -> "_Route":
        parts = path.strip("/").split("/")[1:]  # after "apis"
        api_version, rest = "/".join(parts[:2]), parts[2:]
        namespace = ""
        if rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        return cls(api_version, _KINDS[rest[0]], namespace, rest[1] if len(rest) > 1 else "")


class _Refused(Exception):
    """The object is invalid."""

    def __init__(self, obj: KubernetesObject, errors: ErrorList) -> None:
        super().__init__(errors)
        self.status = invalid_status(obj, errors)


def _matches(document: Document) -> bool:
    return document.has_cases_with("name", "steps", "answers")


def _cases(document: Document) -> Iterator[Case]:
    for scenario in document.cases:
        yield Case(scenario["name"], partial(_run, scenario))


def _run(scenario: dict[str, Any]) -> None:
    if not scenario["name"].startswith(_SCENARIOS) or scenario["name"] in _SERVER_ONLY:
        raise Skipped("needs a server")
    stored: dict[str, KubernetesObject] = {}
    for step, answer in zip(scenario["steps"], scenario["answers"], strict=True):
        route = _Route.of(step["path"])
        if step["method"] == "GET" and not route.name:
            continue  # a server's test covers lists
        actual = _answer(stored, route, step)
        expected = {"status": answer["status"], "body": _comparable(answer["body"])}
        if actual["status"] == answer["status"] == 400:
            expected["body"] = answer["body"]["message"]
        expect_equal(expected, actual)


def _answer(stored: dict[str, KubernetesObject], route: _Route, step: dict[str, Any]) -> dict[str, Any]:
    try:
        if step["method"] == "POST":
            obj = _create(route, parse_json(step["raw"]) if "raw" in step else step["body"])
            stored[obj.metadata.name] = obj
            return {"status": 201, "body": _comparable(write_object(obj, route.api_version))}
        if step["method"] == "PATCH":
            obj = _patch_status(route, stored[route.name], step["body"])
            stored[route.name] = obj
        return {"status": 200, "body": _comparable(write_object(stored[route.name], route.api_version))}
    except _Refused as refused:
        return {"status": 422, "body": _comparable(refused.status)}
    except DecodeError as error:
        version = route.api_version.rpartition("/")[2]
        prefix = f'{route.kind} in version "{version}" cannot be handled as a {route.kind}'
        return {"status": 400, "body": f"{prefix}: {error.reason}"}


def _create(route: _Route, body: Any) -> KubernetesObject:
    value = {"apiVersion": route.api_version, "kind": route.kind} | (body or {})
    obj = prepare_create(without_unknown(read_object(value, defaults_at=NOW)))
    errors = validate_create(
        obj, check_selector=check_device_selector, admin_access_allowed=False, release=RELEASES["1.36"]
    )
    if errors:
        raise _Refused(obj, errors)
    return obj


def _patch_status(route: _Route, old: KubernetesObject, patch: Any) -> KubernetesObject:
    value = _merged(write_object(old, route.api_version), patch)
    value["metadata"]["resourceVersion"] = "1"
    obj = prepare_status_update(read_object(value, defaults_at=NOW), old)
    errors = validate_status_update(obj, old, admin_access_allowed=False, release=RELEASES["1.36"])
    if errors:
        raise _Refused(obj, errors)
    return obj


def _merged(value: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, item in patch.items():
        if item is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), item)
    return result


def _comparable(body: Any) -> Any:
    """A body without server-generated fields: times become `<time>`, and syntax errors end after their position."""
    if isinstance(body, dict) and body.get("kind") == "Status":
        causes = body.get("details", {}).get("causes", [])
        if any(_SYNTAX.search(cause["message"]) for cause in causes):
            cut = [cause | {"message": _cut(cause["message"])} for cause in causes]
            return body | {"message": _cut(body["message"]), "details": body["details"] | {"causes": cut}}
    if not isinstance(body, dict) or body.get("kind") == "Status":
        return body
    metadata = {name: value for name, value in body["metadata"].items() if name not in _BY_SERVER}
    return _with_masked_times(body | {"metadata": metadata})


def _cut(message: str) -> str:
    found = _SYNTAX.search(message)
    return message[: found.end()] if found else message


def _with_masked_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: "<time>" if name == "timeAdded" else _with_masked_times(item) for name, item in value.items()}
    return [_with_masked_times(item) for item in value] if isinstance(value, list) else value


def _matches_objects(document: Document) -> bool:
    return document.has_cases_with("name", "object") and all(
        "causes" in x or "decodeError" in x for x in document.cases
    )


def _cases_of_objects(document: Document) -> Iterator[Case]:
    for entry in document.cases:
        yield Case(entry["name"], partial(_run_object, entry))


def _run_object(entry: dict[str, Any]) -> None:
    """Check one object, new or replacing `old` (only its status if `status` is set), and compare the causes."""
    try:
        obj = without_unknown(read_object(entry["object"], defaults_at=NOW))
    except DecodeError as error:
        expect_equal(entry.get("decodeError"), error.reason)
        return
    release, version = RELEASES[entry.get("release", "1.36")], entry["object"]["apiVersion"].rpartition("/")[2]
    if "old" not in entry:
        errors = validate_create(obj, check_selector=check_device_selector, release=release, version=version)
    else:
        old = read_object(entry["old"], defaults_at=NOW)
        if entry.get("status"):
            errors = validate_status_update(obj, old, release=release, version=version)
            if release.version == "1.36":  # the metadata checks are missing here, too
                metadata_alone = ErrorList()
                metadata_on_update(metadata_alone, obj.metadata, old.metadata, release)
                del errors[: len(metadata_alone)]
        else:
            # the server's checks before the kind's rules: 1.36's cases contain none, 1.37's those of the metadata
            errors = ErrorList()
            if release.version != "1.36":
                metadata_on_update(errors, obj.metadata, old.metadata, release)
            own_rules_on_update(errors, obj, old, check_selector=check_device_selector, release=release)
            errors = with_declared(errors, obj, old, release, version)
    causes = [{"reason": x.type.reason, "message": x.message, "field": x.path} for x in errors]
    expect_equal(entry.get("causes"), causes)


FORMATS = [
    Format("API server answers", _matches, _cases),
    Format("validated objects", _matches_objects, _cases_of_objects),
]
