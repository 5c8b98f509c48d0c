"""What a claim for storage must be, on its own or as a template in a pod.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidatePersistentVolumeClaimSpec).
"""

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.label_rules import check_selector
from resourceapi.objects import ErrorList, ObjectMeta, Quantity, QuantityError, from_dict
from resourceapi.objects.errors import InOrder
from resourceapi.objects.field_rules import complaints
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.metadata_rules import template_metadata
from resourceapi.objects.names import dns_label, dns_subdomain

_ALONE = "ReadWriteOncePod"
_ACCESS = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _ALONE]
_MODES = ["Block", "Filesystem"]
_CLAIM = "PersistentVolumeClaim"


def check_claim(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """A claim, whose kind of volume stays."""
    check_claim_spec(errors, new["spec"], "spec")
    if old is not None and not json_equal(new["spec"].get("volumeMode"), old["spec"].get("volumeMode")):
        errors.invalid("volumeMode", new["spec"].get("volumeMode"), "field is immutable")


def check_claim_template(errors: ErrorList, template: Plain, path: str) -> None:
    """A claim that is made for a pod."""
    template_metadata(errors, from_dict(ObjectMeta, template.get("metadata") or {}), f"{path}.metadata")
    check_claim_spec(errors, template.get("spec") or {}, f"{path}.spec")


def check_claim_spec(errors: ErrorList, spec: Plain, path: str) -> None:
    """How storage is to be."""
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
    _check_sources(errors, spec, path)
    _check_class(errors, spec, f"{path}.volumeAttributesClassName")


def _check_class(errors: ErrorList, spec: Plain, path: str) -> None:
    name = spec.get(path.rpartition(".")[2])
    if name:
        complaints(errors, path, name, dns_subdomain(name))


def _check_access(errors: ErrorList, modes: list[str], path: str) -> None:
    for mode in modes:
        if mode not in _ACCESS:
            errors.not_supported(path, mode, _ACCESS)
    known = {*modes} & {*_ACCESS}
    if _ALONE in known and len(known) > 1:
        errors.forbidden(path, f"may not use {_ALONE} with other access modes")


def _check_amount(errors: ErrorList, resources: Plain, path: str) -> None:
    amount = (resources.get("requests") or {}).get("storage")
    if amount is None:
        errors.required(path)
        return
    try:
        is_positive = Quantity.parse(str(amount)) > Quantity.parse("0")
    except QuantityError:  # the types of the object were looked at before
        return
    if not is_positive:
        errors.invalid(path, str(amount), "must be greater than zero")


def _check_sources(errors: ErrorList, spec: Plain, path: str) -> None:
    """What storage holds from the start, which has two names."""
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
        if group:
            complaints(errors, f"{here}.apiGroup", group, dns_subdomain(group))
        if source.get("namespace"):
            complaints(errors, f"{here}.namespace", source["namespace"], dns_label(source["namespace"]))
    one, other = spec.get("dataSource"), spec.get("dataSourceRef")
    if one is not None and other is not None:
        if other.get("namespace"):
            why = "may not be specified when dataSourceRef.namespace is specified"
            errors.invalid(path, InOrder({}), why)  # Go shows a path, which has no fields to show
        elif not json_equal(one, other):
            errors.invalid(path, InOrder({}), "must match dataSourceRef")
