"""The rules of persistent volumes, and of inline volumes in attachments.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidatePersistentVolumeSpec and its update).
"""

import copy
import posixpath
from collections.abc import Callable, Mapping
from datetime import datetime

from controlplane.apiserver.internal_types import difference, internal_form
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.paths import check_no_parent_steps
from controlplane.apiserver.rules.quantity_rules import ZERO, positive
from controlplane.apiserver.rules.resource_rules import quantity
from controlplane.apiserver.rules.volume_sources import RULES as OF_PODS
from controlplane.apiserver.rules.volume_sources import Rule
from resourceapi.objects import ErrorList, format_time, from_dict
from resourceapi.objects.core import NodeSelector
from resourceapi.objects.field_rules import add_invalid, dns_label, driver_name, node_selector
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_label as dns_label_problem
from resourceapi.objects.names import dns_subdomain
from resourceapi.objects.release import Release

_SINGLE_POD_MODE = "ReadWriteOncePod"
_ACCESS = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _SINGLE_POD_MODE]
_RECLAIM = ["Delete", "Recycle", "Retain"]
_MODES = ["Block", "Filesystem"]
_INLINE = "in the context of inline volumes"
_SHOWN, _SHOWN_INSIDE = {"cephfs": "cephFS"}, {"gcePersistentDisk": "persistentDisk"}
_OPTIONS = "volume.beta.kubernetes.io/mount-options"
_WITH_OPTIONS = (
    *("gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs", "rbd", "quobyte", "iscsi", "cinder", "cephfs"),
    *("azureFile", "vsphereVolume", "azureDisk", "photonPersistentDisk"),
)
_EXPRESSIONS = ("matchExpressions", "matchFields")
_NEWER = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
_SINCE = "lastPhaseTransitionTime"
_EXPANDING = "controllerExpandSecretRef"


