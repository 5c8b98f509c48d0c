"""The rules of storage classes, CSI drivers, CSINodes, storage capacities and volume attachments.

Source: k8s.io/kubernetes pkg/apis/storage/validation/validation.go and pkg/registry/storage/csidriver/strategy.go.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from controlplane.apiserver.internal_types import internal_form, published
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.label_rules import check_selector
from controlplane.apiserver.rules.quantity_rules import not_below_zero
from controlplane.apiserver.rules.volume_rules import check_volume_spec
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import MAX_DRIVER_NAME, add_invalid, driver_name, label_name
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_subdomain, dns_subdomain_in_any_case, label_key
from resourceapi.objects.release import Release

_IMMUTABLE = "field is immutable"
_BINDING = ["Immediate", "WaitForFirstConsumer"]
_RECLAIM = ["Delete", "Retain"]
_LIFECYCLES = ["Persistent", "Ephemeral"]
_GROUP_POLICIES = ["File", "None", "ReadWriteOnceWithFSType"]
_MAX_PARAMETERS, _MAX_BYTES = 512, 256 * 1024
_MAX_NODE_ID_LENGTH, _MAX_MESSAGE_LENGTH = 256, 1024
_MIN_TOKEN, _MAX_TOKEN = 600, 1 << 32
_MAX__PERIOD_LENGTH = 10
_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
_NO_REQUESTS = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"


def _class(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        if old is not None and not json_equal(new.get(name), old.get(name)):
            if not release.has_uniform_messages and name in ("parameters", "provisioner"):
                errors.forbidden(name, f"updates to {name} are forbidden.")
            else:
                errors.invalid(name, None if release.has_declared_rules else new.get(name), _IMMUTABLE)
    _check_provisioner(errors, "provisioner", new.get("provisioner") or "")
    _check_parameters(errors, new.get("parameters") or {})
    if new.get("reclaimPolicy") and new["reclaimPolicy"] not in _RECLAIM:
        errors.not_supported("reclaimPolicy", new["reclaimPolicy"], _RECLAIM)
    if new.get("volumeBindingMode") not in _BINDING:
        errors.not_supported("volumeBindingMode", new.get("volumeBindingMode") or "", _BINDING)
    _check_topologies(errors, new.get("allowedTopologies") or [])


def _check_provisioner(errors: ErrorList, path: str, name: str) -> None:
    if name:
        add_invalid(errors, path, name.lower(), label_key(name.lower()))
    else:
        errors.required(path)


def _check_parameters(errors: ErrorList, parameters: Plain) -> None:
    if len(parameters) > _MAX_PARAMETERS:
        errors.too_long("parameters", _MAX_PARAMETERS)
        return
    if "" in parameters:
        errors.invalid("parameters", "", "field can not be empty.")
    _check_size(errors, "parameters", parameters)


def _check_size(errors: ErrorList, path: str, texts: Plain) -> None:
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in texts.items()) > _MAX_BYTES:
        errors.too_long(path, _MAX_BYTES)


def _check_topologies(errors: ErrorList, terms: list[Plain]) -> None:
    seen: set[frozenset[Any]] = {frozenset()} if terms else set()  # as in upstream, an empty term counts as a duplicate
    for index, term in enumerate(terms):
        path, found = f"allowedTopologies[{index}].matchLabelExpressions", dict[str, frozenset[str]]()
        for number, each in enumerate(term.get("matchLabelExpressions") or ()):
            here, key, values = f"{path}[{number}]", each.get("key") or "", each.get("values") or []
            if not values:
                errors.required(f"{here}.values")
            before: set[str] = set()
            for at, value in enumerate(values):
                if value in before:
                    errors.duplicate(f"{here}.values[{at}]", value)
                before.add(value)
            label_name(errors, f"{here}.key", key)
            if key in found:
                errors.duplicate(f"{here}.key", key)
            found[key] = frozenset(values)
        if frozenset(found.items()) in seen:
            errors.duplicate(path, "")
        seen.add(frozenset(found.items()))


def _attributes_class(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    for name in ("driverName", "parameters") if old is not None else ():
        if not json_equal(new.get(name), (old or {}).get(name)):
            errors.forbidden(name, f"updates to {name} are forbidden.")
    _check_provisioner(errors, "driverName", new.get("driverName") or "")
    _check_parameters(errors, new.get("parameters") or {})
    if not new.get("parameters"):
        errors.required("parameters", "must contain at least one key/value pair")


def _driver(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    spec, path = new["spec"], "spec"
    if spec.get("fsGroupPolicy") not in _GROUP_POLICIES:
        errors.not_supported(f"{path}.fsGroupPolicy", spec.get("fsGroupPolicy") or "", _GROUP_POLICIES)
    seen: set[str] = set()
    for index, each in enumerate(spec.get("tokenRequests") or ()):
        here, audience, seconds = (
            f"{path}.tokenRequests[{index}]",
            each.get("audience") or "",
            each.get("expirationSeconds"),
        )
        if audience in seen:
            errors.duplicate(f"{here}.audience", audience)
            continue
        seen.add(audience)
        if seconds is not None and seconds < _MIN_TOKEN:
            errors.invalid(f"{here}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        if seconds is not None and seconds > _MAX_TOKEN:
            errors.invalid(f"{here}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in _LIFECYCLES:
            errors.not_supported(f"{path}.volumeLifecycleModes", mode, _LIFECYCLES)
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < _MAX__PERIOD_LENGTH:
        why = f"must be greater than or equal to {_MAX__PERIOD_LENGTH} seconds"
        errors.invalid(f"{path}.nodeAllocatableUpdatePeriodSeconds", period, why)
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        errors.invalid(f"{path}.serviceAccountTokenInSecrets", in_secrets, _NO_REQUESTS)
    for name, shown in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")):
        if old is not None and not json_equal(spec.get(name), old["spec"].get(name)):
            errors.invalid(f"{path}.{shown}", spec.get(name), _IMMUTABLE)


def with_driver_generation(new: Plain, old: Plain | None) -> Plain:
    """Return a CSIDriver whose generation counts the changes since it was created."""
    before = (old or {}).get("metadata", {}).get("generation", 0)
    generation = before + (old is not None and not json_equal(new["spec"], old["spec"]))
    return {**new, "metadata": {**new["metadata"], "generation": generation}} if generation else new


def _node(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    names: set[str] = set()
    for index, driver in enumerate(new["spec"].get("drivers") or ()):
        path, name, node = f"spec.drivers[{index}]", driver.get("name") or "", driver.get("nodeID") or ""
        driver_name(errors, f"{path}.name", name)
        if not node:
            errors.required(f"{path}.nodeID")
        if len(node.encode()) > _MAX_NODE_ID_LENGTH:
            errors.invalid(f"{path}.nodeID", node, f"must be {_MAX_NODE_ID_LENGTH} characters or less")
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            errors.invalid(f"{path}.allocatable.count", count, "must be greater than or equal to 0")
        if name in names:
            errors.duplicate(f"{path}.name", name)
        names.add(name)
        keys: set[str] = set()
        for key in driver.get("topologyKeys") or ():
            if not key:
                errors.required(path)
            if key in keys:
                errors.duplicate(path, key)
            keys.add(key)
            add_invalid(errors, path, key, label_key(key))
    _check_known_drivers(errors, new["spec"], (old or {}).get("spec") or {}, release)


def _check_known_drivers(errors: ErrorList, spec: Plain, before: Plain, release: Release) -> None:
    """Check that only the allocatable count of an existing driver changes."""
    known = {each.get("name"): each for each in before.get("drivers") or ()}
    for driver in spec.get("drivers") or ():
        now, was = ({**(each or {}), "allocatable": None} for each in (driver, known.get(driver.get("name"))))
        if driver.get("name") in known and not json_equal(now, was):
            errors.invalid("spec.drivers", internal_form("storage.CSINodeDriver", now, release), _IMMUTABLE)


def _capacity(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    check_selector(errors, "nodeTopology", new.get("nodeTopology"))
    name = new.get("storageClassName") or ""
    add_invalid(errors, "storageClassName", name, dns_subdomain(name))
    not_below_zero(errors, "capacity", new.get("capacity"))
    for member in ("nodeTopology", "storageClassName"):
        if old is not None and not json_equal(new.get(member), old.get(member)):
            errors.invalid(member, published(new.get(member)), _IMMUTABLE)


def _attachment(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    spec, source, path = new["spec"], new["spec"].get("source") or {}, "spec.source"
    _check_attacher(errors, spec.get("attacher") or "", is_declared=old is None and release.has_declared_rules)
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and name is None:
        errors.required(path, _ONE_SOURCE)
    elif inline is not None and name is not None:
        errors.forbidden(path, _ONE_SOURCE)
    elif inline is not None:
        check_volume_spec(errors, inline, f"{path}.inlineVolumeSpec", "", is_inline=True)
    elif not name:
        errors.required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName")
    add_invalid(errors, "spec.nodeName", spec.get("nodeName") or "", dns_subdomain(spec.get("nodeName") or ""))
    _check_attached(errors, new.get("status") or {}, release)
    if name is not None:
        add_invalid(errors, f"{path}.persistentVolumeName", name, dns_subdomain(name))
    if old is not None and not json_equal(spec, old["spec"]):
        shown: Any = (
            None if release.has_declared_rules else internal_form("storage.VolumeAttachmentSpec", spec, release)
        )
        errors.invalid("spec", shown, _IMMUTABLE)


def _check_attacher(errors: ErrorList, name: str, *, is_declared: bool) -> None:
    if not is_declared or not name:
        driver_name(errors, "spec.attacher", name)
        return
    add_invalid(errors, "spec.attacher", name, dns_subdomain_in_any_case(name))
    if len(name) > MAX_DRIVER_NAME:
        errors.too_long("spec.attacher", MAX_DRIVER_NAME, "characters")


def _check_attached(errors: ErrorList, status: Plain, release: Release) -> None:
    _check_size(errors, "status.attachmentMetadata", status.get("attachmentMetadata") or {})
    for member in ("attachError", "detachError"):
        error = status.get(member) or {}
        if len((error.get("message") or "").encode()) > _MAX_MESSAGE_LENGTH:
            most = _MAX_MESSAGE_LENGTH if release.has_declared_rules else _MAX_BYTES  # a mistake of older rules
            errors.too_long(f"status.{member}.message", most)
        if (error.get("errorCode") or 0) < 0:
            errors.invalid(
                f"status.{member}.errorCode", error["errorCode"], f"must be between 0 and {2**31 - 1}, inclusive"
            )


def checks(release: Release) -> Mapping[str, Check]:
    """Return the rules by kind, as a release has them."""
    return {
        "CSIDriver": _driver,
        "CSINode": partial(_node, release=release),
        "CSIStorageCapacity": _capacity,
        "StorageClass": partial(_class, release=release),
        "VolumeAttachment": partial(_attachment, release=release),
        "VolumeAttributesClass": _attributes_class,
    }
