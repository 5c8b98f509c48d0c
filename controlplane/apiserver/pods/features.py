"""Fields of pods whose feature is off in a release: they are dropped silently, before an object is checked.

As on a real server, their sender still owns them (`managedFields`). Source: k8s.io/kubernetes pkg/api/pod/util.go
(DropDisabledPodFields), pkg/features/kube_features.go.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from controlplane.apiserver.kinds import Plain
from resourceapi.objects.release import Release

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_OF_CONTAINERS = {
    "lifecycle.stopSignal": None,
    "volumeMounts.bindMountOptions": None,
    "livenessProbe.grpc.tls": None,
    "readinessProbe.grpc.tls": None,
    "startupProbe.grpc.tls": None,
    "env.valueFrom.fileKeyRef": 35,
    "restartPolicyRules": 35,
}
_OF_FILES = ("secret", "configMap", "downwardAPI")
_SINCE: dict[str, int | None] = {
    **{f"{member}.{path}": since for member in _CONTAINERS for path, since in _OF_CONTAINERS.items()},
    "evictionResponders": None,
    "schedulingGroup": None,
    "volumes.emptyDir.mode": None,
    **{f"volumes.{kind}.{path}": None for kind in _OF_FILES for path in ("defaultUser", "items.user")},
    "volumes.projected.defaultUser": None,
    **{f"volumes.projected.sources.{kind}.items.user": None for kind in _OF_FILES},
    **{
        f"volumes.projected.sources.{kind}.user": None
        for kind in ("serviceAccountToken", "clusterTrustBundle", "podCertificate")
    },
    "volumes.projected.sources.clusterTrustBundle": 37,
    "volumes.projected.sources.podCertificate": 37,
    "hostnameOverride": 35,
}
"""Field -> the first minor release whose servers keep it; None if no release does yet."""
_IMAGES_SINCE = _ANY_RESTART_SINCE = 35


def without_disabled(spec: Plain, release: Release) -> Plain:
    """Return the spec of a pod or a template without the fields that a release does not have."""
    off = [path for path, since in _SINCE.items() if since is None or release.minor < since]
    for path in off:
        spec = _without(spec, path.split("."))
    if release.minor < _ANY_RESTART_SINCE:
        spec = {
            **spec,
            **{member: list(_restarted(spec[member], member)) for member in _CONTAINERS if spec.get(member)},
        }
    if release.minor < _IMAGES_SINCE and spec.get("volumes"):
        spec = _without_images(spec)
    return spec


def _without(value: Any, steps: Sequence[str]) -> Any:
    """A value without the field at a path; the same value if it does not have the field."""
    if isinstance(value, list):
        found = [_without(item, steps) for item in value]
        return found if any(new is not old for new, old in zip(found, value, strict=True)) else value
    if not isinstance(value, dict) or value.get(steps[0]) is None:
        return value
    if steps[1:]:
        below = _without(value[steps[0]], steps[1:])
        is_empty = below == {} and value[steps[0]] != {} and steps[0] == "lifecycle"
        if below is value[steps[0]]:
            return value
        return {name: item for name, item in (value | {steps[0]: below}).items() if name != steps[0] or not is_empty}
    return {name: item for name, item in value.items() if name != steps[0]}


def _restarted(containers: Sequence[Plain], member: str) -> Iterator[Plain]:
    """Containers without restart policies, except for sidecars."""
    for each in containers:
        is_kept = member == "initContainers" and each.get("restartPolicy") == "Always"
        yield each if is_kept else _without(each, ["restartPolicy"])


def _without_images(spec: Plain) -> Plain:
    """A spec without image volumes and their mounts."""
    images = {each.get("name") for each in spec["volumes"] if each.get("image") is not None}
    if not images:
        return spec
    spec = {**spec, "volumes": [each for each in spec["volumes"] if each.get("name") not in images]}
    for member in _CONTAINERS:
        if spec.get(member):
            spec[member] = [_without_mounts(each, images) for each in spec[member]]
    return {name: item for name, item in spec.items() if name != "volumes" or item}


def _without_mounts(container: Plain, names: set[Any]) -> Plain:
    mounts = [each for each in container.get("volumeMounts") or () if each.get("name") not in names]
    return {**container, "volumeMounts": mounts} if container.get("volumeMounts") else container
