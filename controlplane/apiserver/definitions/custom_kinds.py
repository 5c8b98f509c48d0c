"""CustomResourceDefinitions: kinds that are defined by objects.

`kind_of` makes a served kind from a definition. `Definitions` keeps the registry in sync with the stored definitions.
"""

import functools
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from controlplane.apiserver.columns import AGE, CREATED_AT, Since, at
from controlplane.apiserver.definitions.json_path import JsonPath, JsonPathError
from controlplane.apiserver.definitions.rules import check_definition
from controlplane.apiserver.definitions.shape import shaped
from controlplane.apiserver.definitions.warnings import definition_warnings
from controlplane.apiserver.go_values import go_text
from controlplane.apiserver.kinds import Column, Kind, Plain, Registry, ScalePaths, Schema, Served, version_rank
from controlplane.apiserver.scale import check_scale
from controlplane.apiserver.store import Store
from controlplane.apiserver.unstructured_rules import Check, UnstructuredRules
from resourceapi.objects import ErrorList, format_time
from resourceapi.objects.codec import is_time
from resourceapi.objects.errors import JSON_ESCAPES
from resourceapi.objects.release import Release
from resourceapi.objects.schemas import TYPE_FIELDS, condition_schema, map_list, metadata_schema

GROUP, PLURAL, KIND = "apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"
KIND_ID = f"{PLURAL}.{GROUP}"
_NAMES = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("plural", "singular", "kind", "listKind")},
        **{name: {"type": "array", "items": {"type": "string"}} for name in ("shortNames", "categories")},
    },
}
_NO_STATUS: Plain = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None}
_OPEN: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SCHEMA: Schema = {
    "type": "object",
    "description": "A kind of objects that the API server serves.",
    "properties": TYPE_FIELDS
    | {
        "metadata": metadata_schema(),
        "spec": {
            "type": "object",
            "properties": {
                "group": {"type": "string"},
                "scope": {"type": "string"},
                "names": _NAMES,
                "preserveUnknownFields": {"type": "boolean"},
                "conversion": {"type": "object", "properties": {"strategy": {"type": "string"}, "webhook": _OPEN}},
                "versions": {"type": "array", "items": _OPEN},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "acceptedNames": _NAMES,
                "storedVersions": {"type": "array", "items": {"type": "string"}},
                "conditions": {"type": "array", "items": condition_schema()} | map_list("type", patch=False),
            },
        },
    },
}


def _version_texts(obj: Plain) -> str:
    found = sorted(obj["spec"].get("versions") or (), key=lambda each: version_rank(each["name"]))
    served = [each for each in found if each.get("served", True)]
    return ",".join(each["name"] + ("(storage)" if each.get("storage") else "") for each in served)


def _established(obj: Plain) -> str:
    conditions = at("status", "conditions")(obj) or ()
    return str(any(x.get("type") == "Established" and x.get("status") == "True" for x in conditions)).lower()


_COLUMNS = (
    Column("Scope", at("spec", "scope")),
    Column("Versions", _version_texts),
    *CREATED_AT,
    Column("Group", at("spec", "group"), priority=1),
    Column("Kind", at("spec", "names", "kind"), priority=1),
    Column("ShortNames", lambda obj: ",".join(at("spec", "names", "shortNames")(obj) or ()), priority=1),
    Column("Established", _established, priority=1),
)


def definition_kind(release: Release) -> Kind:
    """Return the kind of definitions themselves."""
    rules = UnstructuredRules(
        GROUP,
        KIND,
        "v1",
        {"v1": _SCHEMA},
        namespaced=False,
        status=True,
        counts_generations=True,
        has_status_at_first=True,
        fill=_filled,
        advance=_with_stored_version,
        check=functools.partial(check_definition, release=release),
        warn=functools.partial(definition_warnings, release=release),
        put_back=_put_back_empties,
    )
    return Kind(
        group=GROUP,
        plural=PLURAL,
        kind=KIND,
        namespaced=False,
        versions=(Served("v1", _SCHEMA, must_be_current=True),),
        storage="v1",
        rules=rules,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        status=True,
        columns=_COLUMNS if release.lists_versions else CREATED_AT,
        hashed_as=f"{GROUP}/v1beta1",
        counts_generations=True,
        delete_returns_object=True,
    )


