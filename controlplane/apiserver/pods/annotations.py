"""Annotations of pods with a meaning for Kubernetes.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidatePodSpecificAnnotations and its updates).
"""

import re

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.containers import containers_of
from controlplane.apiserver.rules.paths import check_relative_path
from resourceapi.objects import ErrorList, quoted_text

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a pod that mirrors a static pod."""
_COST = "controller.kubernetes.io/pod-deletion-cost"
ARMOR = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP, SECCOMP_OF = "seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP_PROFILES = ("runtime/default", "docker/default", "unconfined")
_ARMOR_PROFILES = ("", "runtime/default", "unconfined")
_LOCAL = "localhost/"
_IS_COST = re.compile(r"-?(?:0|[1-9][0-9]*)|\+0")
_COSTS = range(-(2**31), 2**31)


def check_annotations(errors: ErrorList, pod: Plain, path: str) -> None:
    """Check the annotations of a pod or a pod template."""
    annotations, spec = (pod.get("metadata") or {}).get("annotations") or {}, pod.get("spec") or {}
    mirrored, cost = annotations.get(MIRROR), annotations.get(_COST)
    if mirrored is not None and not spec.get("nodeName"):
        why = "must set spec.nodeName if mirror pod annotation is set"
        errors.invalid(f"{path}[{MIRROR}]", mirrored, why)
    if cost is not None and not (_IS_COST.fullmatch(cost) and int(cost) in _COSTS):
        errors.invalid(f"{path}[{_COST}]", cost, "must be a 32bit integer")
    for key, profile in annotations.items():
        if (key == SECCOMP or key.startswith(SECCOMP_OF)) and profile not in _SECCOMP_PROFILES:
            if profile.startswith(_LOCAL):
                check_relative_path(errors, f"{path}.{key}", profile.removeprefix(_LOCAL))
            else:
                errors.invalid(f"{path}.{key}", profile, "must be a valid seccomp profile")
    names = {each.get("name") for _, each in containers_of(spec, "")}
    for key, profile in annotations.items():
        if key.startswith(ARMOR):
            if key.removeprefix(ARMOR) not in names:
                errors.invalid(f"{path}[{key}]", key.removeprefix(ARMOR), "container not found")
            if profile not in _ARMOR_PROFILES and not profile.startswith(_LOCAL):
                errors.invalid(f"{path}[{key}]", profile, f"invalid AppArmor profile name: {quoted_text(profile)}")


def check_changed_annotations(errors: ErrorList, new: Plain, old: Plain) -> None:
    """Check that a pod keeps its mirror annotation and AppArmor annotations."""
    after, before = ((each["metadata"].get("annotations") or {}) for each in (new, old))
    for key in sorted({*before, *after}):
        what = "mirror pod annotation" if key == MIRROR else "AppArmor annotations" if key.startswith(ARMOR) else ""
        if what and after.get(key) != before.get(key):
            way = "remove or update" if key in before else "add"
            errors.forbidden(f"metadata.annotations[{key}]", f"may not {way} {what}")
