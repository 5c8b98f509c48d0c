"""Warnings for services, ingresses and storage.

Source: k8s.io/kubernetes pkg/api/service/warnings.go, pkg/api/persistentvolume/util.go, persistentvolumeclaim/util.go
and the strategy of pkg/registry/networking/ingress. There are no warnings for old notations of addresses.
"""

from collections.abc import Mapping
from functools import partial

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods import warnings as pod_warnings
from controlplane.apiserver.unstructured_rules import Warn
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.release import Release

_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_INGRESS_CLASS = "kubernetes.io/ingress.class"
_STORAGE_CLASS, _MOUNT_OPTIONS = "volume.beta.kubernetes.io/storage-class", "volume.beta.kubernetes.io/mount-options"
_NO_SECRETS = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible"
    " logging of tokens in volume attributes"
)
_RECYCLED = (
    "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is"
    " to use dynamic provisioning."
)


def _annotations(obj: Plain) -> Plain:
    found: Plain = obj["metadata"].get("annotations") or {}
    return found


def _service(new: Plain, old: Plain | None, *, release: Release) -> list[str]:
    del old
    spec, found = new["spec"], []
    kind, is_headless = spec.get("type"), spec.get("type") == "ClusterIP" and spec.get("clusterIP") == "None"
    addresses = bool(spec.get("externalIPs"))
    if _HINTS in _annotations(new):
        found.append(f"annotation {_HINTS} is deprecated, please use {_MODE} instead")
    if is_headless:
        ignored = {
            "loadBalancerIP": bool(spec.get("loadBalancerIP")),
            "externalIPs": addresses,
            "SessionAffinity": spec.get("sessionAffinity") != "None",
        }
        found += [f"spec.{name} is ignored for headless services" for name, is_there in ignored.items() if is_there]
    elif addresses and kind != "ExternalName" and release.warns_of_external_addresses:
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if addresses and kind == "ExternalName":
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if spec.get("externalName") and kind != "ExternalName":
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose" and release.warns_of_close_traffic:
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


def _ingress(new: Plain, old: Plain | None) -> list[str]:
    if old is not None or _INGRESS_CLASS not in _annotations(new) or new["spec"].get("ingressClassName") is not None:
        return []
    return [f"annotation \"{_INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"]


def _claim(new: Plain, old: Plain | None) -> list[str]:
    del old
    found = []
    if _STORAGE_CLASS in _annotations(new):
        why = 'deprecated since v1.8; use "storageClassName" attribute instead'
        found.append(f"metadata.annotations[{_STORAGE_CLASS}]: {why}")
    return found + list(pod_warnings.claim_warnings(new["spec"], "spec"))


def _volume(new: Plain, old: Plain | None) -> list[str]:
    del old
    spec, annotations = new["spec"], _annotations(new)
    old_ones = {
        _STORAGE_CLASS: 'deprecated since v1.8; use "storageClassName" attribute instead',
        _MOUNT_OPTIONS: 'deprecated since v1.31; use "mountOptions" attribute instead',
    }
    found = [f"metadata.annotations[{key}]: {text}" for key, text in old_ones.items() if key in annotations]
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        found.append(_RECYCLED)
    return found + pod_warnings.source_warnings(spec, "spec")


def _driver(new: Plain, old: Plain | None) -> list[str]:
    tokens = new["spec"].get("tokenRequests")
    is_as_it_was = old is not None and json_equal(tokens, old["spec"].get("tokenRequests"))
    return [_NO_SECRETS] if tokens and not is_as_it_was and "serviceAccountTokenInSecrets" not in new["spec"] else []


def warning_functions(release: Release) -> Mapping[str, Warn]:
    """Return the warnings by kind, as a release has them."""
    of_drivers: Mapping[str, Warn] = {"CSIDriver": _driver} if release.warns_of_tokens else {}
    return {
        **pod_warnings.WARNS,
        **of_drivers,
        "Ingress": _ingress,
        "PersistentVolume": _volume,
        "PersistentVolumeClaim": _claim,
        "Service": partial(_service, release=release),
    }
