"""The rules of storage claims, and of claim templates in pods.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidatePersistentVolumeClaimSpec).
"""

from controlplane.apiserver.internal_types import difference, internal_form
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.label_rules import check_selector
from resourceapi.objects import ErrorList, ObjectMeta, Quantity, QuantityError, from_dict
from resourceapi.objects.errors import InOrder
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.metadata_rules import template_metadata
from resourceapi.objects.names import dns_label, dns_subdomain

_SINGLE_POD_MODE = "ReadWriteOncePod"
_ACCESS = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _SINGLE_POD_MODE]
_MODES = ["Block", "Filesystem"]
_CLAIM = "PersistentVolumeClaim"
_SPEC = "core.PersistentVolumeClaimSpec"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_FIXED = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
_RESIZES = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
]


def check_claim(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check a storage claim. A bound claim can change to a larger request, and to another class."""
    before = (old or {}).get("spec") or {}
    check_claim_spec(errors, new["spec"], "spec", had_source="dataSource" in before or "dataSourceRef" in before)
    if old is not None:
        _check_changes(errors, new, old)


def _check_changes(errors: ErrorList, new: Plain, old: Plain) -> None:
    """Check the changes of a claim (ValidatePersistentVolumeClaimUpdate)."""
    spec, was = {**new["spec"]}, {**old["spec"]}
    if not was.get("volumeName"):
        was["volumeName"] = spec.get("volumeName")
    now_named, was_named = ((obj["metadata"].get("annotations") or {}).get(_OLD_CLASS) for obj in (new, old))
    if was_named is not None and "storageClassName" not in was and spec.get("storageClassName") == was_named:
        del spec["storageClassName"]
    else:
        if (now_named or "") != (was_named or ""):
            errors.invalid(f"metadata.annotations[{_OLD_CLASS}]", now_named or "", "field is immutable")
        if "storageClassName" not in was and was_named in (None, spec.get("storageClassName")):
            was["storageClassName"] = spec.get("storageClassName")
    size, before = (_amount(each) for each in (new["spec"], old["spec"]))
    if new["status"].get("phase") == "Bound":
        resources = spec.get("resources") or {}
        if resources.get("requests"):
            spec["resources"] = {**resources, "requests": {**resources["requests"], "storage": before}}
        spec["volumeAttributesClassName"] = was.get("volumeAttributesClassName")
    one, other = (internal_form(_SPEC, each) for each in (was, spec))
    if not json_equal(one, other):
        errors.forbidden("spec", f"{_FIXED}\n{difference(one, other)}")
    there = Quantity.parse(((new["status"].get("capacity")) or {}).get("storage", "0"))
    if Quantity.parse(size) < Quantity.parse(before) and Quantity.parse(size) <= there:
        errors.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
    if not json_equal(new["spec"].get("volumeMode"), old["spec"].get("volumeMode")):
        errors.invalid("volumeMode", new["spec"].get("volumeMode"), "field is immutable")
    wanted = new["spec"].get("volumeAttributesClassName")
    is_changed = wanted != old["spec"].get("volumeAttributesClassName")
    if is_changed and not wanted and old["status"].get("currentVolumeAttributesClassName") is not None:
        what = "nil" if wanted is None else "empty string"
        why = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        errors.forbidden("spec.volumeAttributesClassName", why)


def check_claim_status(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check the status of a claim."""
    del old
    for member in ("capacity", "allocatedResources"):
        for name, amount in (new["status"].get(member) or {}).items():
            if Quantity.parse(str(amount)) < Quantity.parse("0"):
                errors.invalid(f"status.{member}[{name}]", str(amount), "must be a valid resource quantity")
    for state in (new["status"].get("allocatedResourceStatuses") or {}).values():
        if state not in _RESIZES:
            errors.not_supported("status.allocatedResourceStatuses", state, _RESIZES)


def _amount(spec: Plain) -> str:
    return str(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))


def check_claim_template(errors: ErrorList, template: Plain, path: str) -> None:
    """Check the claim template of an ephemeral volume."""
    template_metadata(errors, from_dict(ObjectMeta, template.get("metadata") or {}), f"{path}.metadata")
    check_claim_spec(errors, template.get("spec") or {}, f"{path}.spec")


def check_claim_spec(errors: ErrorList, spec: Plain, path: str, *, had_source: bool = False) -> None:
    """Check the spec of a claim; `had_source`: the old spec had a data source, so its group can be any."""
    modes = spec.get("accessModes") or []
    if not modes:
        errors.required(f"{path}.accessModes", "at least 1 access mode is required")
    if spec.get("selector") is not None:
        check_selector(errors, f"{path}.selector", spec["selector"])
    _check_access(errors, modes, f"{path}.accessModes")
    _check_amount(errors, spec.get("resources") or {}, f"{path}.resources[storage]")
    _check_class(errors, spec, f"{path}.storageClassName")
    mode = spec.get("volumeMode")
    if mode is not None and mode not in _MODES:
        errors.not_supported(f"{path}.volumeMode", mode, _MODES)
    _check_sources(errors, spec, path, is_any_group=had_source)
    _check_class(errors, spec, f"{path}.volumeAttributesClassName")


def _check_class(errors: ErrorList, spec: Plain, path: str) -> None:
    name = spec.get(path.rpartition(".")[2])
    if name:
        add_invalid(errors, path, name, dns_subdomain(name))


def _check_access(errors: ErrorList, modes: list[str], path: str) -> None:
    for mode in modes:
        if mode not in _ACCESS:
            errors.not_supported(path, mode, _ACCESS)
    known = {*modes} & {*_ACCESS}
    if _SINGLE_POD_MODE in known and len(known) > 1:
        errors.forbidden(path, f"may not use {_SINGLE_POD_MODE} with other access modes")


def _check_amount(errors: ErrorList, resources: Plain, path: str) -> None:
    amount = (resources.get("requests") or {}).get("storage")
    if amount is None:
        errors.required(path)
        return
    try:
        is_positive = Quantity.parse(str(amount)) > Quantity.parse("0")
    except QuantityError:  # reported when the types are checked
        return
    if not is_positive:
        errors.invalid(path, str(amount), "must be greater than zero")


def _check_sources(errors: ErrorList, spec: Plain, path: str, *, is_any_group: bool) -> None:
    """Check the data sources, `dataSource` and `dataSourceRef`."""
    for name in ("dataSource", "dataSourceRef"):
        source, here = spec.get(name), f"{path}.{name}"
        if source is None:
            continue
        for member in ("name", "kind"):
            if not source.get(member):
                errors.required(f"{here}.{member}")
        group, kind = source.get("apiGroup") or "", source.get("kind") or ""
        if not group and kind != _CLAIM:
            errors.invalid(here, kind, f"must be '{_CLAIM}' when referencing the default apiGroup")
        if group and not is_any_group:
            add_invalid(errors, f"{here}.apiGroup", group, dns_subdomain(group))
        if source.get("namespace"):
            add_invalid(errors, f"{here}.namespace", source["namespace"], dns_label(source["namespace"]))
    one, other = spec.get("dataSource"), spec.get("dataSourceRef")
    if one is not None and other is not None:
        if other.get("namespace"):
            why = "may not be specified when dataSourceRef.namespace is specified"
            errors.invalid(path, InOrder({}), why)  # Go shows a struct without exported fields
        elif not json_equal(one, other):
            errors.invalid(path, InOrder({}), "must match dataSourceRef")
