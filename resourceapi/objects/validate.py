"""Validation of created and updated objects: one function per operation, for all kinds.

The errors are those of kube-apiserver in the given `Release`, in its order (see `errors.invalid_status`). Objects are
v1 objects with defaults, prepared by `strategy`; `version` is the API version of the request.
"""

from resourceapi.objects import v1
from resourceapi.objects.claim_rules import claim_spec
from resourceapi.objects.claim_status_rules import claim_status
from resourceapi.objects.class_rules import CheckSelector, accept_selector, class_spec
from resourceapi.objects.declared_rules import declared_errors, replaced
from resourceapi.objects.decode import NAMESPACED, write_object
from resourceapi.objects.errors import ErrorList
from resourceapi.objects.field_rules import conditions
from resourceapi.objects.meta import KubernetesObject
from resourceapi.objects.metadata_rules import (
    finalizer_names,
    immutable,
    metadata_on_create,
    metadata_on_update,
    template_metadata,
)
from resourceapi.objects.names import path_segment
from resourceapi.objects.release import LATEST, Release
from resourceapi.objects.slice_rules import slice_spec, taint_rule_spec

MAX_TAINT_RULE_CONDITIONS = 8
_DECLARED = (v1.DeviceClass, v1.DeviceTaintRule, v1.ResourceClaim, v1.ResourceClaimTemplate, v1.ResourceSlice)


def validate_create(
    obj: KubernetesObject,
    *,
    check_selector: CheckSelector = accept_selector,
    admin_access_allowed: bool = True,
    release: Release = LATEST,
    version: str = "v1",
) -> ErrorList:
    """Return the errors of a new object.

    `check_selector` compiles device selectors. `admin_access_allowed`: whether the namespace has the label
    `v1.ADMIN_ACCESS_LABEL`.
    """
    errors = ErrorList()
    namespaced = isinstance(obj, NAMESPACED)
    if isinstance(obj, v1.ResourceClaim) and not admin_access_allowed:
        _admin_request(errors, obj.spec)
    if isinstance(obj, v1.ResourceClaimTemplate) and not admin_access_allowed:
        _admin_request(errors, obj.spec.spec)
    is_class = isinstance(obj, v1.DeviceClass)
    metadata_on_create(errors, obj.metadata, release, namespaced=namespaced, newer=is_class)
    finalizer_names(errors, obj.metadata)
    match obj:
        case v1.ResourceClaim():
            claim_spec(errors, "spec", obj.spec, check_selector)
        case v1.ResourceClaimTemplate():
            template_metadata(errors, obj.spec.metadata, "spec.metadata")
            claim_spec(errors, "spec.spec", obj.spec.spec, check_selector)
        case v1.DeviceClass():
            class_spec(errors, "spec", obj.spec, None, check_selector, release)
        case v1.ResourceSlice():
            slice_spec(errors, "spec", obj.spec, None, release)
        case v1.DeviceTaintRule():
            taint_rule_spec(errors, "spec", obj.spec, None, release)
    return with_declared(errors, obj, None, release, version)


def validate_update(
    new: KubernetesObject,
    old: KubernetesObject,
    *,
    check_selector: CheckSelector = accept_selector,
    release: Release = LATEST,
    version: str = "v1",
) -> ErrorList:
    """Return the errors of an updated object. Both objects are of the same kind."""
    errors = ErrorList()
    metadata_on_create(
        errors, new.metadata, release, namespaced=isinstance(new, NAMESPACED), name_rule=path_segment
    )  # checked here for all kinds, and again with the rules of the kind
    metadata_on_update(errors, new.metadata, old.metadata, release)
    if isinstance(new, v1.ResourceClaimTemplate):
        _new_template(errors, new, check_selector, release)
    own_rules_on_update(errors, new, old, check_selector=check_selector, release=release)
    return with_declared(errors, new, old, release, version)


