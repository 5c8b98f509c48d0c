"""The rules of a CustomResourceDefinition, except for its schemas: names, versions, columns, conversion.

The texts and their order are the reference's. Like the reference, a member that all versions have alike is checked as a
member of the whole definition, and faults have that path.
"""

import re
from collections.abc import Iterable
from typing import Any

from controlplane.apiserver.definitions.schema import check_schema
from controlplane.apiserver.definitions.shape import internal_form_of
from controlplane.apiserver.definitions.structural import field_of, unsupported
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.webhook_clients import check_client, check_reviews
from resourceapi.objects import ErrorList, InOrder
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_1035_label, dns_subdomain
from resourceapi.objects.release import Release

_APPROVAL = "api-approved.kubernetes.io"
_PROTECTED = ("k8s.io", "kubernetes.io")
_APPROVAL_HINT = "see https://github.com/kubernetes/enhancements/pull/1111"
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SHARED_MEMBERS = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
"""Members of versions -> their names in the whole definition, where they are if all versions have the same value."""
_STRATEGIES = ["None", "Webhook"]
_MAX_SELECTABLE = 8
_MAX_WARNING = 256
_IMMUTABLE = "field is immutable"


def check_definition(errors: ErrorList, new: Plain, old: Plain | None, release: Release) -> None:
    """Add the faults of a definition whose types are correct, and which replaces `old` if that is not None."""
    spec, names, status = new["spec"], new["spec"]["names"], new.get("status") or {}
    if old is not None and json_equal(spec, old["spec"]) and not json_equal(status, old.get("status") or {}):
        _check_names(errors, "status.acceptedNames", status.get("acceptedNames") or {})
        return  # as in a real server, nothing else is checked if only the status changes
    name = new["metadata"].get("name", "")
    if old is None and name != f"{names['plural']}.{spec['group']}":
        errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    _check_spec(errors, spec, release)
    if old is not None:
        _check_changes(errors, new, old)
    _check_names(errors, "status.acceptedNames", status.get("acceptedNames") or {})
    _check_stored(errors, status.get("storedVersions"), spec["versions"] or ())
    _check_approval(errors, new, old)
    if spec.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errors.invalid("spec.preserveUnknownFields", True, text)


def _check_spec(errors: ErrorList, spec: Plain, release: Release) -> None:
    _check_group(errors, spec["group"])
    _check_choice(errors, "spec.scope", spec["scope"], ["Cluster", "Namespaced"])
    stated = [each or {} for each in spec["versions"] or ()]
    shared = {member for member in _SHARED_MEMBERS if all(_same(each, stated[0], member) for each in stated)}
    for index, version in enumerate(stated):
        if (version.get("schema") or {}).get("openAPIV3Schema") is None:
            errors.required(f"spec.versions[{index}].schema.openAPIV3Schema")
    if spec.get("preserveUnknownFields") and any(_has_default(each.get("schema")) for each in stated):
        errors.invalid("spec.preserveUnknownFields", True, "must be false in order to use defaults in the schema")
    versions = [{name: item for name, item in each.items() if name not in shared} for each in stated]
    for index, version in enumerate(versions):
        _check_version(errors, f"spec.versions[{index}]", version, stated[index], release)
    internal = [internal_form_of(each, "CustomResourceDefinitionVersion") for each in versions]
    shown = None if spec["versions"] is None else InOrder(internal)
    if len({each.get("name") for each in versions}) < len(versions):
        errors.invalid("spec.versions", shown, "must contain unique version names")
    if sum(bool(each.get("storage")) for each in versions) != 1:
        errors.invalid("spec.versions", shown, "must have exactly one version marked as storage version")
    first = (stated[0].get("name") or "") if stated else ""
    if first:
        _check_label(errors, "spec.version", first)
    names = spec["names"]
    for member in ("plural", "singular", "kind", "listKind"):
        if not names.get(member):
            errors.required(f"spec.names.{member}")
    _check_names(errors, "spec.names", names)
    whole = {member: stated[0][member] for member in sorted(shared) if stated and stated[0].get(member)}
    has_status = any("status" in (each.get("subresources") or {}) for each in stated)
    _check_members(errors, "spec", whole, _SHARED_MEMBERS, release, has_status=has_status, schema_of=whole)
    _check_conversion(errors, spec)


def _has_default(schema: Any) -> bool:
    """Return whether a schema has a default anywhere. Properties that are named `default` do not count."""
    if isinstance(schema, list):
        return any(map(_has_default, schema))
    if not isinstance(schema, dict):
        return False
    named = [each for name in ("properties", "definitions") for each in (schema.get(name) or {}).values()]
    others = (item for name, item in schema.items() if name not in ("default", "example", "enum", "properties"))
    return schema.get("default") is not None or any(map(_has_default, (*named, *others)))


def _same(version: Plain, other: Plain, member: str) -> bool:
    return json_equal(version.get(member) or None, other.get(member) or None)


