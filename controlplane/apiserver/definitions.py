"""CustomResourceDefinitions: kinds that come as objects.

`kind_of` makes a served kind of a definition; `Definitions` keeps the registry in step with the stored ones.
"""

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from controlplane.apiserver.columns import AGE, CREATED_AT, Since, at
from controlplane.apiserver.definition_rules import check_schema, shaped
from controlplane.apiserver.kinds import Column, Kind, Plain, Registry, ScalePaths, Schema, Served, version_rank
from controlplane.apiserver.open_rules import Check, OpenRules
from controlplane.apiserver.scale import check_scale
from controlplane.apiserver.store import Store
from resourceapi.objects import ErrorList, format_time
from resourceapi.objects.names import dns_label, dns_subdomain
from resourceapi.objects.release import Release
from resourceapi.objects.schemas import TYPE_FIELDS, condition_schema, map_list, metadata_schema

GROUP, PLURAL, KIND = "apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"
KIND_ID = f"{PLURAL}.{GROUP}"
_APPROVAL = "api-approved.kubernetes.io"
_PROTECTED = (".k8s.io", ".kubernetes.io")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_NAMES = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("plural", "singular", "kind", "listKind")},
        **{name: {"type": "array", "items": {"type": "string"}} for name in ("shortNames", "categories")},
    },
}
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
    """The kind of definitions themselves."""
    rules = OpenRules(
        GROUP,
        KIND,
        "v1",
        {"v1": _SCHEMA},
        namespaced=False,
        status=True,
        counts_generations=True,
        has_status_at_first=True,
        fill=_filled,
        check=_check,
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
        counts_generations=True,
        delete_returns_object=True,
    )