def own_rules_on_update(
    errors: ErrorList,
    new: KubernetesObject,
    old: KubernetesObject,
    *,
    check_selector: CheckSelector = accept_selector,
    release: Release = LATEST,
) -> None:
    """Add the errors of an updated object by the rules that its kind has for updates."""
    is_class = isinstance(new, v1.DeviceClass)
    if release.checks_changed_as_new and isinstance(new, v1.ResourceClaim | v1.DeviceClass):
        metadata_on_create(errors, new.metadata, release, namespaced=not is_class, newer=is_class)
        finalizer_names(errors, new.metadata)
    metadata_on_update(errors, new.metadata, old.metadata, release)
    finalizer_names(errors, new.metadata)
    match new, old:
        case v1.ResourceClaim(), v1.ResourceClaim():
            immutable(errors, "spec", new.spec, old.spec)
        case v1.ResourceClaimTemplate(), v1.ResourceClaimTemplate():
            immutable(errors, "spec", new.spec, old.spec, with_alpha=release.shows_alpha_fields)
        case v1.DeviceClass(), v1.DeviceClass():
            class_spec(errors, "spec", new.spec, old.spec, check_selector, release)
        case v1.ResourceSlice(), v1.ResourceSlice():
            slice_spec(errors, "spec", new.spec, old.spec, release)
        case v1.DeviceTaintRule(), v1.DeviceTaintRule():
            taint_rule_spec(errors, "spec", new.spec, old.spec, release)


def _new_template(
    errors: ErrorList, template: v1.ResourceClaimTemplate, check_selector: CheckSelector, release: Release
) -> None:
    metadata_on_create(errors, template.metadata, release, namespaced=True)
    finalizer_names(errors, template.metadata)
    template_metadata(errors, template.spec.metadata, "spec.metadata")
    claim_spec(errors, "spec.spec", template.spec.spec, check_selector)


def validate_status_update(
    new: KubernetesObject,
    old: KubernetesObject,
    *,
    admin_access_allowed: bool = True,
    release: Release = LATEST,
    version: str = "v1",
) -> ErrorList:
    """Return the errors of an updated status. Both objects are of the same kind."""
    errors = ErrorList()
    metadata_on_update(errors, new.metadata, old.metadata, release)
    match new, old:
        case v1.ResourceClaim(), v1.ResourceClaim():
            if not admin_access_allowed:
                _admin_result(errors, new.status, old.status)
            metadata_on_update(errors, new.metadata, old.metadata, release)
            claim_status(errors, "status", new, old, release)
        case v1.DeviceTaintRule(), v1.DeviceTaintRule():
            metadata_on_update(errors, new.metadata, old.metadata, release)
            found = new.status.conditions
            conditions(errors, "status.conditions", found, release)
            if len(found) > MAX_TAINT_RULE_CONDITIONS:
                errors.too_many("status.conditions", len(found), MAX_TAINT_RULE_CONDITIONS)
    return with_declared(errors, new, old, release, version)


def with_declared(
    errors: ErrorList, new: KubernetesObject, old: KubernetesObject | None, release: Release, version: str
) -> ErrorList:
    """Return the errors merged with those of the declared rules, if the release has declared rules."""
    if not release.has_declared_rules or not isinstance(new, _DECLARED):
        return errors
    api_version = f"{v1.GROUP}/{version}"
    before = write_object(old, api_version) if old is not None else None
    return replaced(errors, declared_errors(write_object(new, api_version), before))


def _admin_request(errors: ErrorList, spec: v1.ResourceClaimSpec) -> None:
    for index, request in enumerate(spec.devices.requests):
        if request.exactly is not None and request.exactly.admin_access:
            _admin_access(errors, f"spec.devices.requests[{index}].adminAccess")
            return


def _admin_result(errors: ErrorList, new: v1.ResourceClaimStatus, old: v1.ResourceClaimStatus) -> None:
    if old.allocation and any(result.admin_access for result in old.allocation.devices.results):
        return
    for index, result in enumerate(new.allocation.devices.results if new.allocation else ()):
        if result.admin_access:
            _admin_access(errors, f"status.allocation.devices.results[{index}].adminAccess")
            return


def _admin_access(errors: ErrorList, path: str) -> None:
    label = f"`{v1.ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
    errors.forbidden(path, f"admin access to devices requires the {label}")