def _check_group(errors: ErrorList, group: str) -> None:
    if not group:
        errors.required("spec.group")
    elif found := dns_subdomain(group):
        errors.invalid("spec.group", group, ",".join(found))
    elif "." not in group:
        errors.invalid("spec.group", group, "should be a domain with at least one dot")


def _check_choice(errors: ErrorList, path: str, value: str, choices: list[str]) -> None:
    if not value:
        errors.required(path)
    elif value not in choices:
        errors.not_supported(path, value, choices)


def _label(text: str) -> str:
    """Why a text is not a label that starts with a letter; empty if it is."""
    return ",".join(dns_1035_label(text))


def _check_label(errors: ErrorList, path: str, text: str, rule: str = "") -> None:
    if found := _label(text.lower() if rule else text):
        errors.invalid(path, text, rule + found)


def _check_version(errors: ErrorList, path: str, own: Plain, version: Plain, release: Release) -> None:
    """Add the faults of a version. `own` has the members that not all versions share."""
    _check_label(errors, f"{path}.name", version.get("name") or "")
    warning = version.get("deprecationWarning")
    if warning is not None:
        for text in _warning_faults(warning, is_deprecated=bool(version.get("deprecated"))):
            errors.invalid(f"{path}.deprecationWarning", warning, text)
    has_status = "status" in (version.get("subresources") or {})
    _check_members(
        errors, path, own, {each: each for each in _SHARED_MEMBERS}, release, has_status=has_status, schema_of=own
    )


def _warning_faults(warning: str, *, is_deprecated: bool) -> Iterable[str]:
    if not is_deprecated:
        yield "can only be set for deprecated versions"
        return
    if len(warning.encode()) > _MAX_WARNING:
        yield f"must be <= {_MAX_WARNING} characters long"
    if not warning:
        yield "must not be an empty string"
    index = next((at for at, each in enumerate(warning) if not each.isprintable()), None)
    if index is not None:
        place = len(warning[:index].encode())
        yield f"must only contain printable UTF-8 characters; non-printable character found at index {place}"


def _check_members(
    errors: ErrorList,
    path: str,
    members: Plain,
    names: Plain,
    release: Release,
    *,
    has_status: bool,
    schema_of: Plain,
) -> None:
    """Add the faults of schema, subresources, columns and selectable fields, of a version or of all together."""
    schema = (schema_of.get("schema") or {}).get("openAPIV3Schema")
    if schema is not None:
        where = f"{path}.{names['schema']}.openAPIV3Schema"
        check_schema(errors, where, schema, release, has_status=has_status)
    _check_scale(errors, f"{path}.subresources", (members.get("subresources") or {}).get("scale"))
    for index, column in enumerate(members.get("additionalPrinterColumns") or ()):
        _check_column(errors, f"{path}.additionalPrinterColumns[{index}]", column or {})
    if members.get("selectableFields"):
        here = f"{path}.selectableFields"
        if schema is None:
            why = (
                "`version.schema.openAPIV3Schema` is not included"
                if path != "spec"
                else "validations.schema is included"
            )
            errors.invalid(here, "", f"may only be set when {why}")
        elif why := unsupported(schema):
            errors.invalid(f"{path}.schema.openAPIV3Schema", "", why)
        else:
            _check_selectable(errors, here, members["selectableFields"], schema)


def _check_scale(errors: ErrorList, path: str, scale: Any) -> None:
    if not isinstance(scale, dict):
        return
    for name, where in (("specReplicasPath", "spec"), ("statusReplicasPath", "status")):
        value = scale.get(name) or ""
        if not value:
            errors.required(f"{path}.scale.{name}")
        elif _is_simple(errors, f"{path}.scale.{name}", value) and not value.startswith(f".{where}."):
            errors.invalid(f"{path}.scale.{name}", value, f"should be a json path under .{where}")
    value = scale.get("labelSelectorPath") or ""
    here = f"{path}.scale.labelSelectorPath"
    if value and _is_simple(errors, here, value) and not value.startswith((".spec.", ".status.")):
        errors.invalid(here, value, "should be a json path under either .spec or .status")


def _is_simple(errors: ErrorList, path: str, value: str) -> bool:
    if value.startswith("."):
        return True
    errors.invalid(path, value, "must be a simple json path starting with .")
    return False


def _check_column(errors: ErrorList, path: str, column: Plain) -> None:
    kind, form, json_path = (column.get(name) or "" for name in ("type", "format", "jsonPath"))
    if not column.get("name"):
        errors.required(f"{path}.name")
    if not kind:
        errors.required(f"{path}.type", f"must be one of {','.join(_COLUMN_TYPES)}")
    elif kind not in _COLUMN_TYPES:
        errors.invalid(f"{path}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}")
    if form and form not in _COLUMN_FORMATS:
        errors.invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not json_path:
        errors.required(f"{path}.JSONPath")
    else:
        _is_simple(errors, f"{path}.JSONPath", json_path)