def kind_of(definition: Plain) -> Kind:
    """Return the served kind of a definition. Missing members have Kubernetes' defaults."""
    spec = _filled(definition)["spec"]
    names, group = spec["names"], spec["group"]
    served = [each for each in spec["versions"] if each.get("served", True)]
    served.sort(key=lambda each: version_rank(each["name"]))
    schemas = {each["name"]: _schema(each) for each in spec["versions"]}
    storage = next((each["name"] for each in spec["versions"] if each.get("storage")), spec["versions"][0]["name"])
    namespaced = spec.get("scope") == "Namespaced"
    status = any("status" in (each.get("subresources") or {}) for each in served)
    rules = UnstructuredRules(
        group,
        names["kind"],
        storage,
        schemas,
        namespaced=namespaced,
        status=status,
        counts_generations=True,
        is_validated=True,
        check=_scale_check(spec["versions"]),
        own_schemas={each["name"]: _own_schema(each) for each in spec["versions"]},
    )
    return Kind(
        group=group,
        plural=names["plural"],
        kind=names["kind"],
        namespaced=namespaced,
        versions=tuple(
            Served(each["name"], schemas[each["name"]], _deprecation(each, group, names["kind"]), scale=_scale(each))
            for each in served
        ),
        storage=storage,
        rules=rules,
        singular=names["singular"],
        list_kind=names["listKind"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status=status,
        columns=_columns(served[0] if served else {}),
        counts_generations=True,
        from_definition=True,
    )


class Definitions:
    """Keeps a registry in sync with the stored definitions.

    Initial kinds stay: as in a real server, a definition never changes a built-in kind. If one replaced the kind of an
    initial definition, deleting it restores that kind.
    """

    def __init__(self, store: Store, registry: Registry, clock: Callable[[], datetime]) -> None:
        self._store, self._registry, self._clock = store, registry, clock
        self._first = {kind.id: kind for kind in registry}

    def load(self) -> None:
        """Serve the kinds of the stored definitions."""
        for definition in self._store.objects(KIND_ID):
            self._serve(definition)

    def changed(self, definition: Plain) -> None:
        """Serve a definition that was written, and update its status."""
        if definition["metadata"].get("deletionTimestamp"):
            return
        names = definition["spec"]["names"]
        self._serve(definition)
        status = definition.get("status") or {}
        if status.get("acceptedNames") == names and status.get("conditions"):
            return
        now = format_time(self._clock())
        texts = (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
            for kind, reason, message in texts
        ]
        accepted = {**status, "conditions": status.get("conditions") or conditions, "acceptedNames": names}
        self._store.put(KIND_ID, ("", definition["metadata"]["name"]), {**definition, "status": accepted})

    def removed(self, definition: Plain) -> None:
        """Stop serving a deleted definition, and delete its objects."""
        kind_id = definition["metadata"]["name"]
        first = self._first.get(kind_id)
        if first is not None and not first.from_definition:
            return
        self._store.drop(kind_id)
        self._registry.remove(kind_id)
        if first is not None:
            self._registry.add(first)

    def _serve(self, definition: Plain) -> None:
        first = self._first.get(definition["metadata"]["name"])
        if first is None or first.from_definition:
            self._registry.add(kind_of(definition))


def _put_back_empties(held: Plain, read: Plain) -> None:
    """Put back empty lists and maps that were sent in versions: rules and refusals treat them as present."""
    spec, versions = held.get("spec"), (read.get("spec") or {}).get("versions")
    if spec and versions == []:
        spec["versions"] = []
    elif spec:
        _put_back_within(spec.get("versions"), versions)


def _put_back_within(held: Any, read: Any) -> None:
    if isinstance(held, dict) and isinstance(read, dict):
        for name, item in read.items():
            if isinstance(item, list | dict) and not item and held.get(name) is None:
                held[name] = item
            else:
                _put_back_within(held.get(name), item)
    elif isinstance(held, list) and isinstance(read, list):
        for each in zip(held, read, strict=False):
            _put_back_within(*each)


def _filled(definition: Plain) -> Plain:
    definition = shaped(definition)
    spec = {"group": "", "scope": "", "versions": None} | (definition.get("spec") or {})
    names = {"plural": "", "kind": ""} | (spec.get("names") or {})
    if names["kind"]:
        names = {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List"} | names
    spec |= {"names": names, "conversion": spec.get("conversion") or {"strategy": "None"}}
    status = _NO_STATUS | {"storedVersions": _storage_version(spec) or None}
    return {**definition, "spec": spec, "status": status | (definition.get("status") or {})}


def _storage_version(spec: Plain) -> list[str]:
    stored = [each.get("name") or "" for each in spec["versions"] or () if each and each.get("storage")]
    return stored[:1]


def _with_stored_version(new: Plain, old: Plain | None) -> Plain:
    """Set the status of a new definition, and add the stored version of any."""
    status = new["status"] if old else _NO_STATUS
    stored = status.get("storedVersions") or []
    added = [each for each in _storage_version(new["spec"]) if each not in stored]
    return {**new, "status": status | {"storedVersions": (stored + added) or None}}


def _own_schema(version: Plain) -> Schema:
    return (version.get("schema") or {}).get("openAPIV3Schema") or _OPEN


def _schema(version: Plain) -> Schema:
    schema = dict(_own_schema(version))
    known = {
        name: item for name, item in schema.get("properties", {}).items() if name not in (*TYPE_FIELDS, "metadata")
    }
    schema["properties"] = TYPE_FIELDS | {"metadata": metadata_schema()} | known
    return schema


def _deprecation(version: Plain, group: str, kind: str) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated"


def _scale(version: Plain) -> ScalePaths | None:
    scale = (version.get("subresources") or {}).get("scale")
    if not isinstance(scale, dict):
        return None
    return ScalePaths(*(scale.get(f"{name}Path") or "" for name in ("specReplicas", "statusReplicas", "labelSelector")))


def _scale_check(versions: Iterable[Plain]) -> Check:
    paths = next(filter(None, map(_scale, versions)), None)

    def check(errors: ErrorList, new: Plain, old: Plain | None) -> None:
        del old
        if paths is not None:
            check_scale(errors, new, paths)

    return check


_MAX_PATHS_LENGTH = 64 * 1024
"""The most characters of all paths of a version together; the event loop parses them, in some tenths of a second."""


def _columns(version: Plain) -> tuple[Column, ...]:
    """Return the columns of a version, up to the first one with an invalid path, like a real server."""
    defined = version.get("additionalPrinterColumns")
    if not defined:
        return (AGE._replace(type="date"),)
    columns, length = [], 0
    for each in defined:
        text = each.get("jsonPath", "")
        length += len(text)
        if length > _MAX_PATHS_LENGTH:
            break
        try:
            path = JsonPath(text)
        except JsonPathError:
            break
        kind = each.get("type", "string")
        described = f"Custom resource definition column (in JSONPath format): {each.get('jsonPath')}"
        description = each.get("description") or described
        columns.append(
            Column(each["name"], _cell(path, kind), kind, each.get("priority", 0), description, each.get("format", ""))
        )
    return tuple(columns)


def _cell(path: JsonPath, kind: str) -> Callable[[Plain], Any]:
    def cell(obj: Plain) -> Any:
        try:
            found = path.find(obj)
        except JsonPathError:
            return None
        return _shown(found[0], kind) if found else None

    return cell


def _shown(value: Any, kind: str) -> Any:
    """Return the content of a cell of this type; None for a value of another type."""
    if kind == "string":
        if isinstance(value, dict | list):
            text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
            return text.translate(JSON_ESCAPES)
        return "<no value>" if value is None else go_text(value)
    if kind == "date":
        return _date(value) if isinstance(value, str) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind == "integer":
        whole = int(value)
        return whole if -(2**63) <= whole < 2**63 else -(2**63)  # as Go converts a larger double on amd64
    return value


def _date(text: str) -> Any:
    if text in ("", "null"):  # no time, for Go
        return Since(None)
    return Since(text) if is_time(text) else "<invalid>"
