"""AppArmor and seccomp profiles, which were once set by annotations: AppArmor's fields are filled from these.

Source: k8s.io/kubernetes pkg/registry/core/pod/strategy.go (applyAppArmorVersionSkew), pkg/apis/core/validation/
validation.go (validateSeccompAnnotationsAndFields, validateAppArmorAnnotationsAndFieldsMatchOnCreate).
"""

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.annotations import ARMOR, SECCOMP, SECCOMP_OF
from controlplane.apiserver.pods.containers import containers_of
from controlplane.apiserver.pods.security_contexts import check_armor
from resourceapi.objects import ErrorList

_LOCAL = "localhost/"
_ARMORS = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}
_SECCOMPS = _ARMORS | {"docker/default": "RuntimeDefault"}
_TYPES = ("Unconfined", "RuntimeDefault", "Localhost")
_OLD = 'deprecated since v1.30; use the "appArmorProfile" field instead'


def with_armor(pod: Plain) -> tuple[Plain, list[str]]:
    """Return a new pod with the AppArmor profiles of its annotations, and the warnings about these."""
    spec, warnings = pod["spec"], []
    changed = {**spec}
    for member in ("initContainers", "containers", "ephemeralContainers"):
        for index, each in enumerate(spec.get(member) or ()):
            key, profile = _named(pod, each)
            if profile is None or _is_windows(spec) or _of(each, "appArmorProfile"):
                continue
            is_other = bool(profile) and profile != _of(spec, "appArmorProfile")
            if is_other:
                if changed.get(member) is spec[member]:
                    changed[member] = [*spec[member]]
                context = {**(each.get("securityContext") or {}), "appArmorProfile": profile}
                changed[member][index] = {**each, "securityContext": context}
            if is_other or not profile:
                warnings.append(f"metadata.annotations[{key}]: {_OLD}")
    return {**pod, "spec": changed}, warnings


def armor_warning(template: Plain, container: Plain) -> str:
    """Return the warning about the AppArmor annotation of a template's container; empty if there is none."""
    key, profile = _named(template, container)
    is_same = bool(profile) and profile == _of(template.get("spec") or {}, "appArmorProfile")
    if profile is None or is_same or _of(container, "appArmorProfile"):
        return ""
    return f"metadata.annotations[{key}]: {_OLD}"


def check_profiles(errors: ErrorList, pod: Plain) -> None:
    """Check that annotations and fields of a new pod have the same profiles."""
    spec, annotations = pod.get("spec") or {}, pod["metadata"].get("annotations") or {}
    of_pod = _of(spec, "seccompProfile")
    _check_same(errors, annotations.get(SECCOMP), of_pod, "spec.securityContext.seccompProfile", _SECCOMPS)
    for path, each in containers_of(spec, "spec"):
        here, known = f"{path}.securityContext.seccompProfile", annotations.get(f"{SECCOMP_OF}{each.get('name')}")
        _check_same(errors, known, _of(each, "seccompProfile"), here, _SECCOMPS)
    for path, each in () if _is_windows(spec) else containers_of(spec, "spec"):
        here, known = f"{path}.securityContext.appArmorProfile", annotations.get(f"{ARMOR}{each.get('name')}")
        profile = _of(each, "appArmorProfile") or _of(spec, "appArmorProfile")
        _check_same(errors, known, profile, here, _ARMORS)


def _check_same(errors: ErrorList, annotation: str | None, profile: Plain, path: str, known: dict[str, str]) -> None:
    kind, what = profile.get("type"), "apparmor" if known is _ARMORS else "seccomp"
    if annotation is None or kind not in _TYPES:
        return
    is_local = annotation.startswith(_LOCAL)
    if kind != ("Localhost" if is_local else known.get(annotation)):
        errors.forbidden(f"{path}.type", f"{what} type in annotation and field must match")
    elif is_local and annotation.removeprefix(_LOCAL) != profile.get("localhostProfile"):
        errors.forbidden(f"{path}.localhostProfile", f"{what} profile in annotation and field must match")


def _named(pod: Plain, container: Plain) -> tuple[str, Plain | None]:
    """A container's annotation and its profile: None without an annotation, empty if it is not a profile."""
    key = f"{ARMOR}{container.get('name')}"
    annotation = ((pod.get("metadata") or {}).get("annotations") or {}).get(key)
    if annotation is None:
        return key, None
    profile: Plain = {"type": _ARMORS[annotation]} if annotation in _ARMORS else {}
    if annotation.startswith(_LOCAL):
        profile = {"type": "Localhost", "localhostProfile": annotation.removeprefix(_LOCAL)}
        errors = ErrorList()
        check_armor(errors, profile, "")
        profile = {} if errors else profile
    return key, profile


def _of(holder: Plain, name: str) -> Plain:
    """The profile in the security context of a pod's spec or of a container."""
    return (holder.get("securityContext") or {}).get(name) or {}


def _is_windows(spec: Plain) -> bool:
    return bool((spec.get("os") or {}).get("name") == "windows")