def kind_of(definition: Plain) -> Kind:
    """The served kind that a definition stands for. What it lacks is taken from what Kubernetes defaults to."""
    spec = _filled(definition)["spec"]
    names, group = spec["names"], spec["group"]
    served = [each for each in spec["versions"] if each.get("served", True)]
    served.sort(key=lambda each: version_rank(each["name"]))
    schemas = {each["name"]: _schema(each) for each in spec["versions"]}
    storage = next((each["name"] for each in spec["versions"] if each.get("storage")), spec["versions"][0]["name"])
    namespaced = spec.get("scope") == "Namespaced"
    status = any("status" in (each.get("subresources") or {}) for each in served)
    rules = OpenRules(
        group,
        names["kind"],
        storage,
        schemas,
        namespaced=namespaced,
        status=status,
        counts_generations=True,
        is_validated=True,
        check=_scale_check(spec["versions"]),
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
    """Keeps a registry in step with the stored definitions.

    Kinds that it has from the start stay: a definition never changes one of the API's own, as in a real server, and
    one that replaced another definition's kind gives it back when it goes.
    """

    def __init__(self, store: Store, registry: Registry, clock: Callable[[], datetime]) -> None:
        self._store, self._registry, self._clock = store, registry, clock
        self._first = {kind.id: kind for kind in registry}

    def load(self) -> None:
        """Serve what is stored."""
        for definition in self._store.objects(KIND_ID):
            self._serve(definition)

    def changed(self, definition: Plain) -> None:
        """A definition has been written: serve it, and say so in its status."""
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
        """A definition is gone, and its objects with it."""
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


def _filled(definition: Plain) -> Plain:
    definition = shaped(definition)
    spec = {"group": "", "scope": "", "versions": None} | (definition.get("spec") or {})
    names = {"plural": "", "kind": ""} | (spec.get("names") or {})
    if names["kind"]:
        names = {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List"} | names
    spec |= {"names": names, "conversion": spec.get("conversion") or {"strategy": "None"}}
    stored = [each["name"] for each in spec["versions"] or () if each and each.get("storage") and each.get("name")]
    status = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored or None}
    return {**definition, "spec": spec, "status": status | (definition.get("status") or {})}


def _check(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    spec, names = new["spec"], new["spec"]["names"]
    name = new["metadata"].get("name", "")
    if name != f"{names['plural']}.{spec['group']}":
        errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    _required_name(errors, "spec.group", spec["group"], dns_subdomain)
    if not spec["scope"]:
        errors.required("spec.scope")
    elif spec["scope"] not in ("Cluster", "Namespaced"):
        errors.not_supported("spec.scope", spec["scope"], ["Cluster", "Namespaced"])
    versions = [each or {} for each in spec["versions"] or ()]
    if len({each.get("name") for each in versions}) < len(versions):
        errors.invalid("spec.versions", spec["versions"], "must contain unique version names")
    if sum(bool(each.get("storage")) for each in versions) != 1:
        errors.invalid("spec.versions", spec["versions"], "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        _check_version(errors, f"spec.versions[{index}]", version, is_only=len(versions) == 1)
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field) or ""
        _required_name(errors, f"spec.names.{field}", value.lower() if "ind" in field else value, dns_label)
    if not (new.get("status") or {}).get("storedVersions"):
        errors.invalid("status.storedVersions", None, "must have at least one stored version")
    if spec["conversion"].get("strategy") not in ("None", "Webhook"):
        errors.not_supported("spec.conversion.strategy", spec["conversion"].get("strategy", ""), ["None", "Webhook"])
    annotations = new["metadata"].get("annotations") or {}
    if spec["group"].endswith(_PROTECTED) and _APPROVAL not in annotations:
        see = "see https://github.com/kubernetes/enhancements/pull/1111"
        text = f'protected groups must have approval annotation "{_APPROVAL}", {see}'
        errors.required(f"metadata.annotations[{_APPROVAL}]", text)


def _check_version(errors: ErrorList, path: str, version: Plain, *, is_only: bool) -> None:
    _required_name(errors, f"{path}.name", version.get("name") or "", dns_label)
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        errors.required(f"{path}.schema.openAPIV3Schema")
        return
    where = (
        "spec.validation.openAPIV3Schema" if is_only else f"{path}.schema.openAPIV3Schema"
    )  # as the reference has it
    if schema.get("type") != "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        errors.invalid(f"{where}.type", schema.get("type", ""), "must be object at the root")
    check_schema(errors, where, schema)
    columns = "spec.additionalPrinterColumns" if is_only else f"{path}.additionalPrinterColumns"
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        _check_column(errors, f"{columns}[{index}]", column or {})


def _check_column(errors: ErrorList, path: str, column: Plain) -> None:
    if not column.get("name"):
        errors.required(f"{path}.name")
    kind, json_path = column.get("type") or "", column.get("jsonPath") or ""
    if not kind:
        errors.required(f"{path}.type", f"must be one of {','.join(_COLUMN_TYPES)}")
    elif kind not in _COLUMN_TYPES:
        errors.invalid(f"{path}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}")
    if not json_path:
        errors.required(f"{path}.JSONPath")
    elif not json_path.startswith("."):
        errors.invalid(f"{path}.JSONPath", json_path, "must be a simple json path starting with .")


def _required_name(errors: ErrorList, path: str, value: str, check: Callable[[str], Iterable[str]]) -> None:
    if not value:
        errors.required(path)
        return
    complaints = list(check(value))
    if complaints:
        errors.invalid(path, value, "; ".join(complaints))


def _schema(version: Plain) -> Schema:
    schema = dict((version.get("schema") or {}).get("openAPIV3Schema") or _OPEN)
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


def _columns(version: Plain) -> tuple[Column, ...]:
    defined = version.get("additionalPrinterColumns")
    if not defined:
        return (AGE._replace(type="date"),)
    return tuple(
        Column(
            each["name"],
            _cell(each.get("jsonPath", ""), each.get("type", "string")),
            each.get("type", "string"),
            each.get("priority", 0),
            each.get("description")
            or f"Custom resource definition column (in JSONPath format): {each.get('jsonPath')}",
            each.get("format", ""),
        )
        for each in defined
    )


_STEP = re.compile(r"\.([A-Za-z0-9_$-]+)|\[(\d+|\*)\]|\['([^']+)'\]|\.([^.\[\]]*\\\.[^\[\]]*)")


def _cell(path: str, kind: str) -> Callable[[Plain], Any]:
    steps = [next(filter(None, match.groups())) for match in _STEP.finditer(path.replace("\\.", "\0"))]
    steps = [step.replace("\0", ".") for step in steps]

    def cell(obj: Plain) -> Any:
        found = _found(obj, steps)
        if not found:
            return None
        value = found[0]
        if kind == "date":
            return Since(value if isinstance(value, str) else None)
        if kind == "integer":
            return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        if kind in ("number", "boolean"):
            return value
        texts = [each if isinstance(each, str) else json.dumps(each, separators=(",", ":")) for each in found]
        return " ".join(texts) if len(texts) > 1 else texts[0]

    return cell


def _found(value: Any, steps: list[str]) -> list[Any]:
    found = [value]
    for step in steps:
        below: list[Any] = []
        for each in found:
            if isinstance(each, dict) and step in each:
                below.append(each[step])
            elif isinstance(each, list) and step == "*":
                below.extend(each)
            elif isinstance(each, list) and step.isdigit() and int(step) < len(each):
                below.append(each[int(step)])
        found = below
    return [each for each in found if each is not None]