def _check_selectable(errors: ErrorList, path: str, fields: list[Plain], schema: Plain) -> None:
    known: set[tuple[str, ...]] = set()
    for index, each in enumerate(fields):
        here, json_path = f"{path}[{index}].jsonPath", (each or {}).get("jsonPath") or ""
        if not json_path:
            errors.required(here)
            continue
        steps, found, why = field_of(schema, json_path, with_brackets=False)
        if found is None:
            errors.invalid(here, json_path, f"is an invalid path: {why}")
            continue
        if steps[:1] == ("metadata",):
            errors.invalid(here, json_path, "must not point to fields in metadata")
        if found.get("type") not in ("string", "boolean", "integer"):
            what = "Enum string fields and strings with formats are allowed."
            errors.invalid(here, json_path, f"must point to a field of type string, boolean or integer. {what}")
        if steps in known:
            errors.duplicate(here, json_path)
        known.add(steps)
    if len(known) > _MAX_SELECTABLE:
        errors.too_many(path, len(known), _MAX_SELECTABLE)


def _check_names(errors: ErrorList, path: str, names: Plain) -> None:
    mixed = "may have mixed case, but should otherwise match: "
    for member, rule in (("plural", ""), ("singular", ""), ("kind", mixed), ("listKind", mixed)):
        if names.get(member):
            _check_label(errors, f"{path}.{member}", names[member], rule)
    for index, each in enumerate(names.get("shortNames") or ()):
        _check_label(errors, f"{path}.shortNames[{index}]", each)
    if names.get("kind") and names["kind"] == names.get("listKind"):
        errors.invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
    for index, each in enumerate(names.get("categories") or ()):
        _check_label(errors, f"{path}.categories[{index}]", each)


def _check_conversion(errors: ErrorList, spec: Plain) -> None:
    conversion, path = spec["conversion"], "spec.conversion"
    strategy, webhook = conversion.get("strategy") or "", conversion.get("webhook") or {}
    client, reviews = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    if strategy != "None" and spec.get("preserveUnknownFields"):
        errors.invalid(f"{path}.strategy", strategy, "must be None if spec.preserveUnknownFields is true")
    _check_choice(errors, f"{path}.strategy", strategy, _STRATEGIES)
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        if client is not None:
            errors.forbidden(f"{path}.webhookClientConfig", text)
        if reviews:
            errors.forbidden(f"{path}.conversionReviewVersions", text)
        return
    here = f"{path}.webhookClientConfig"
    if client is None:
        errors.required(here, "required when strategy is set to Webhook")
    else:
        check_client(errors, here, client)
    check_reviews(errors, f"{path}.conversionReviewVersions", reviews)


def _check_changes(errors: ErrorList, new: Plain, old: Plain) -> None:
    """Add the changes of immutable members: those that identify the definition and its stored objects."""
    spec, before = new["spec"], old["spec"]
    conditions = (old.get("status") or {}).get("conditions") or ()
    is_established = any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions)
    places = [("spec.scope", spec["scope"], before["scope"])] if is_established else []
    names = (["kind"] if is_established else []) + ["plural"]
    named = [(f"spec.names.{each}", spec["names"].get(each), before["names"].get(each)) for each in names]
    group = ("spec.group", spec["group"], before["group"])
    for path, value, was in (*places, *named[:-1], group, named[-1]):
        if value != was:
            errors.invalid(path, value, _IMMUTABLE)


def _check_stored(errors: ErrorList, stored: list[str] | None, versions: Iterable[Plain]) -> None:
    path = "status.storedVersions"
    if not stored:
        errors.invalid(path, None, "must have at least one stored version")
        return
    left = {name: index for index, name in enumerate(stored)}
    for each in versions:
        name = (each or {}).get("name") or ""
        if (each or {}).get("storage") and name not in left:  # also for a second version of the same name
            errors.invalid(path, stored, f"must have the storage version {name}")
        left.pop(name, None)
    for name, index in left.items():
        until = f"until a storage migration ensures no data remains persisted in {name}"
        why = f"{name} was previously a storage version, and must remain in spec.versions {until}"
        text = f"missing from spec.versions; {why} and removes {name} from status.storedVersions"
        errors.invalid(f"{path}[{index}]", name, text)


def _check_approval(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    group = new["spec"]["group"]
    if not any(group == each or group.endswith(f".{each}") for each in _PROTECTED):
        return
    approval = _approval(new)
    if old is not None and _state(_approval(old)) == _state(approval):
        return
    path = f"metadata.annotations[{_APPROVAL}]"
    text = f'protected groups must have approval annotation "{_APPROVAL}"'
    if _state(approval) == "missing":
        errors.required(path, f"{text}, {_APPROVAL_HINT}")
    elif _state(approval) == "wrong":
        why = 'with either a URL or a reason starting with "unapproved"'
        errors.invalid(path, approval, f"{text} {why}, {_APPROVAL_HINT}")


def _approval(definition: Plain) -> str:
    return (definition["metadata"].get("annotations") or {}).get(_APPROVAL) or ""


def _state(approval: str) -> str:
    if not approval:
        return "missing"
    if approval.startswith("unapproved"):
        return "bypassed"
    return "approved" if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]", approval) else "wrong"