def check_volume(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    """Check a PersistentVolume, whose source is immutable."""
    spec = new["spec"]
    check_volume_spec(errors, spec, "spec", new["metadata"].get("name", ""))
    is_mounted = any(spec.get(member) is not None for member in _WITH_OPTIONS)
    if _OPTIONS in (new["metadata"].get("annotations") or {}) and not is_mounted:
        errors.forbidden(f"metadata.annotations.{_OPTIONS}", "may not specify mount options for this volume type")
    if old is None:
        return
    before = old["spec"]
    one, other = (_source_of(each, before, release) for each in (before, spec))
    if not json_equal(one, other):
        why = f"spec.persistentvolumesource is immutable after creation\n{difference(one, other)}"
        errors.forbidden("spec.persistentvolumesource", why)
    if spec.get("volumeMode") != before.get("volumeMode"):
        errors.invalid("volumeMode", spec.get("volumeMode"), "field is immutable")
    affinity = spec.get("nodeAffinity")
    if before.get("nodeAffinity") is not None and not json_equal(_renamed(affinity, before["nodeAffinity"]), affinity):
        shown = None if affinity is None else internal_form("core.VolumeNodeAffinity", affinity)
        errors.invalid("nodeAffinity", shown, "field is immutable, except for updating from beta label to GA")
    if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        errors.forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden")


def _renamed(affinity: Plain | None, before: Plain) -> Plain:
    """The old node affinity, with the new names of renamed labels if the new affinity uses them."""
    now = [each.get("key") or "" for each in _requirements(affinity or {})]
    renamed = copy.deepcopy(before)
    for index, each in enumerate(_requirements(renamed)[: len(now)]):
        if each.get("key") != now[index] and _NEWER.get(each.get("key") or "", "") == now[index]:
            each["key"] = now[index]
    return renamed


def _requirements(affinity: Plain) -> list[Plain]:
    terms = (affinity.get("required") or {}).get("nodeSelectorTerms") or ()
    return [each for term in terms for name in _EXPRESSIONS for each in term.get(name) or ()]


def accept_any_status(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Accept any status of a PersistentVolume."""
    del errors, new, old


def with_phase_time(new: Plain, old: Plain | None, clock: Callable[[], datetime]) -> Plain:
    """Return a PersistentVolume with the time since it has its phase, unless the client set that."""
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    since, was = status.get(_SINCE), before.get(_SINCE)
    if old is not None and status.get("phase") == before.get("phase"):
        since = since or was
    elif since in (None, was):
        since = format_time(clock())
    return {**new, "status": {**status, _SINCE: since}} if since else new


def _source_of(spec: Plain, known: Plain, release: Release) -> Plain:
    """The source as Go prints it, without a secret for expansion that the old source lacks, which can be added."""
    source = spec.get("csi")
    if source is not None and known.get("csi") is not None and _EXPANDING not in known["csi"]:
        spec = {**spec, "csi": {name: item for name, item in source.items() if name != _EXPANDING}}
    return internal_form("core.PersistentVolumeSource", spec, release)


def check_volume_spec(errors: ErrorList, spec: Plain, path: str, name: str, *, is_inline: bool = False) -> None:
    """Check the spec of a persistent volume; `is_inline`: it is part of an attachment."""
    if is_inline:
        for member in ("claimRef", "capacity"):
            if spec.get(member):
                errors.forbidden(f"{path}.{member}", f"may not be specified {_INLINE}")
        if spec.get("csi") is None:
            errors.required(f"{path}.csi", f"has to be specified {_INLINE}")
    _check_access(errors, spec.get("accessModes") or [], f"{path}.accessModes")
    if not is_inline:
        _check_capacity(errors, spec.get("capacity"), f"{path}.capacity")
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy and is_inline and policy != "Retain":
        errors.forbidden(f"{path}.persistentVolumeReclaimPolicy", f"may only be Retain {_INLINE}")
    elif policy and not is_inline and policy not in _RECLAIM:
        errors.not_supported(f"{path}.persistentVolumeReclaimPolicy", policy, _RECLAIM)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        _check_nodes(errors, affinity, f"{path}.nodeAffinity", is_inline=is_inline)
    _check_source(errors, spec, path, name, is_placed=affinity is not None and not is_inline)
    where = (spec.get("hostPath") or {}).get("path") or ""
    if spec.get("hostPath") is not None and policy == "Recycle" and posixpath.normpath(where or ".") in ("/", "//"):
        why = "may not be 'recycle' for a hostPath mount of '/'"
        errors.forbidden(f"{path}.persistentVolumeReclaimPolicy", why)
    _check_classes(errors, spec, path, is_inline=is_inline)


def _check_access(errors: ErrorList, modes: list[str], path: str) -> None:
    if not modes:
        errors.required(path)
    for mode in modes:
        if mode not in _ACCESS:
            errors.not_supported(path, mode, _ACCESS)
    if _SINGLE_POD_MODE in modes and {*modes} & {*_ACCESS} != {_SINGLE_POD_MODE}:
        errors.forbidden(path, f"may not use {_SINGLE_POD_MODE} with other access modes")


def _check_capacity(errors: ErrorList, capacity: Plain | None, path: str) -> None:
    if not capacity:
        errors.required(path)
    if (capacity or {}).keys() != {"storage"}:
        errors.not_supported(path, capacity and dict(sorted(capacity.items())), ["storage"])
    for name, amount in (capacity or {}).items():
        if quantity(amount) < ZERO:
            errors.invalid(f"{path}[{name}]", int(quantity(amount).value()), "must be a valid resource quantity")
        positive(errors, f"{path}[{name}]", amount)


def _check_nodes(errors: ErrorList, affinity: Plain, path: str, *, is_inline: bool) -> None:
    required = affinity.get("required")
    if is_inline:
        errors.forbidden(path, f"may not be specified {_INLINE}")
    elif required is None:
        errors.required(f"{path}.required", "must specify required node constraints")
    else:
        node_selector(errors, f"{path}.required", from_dict(NodeSelector, required))


def _check_source(errors: ErrorList, spec: Plain, path: str, name: str, *, is_placed: bool) -> None:
    sources = [member for member in _RULES if spec.get(member) is not None]
    for index, member in enumerate(sources):
        if index and member != "flexVolume":
            errors.forbidden(f"{path}.{_SHOWN.get(member, member)}", "may not specify more than 1 volume type")
            continue
        _RULES[member](errors, spec[member], f"{path}.{_SHOWN_INSIDE.get(member, member)}")
        if member == "local" and not is_placed:
            errors.required(f"{path}.nodeAffinity", "Local volume requires node affinity")
        portal = spec[member].get("targetPortal") or ""
        if member == "iscsi" and spec[member].get("initiatorName") is not None and len(f"{name}:{portal}") > 64:
            why = (
                "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName"
            )
            errors.invalid(f"{path}.iscsi.targetportal", portal, f"{why} is specified.")
    if not sources:
        errors.required(path, "must specify a volume type")


def _check_classes(errors: ErrorList, spec: Plain, path: str, *, is_inline: bool) -> None:
    name, mode = spec.get("storageClassName"), spec.get("volumeMode")
    if name and is_inline:
        errors.forbidden(f"{path}.storageClassName", f"may not be specified {_INLINE}")
    elif name:
        add_invalid(errors, f"{path}.storageClassName", name, dns_subdomain(name))
    if mode is not None and is_inline and mode != "Filesystem":
        errors.forbidden(f"{path}.volumeMode", f"may not specify volumeMode other than Filesystem {_INLINE}")
    elif mode is not None and not is_inline and mode not in _MODES:
        errors.not_supported(f"{path}.volumeMode", mode, _MODES)
    name = spec.get("volumeAttributesClassName")
    if name is None or is_inline:
        return
    if name:
        add_invalid(errors, f"{path}.volumeAttributesClassName", name, dns_subdomain(name))
    else:
        errors.required(f"{path}.volumeAttributesClassName", "an empty string is disallowed")
    if spec.get("csi") is None:
        errors.required(f"{path}.csi", "has to be specified when using volumeAttributesClassName")


def _secret(errors: ErrorList, secret: Plain, path: str) -> None:
    for member, rule in (("name", dns_subdomain), ("namespace", dns_label_problem)):
        if secret.get(member):
            add_invalid(errors, f"{path}.{member}", secret[member], rule(secret[member]))
        else:
            errors.required(f"{path}.{member}")


def _csi(errors: ErrorList, source: Plain, path: str) -> None:
    driver_name(errors, f"{path}.driver", source.get("driver") or "")
    if not source.get("volumeHandle"):
        errors.required(f"{path}.volumeHandle")
    for member in ("controllerPublishSecretRef", _EXPANDING, "nodePublishSecretRef", "nodeExpandSecretRef"):
        if source.get(member) is not None:
            _secret(errors, source[member], f"{path}.{member}")


def _local(errors: ErrorList, source: Plain, path: str) -> None:
    if not source.get("path"):
        errors.required(f"{path}.path")
    else:
        check_no_parent_steps(errors, f"{path}.path", source["path"])


def _with_secret(errors: ErrorList, source: Plain, path: str) -> None:
    """Check a source whose secret, if it has one, needs a name and a namespace."""
    for member in ("name", "namespace") if source.get("secretRef") is not None else ():
        if not source["secretRef"].get(member):
            errors.required(f"{path}.secretRef.{member}")


def _cinder(errors: ErrorList, source: Plain, path: str) -> None:
    if not source.get("volumeID"):
        errors.required(f"{path}.volumeID")
    _with_secret(errors, source, path)


def _storage_os(errors: ErrorList, source: Plain, path: str) -> None:
    OF_PODS["storageos"](errors, {**source, "secretRef": None}, path)
    _with_secret(errors, source, path)


def _azure_file(errors: ErrorList, source: Plain, path: str) -> None:
    OF_PODS["azureFile"](errors, source, path)
    if source.get("secretNamespace") == "":
        errors.required(f"{path}.secretNamespace")


def _glusterfs(errors: ErrorList, source: Plain, path: str) -> None:
    OF_PODS["glusterfs"](errors, source, path)
    space = source.get("endpointsNamespace")
    if space == "":
        why = "if the endpointnamespace is set, it must be a valid namespace name"
        errors.invalid(f"{path}.endpointsNamespace", space, why)
    elif space is not None:
        dns_label(errors, f"{path}.endpointsNamespace", space)


_RULES: Mapping[str, Rule] = {
    "hostPath": OF_PODS["hostPath"],
    "gcePersistentDisk": OF_PODS["gcePersistentDisk"],
    "awsElasticBlockStore": OF_PODS["awsElasticBlockStore"],
    "glusterfs": _glusterfs,
    "flocker": OF_PODS["flocker"],
    "nfs": OF_PODS["nfs"],
    "rbd": OF_PODS["rbd"],
    "quobyte": OF_PODS["quobyte"],
    "cephfs": OF_PODS["cephfs"],
    "iscsi": OF_PODS["iscsi"],
    "cinder": _cinder,
    "fc": OF_PODS["fc"],
    "flexVolume": OF_PODS["flexVolume"],
    "azureFile": _azure_file,
    "vsphereVolume": OF_PODS["vsphereVolume"],
    "photonPersistentDisk": OF_PODS["photonPersistentDisk"],
    "portworxVolume": OF_PODS["portworxVolume"],
    "azureDisk": OF_PODS["azureDisk"],
    "scaleIO": OF_PODS["scaleIO"],
    "local": _local,
    "storageos": _storage_os,
    "csi": _csi,
}
"""Member -> rules of its source, in the order in which they are checked."""
