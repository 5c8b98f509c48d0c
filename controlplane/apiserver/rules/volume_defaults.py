"""The defaults of volumes.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go; kubernetes.io "Volumes", the fields' defaults.
"""

from collections.abc import Mapping
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.image_names import pull_policy

_MODE = {"defaultMode": 0o644}  # of files
_SOURCES: Mapping[str, Plain] = {
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "configMap": _MODE,
    "downwardAPI": _MODE,
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "projected": _MODE,
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "secret": _MODE,
}
_OF_POINTERS = ("azureDisk",)  # pointers in Go, so that an empty value is no missing value
_TOKEN_SECONDS = 3600


def with_field_version(holder: Any) -> Any:
    """Return an object with the default version of its reference to a pod's field."""
    if not isinstance(holder, dict) or not isinstance(holder.get("fieldRef"), dict):
        return holder
    return {**holder, "fieldRef": with_missing({"apiVersion": "v1"}, holder["fieldRef"])}


def with_missing(defaults: Plain, value: Plain) -> Plain:
    """Return a value with defaults for members that are missing or an empty text."""
    return {**value, **{name: item for name, item in defaults.items() if value.get(name) in (None, "")}}


def _with_defaults(kind: str, source: Plain) -> Plain:
    if kind not in _OF_POINTERS:
        return with_missing(_SOURCES[kind], source)
    return {**_SOURCES[kind], **{name: item for name, item in source.items() if item is not None}}


def with_volume_defaults(volume: Plain) -> Plain:
    """Return a pod's volume with its defaults. Without a source it is an emptyDir."""
    if not any(item is not None for name, item in volume.items() if name != "name"):
        return {**volume, "emptyDir": {}}
    filled = with_source_defaults(volume)
    if isinstance(source := filled.get("downwardAPI"), dict):
        filled["downwardAPI"] = _with_items(source)
    if isinstance(projected := filled.get("projected"), dict) and isinstance(projected.get("sources"), list):
        filled["projected"] = {**projected, "sources": list(map(_projection, projected["sources"]))}
    if isinstance(image := filled.get("image"), dict):
        filled["image"] = with_missing({"pullPolicy": pull_policy(str(image.get("reference") or ""))}, image)
    claim = (filled.get("ephemeral") or {}).get("volumeClaimTemplate")
    if isinstance(claim, dict) and isinstance(claim.get("spec"), dict):
        template = {**claim, "spec": with_missing({"volumeMode": "Filesystem"}, claim["spec"])}
        filled["ephemeral"] = {**filled["ephemeral"], "volumeClaimTemplate": template}
    return filled


def with_source_defaults(holder: Plain) -> Plain:
    """Return a volume, of a pod or persistent, with the defaults of its source."""
    return {
        name: _with_defaults(name, item) if name in _SOURCES and isinstance(item, dict) else item
        for name, item in holder.items()
    }


def _projection(source: Any) -> Any:
    if not isinstance(source, dict):
        return source
    filled = {**source}
    if isinstance(token := filled.get("serviceAccountToken"), dict):
        filled["serviceAccountToken"] = with_missing({"expirationSeconds": _TOKEN_SECONDS}, token)
    if isinstance(fields := filled.get("downwardAPI"), dict):
        filled["downwardAPI"] = _with_items(fields)
    return filled


def _with_items(fields: Plain) -> Plain:
    return {**fields, "items": list(map(with_field_version, fields["items"]))} if fields.get("items") else fields
