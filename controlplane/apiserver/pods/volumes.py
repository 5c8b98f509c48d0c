"""The volumes of a pod, each with its own name and one source, and their mounts in containers.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidateVolumes, ValidateVolumeMounts,
ValidateVolumeDevices).
"""

from collections.abc import Mapping, Sequence

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.paths import check_relative_path
from controlplane.apiserver.rules.volume_sources import RULES
from resourceapi.objects import ErrorList, quoted_text
from resourceapi.objects.field_rules import add_invalid, dns_label
from resourceapi.objects.names import dns_subdomain

Volumes = Mapping[str, Plain]
"""The valid volumes by name."""
_SHOWN = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}  # in errors about a second source
_SHOWN_INSIDE = {"gcePersistentDisk": "persistentDisk"}
_MAX_INITIATOR_LENGTH = 64
_PROPAGATIONS = ["Bidirectional", "HostToContainer", "None"]
_RECURSIVE = ["Disabled", "Enabled", "IfPossible"]
_OPTIONS = ["nodev", "noexec", "nosuid"]
_CLAIMED = ("persistentVolumeClaim", "ephemeral")


def check_volumes(errors: ErrorList, volumes: Sequence[Plain], path: str, pod: str = "") -> Volumes:
    """Check the volumes; return those to which containers can refer. `pod` is the name of the pod, if there is one."""
    right: dict[str, Plain] = {}
    made = {f"{pod}-{each.get('name') or ''}" for each in volumes if pod and each.get("ephemeral") is not None}
    for index, volume in enumerate(volumes):
        here, name, found = f"{path}[{index}]", volume.get("name") or "", ErrorList()
        _check_source(found, volume, here, pod)
        if not name:
            found.required(f"{here}.name")
        else:
            dns_label(found, f"{here}.name", name)
        if name in right:
            found.duplicate(f"{here}.name", name)
        if not found:
            right[name] = volume
        errors.extend(found)
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        if claim in made:
            why = "must not reference a PVC that gets created for an ephemeral volume"
            errors.invalid(f"{here}.persistentVolumeClaim.claimName", claim, why)
    return right


def _check_source(errors: ErrorList, volume: Plain, path: str, pod: str) -> None:
    name = volume.get("name") or ""
    sources = [member for member in RULES if volume.get(member) is not None]
    for index, member in enumerate(sources):
        source = volume[member]
        if index:
            errors.forbidden(f"{path}.{_SHOWN.get(member, member)}", "may not specify more than 1 volume type")
        else:
            RULES[member](errors, source, f"{path}.{_SHOWN_INSIDE.get(member, member)}")
        if member == "iscsi" and source.get("initiatorName") is not None:
            _check_length(errors, name, source.get("targetPortal") or "", f"{path}.name")
        if member == "ephemeral" and not index and pod and name:
            claim = f"{pod}-{name}"
            problems = (f"PVC name {quoted_text(claim)}: {text}" for text in dns_subdomain(claim))
            add_invalid(errors, f"{path}.name", name, problems)
    if not sources:
        errors.required(path, "must specify a volume type")


def _check_length(errors: ErrorList, name: str, portal: str, path: str) -> None:
    if len(f"{name}:{portal}") > _MAX_INITIATOR_LENGTH:
        why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is"
        errors.invalid(path, name, f"{why} specified.")


def check_mounts(errors: ErrorList, container: Plain, path: str, volumes: Volumes) -> None:
    """Check a container's mounts of volumes, as file systems or as block devices."""
    mounts, devices = container.get("volumeMounts") or (), container.get("volumeDevices") or ()
    is_privileged = bool((container.get("securityContext") or {}).get("privileged"))
    _check_mounts(errors, mounts, devices, f"{path}.volumeMounts", volumes, is_privileged=is_privileged)
    _check_devices(errors, mounts, devices, f"{path}.volumeDevices", volumes)


def _check_mounts(
    errors: ErrorList,
    mounts: Sequence[Plain],
    devices: Sequence[Plain],
    path: str,
    volumes: Volumes,
    *,
    is_privileged: bool,
) -> None:
    seen: set[str] = set()
    taken = {each.get("name") or "": each.get("devicePath") or "" for each in devices}
    for index, mount in enumerate(mounts):
        here, name, where = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.required(f"{here}.name")
        if name not in volumes:
            errors.not_found(f"{here}.name", name)
        if not where:
            errors.required(f"{here}.mountPath")
        if where in seen:
            errors.invalid(f"{here}.mountPath", where, "must be unique")
        seen.add(where)
        if name in taken:
            errors.invalid(f"{here}.name", name, "must not already exist in volumeDevices")
        if where in taken.values():
            errors.invalid(f"{here}.mountPath", where, "must not already exist as a path in volumeDevices")
        _check_sub_path(errors, mount, here, path)
        _check_propagation(errors, mount, path, is_privileged=is_privileged)
        _check_options(errors, mount.get("bindMountOptions") or [], f"{here}.bindMountOptions", volumes.get(name))


def _check_sub_path(errors: ErrorList, mount: Plain, path: str, mounts: str) -> None:
    """Check the sub-path of a mount. As in upstream, some errors name only the list of mounts."""
    part, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    if part:
        check_relative_path(errors, f"{mounts}.subPath", part)
    if expression:
        if part:
            errors.invalid(f"{path}.subPathExpr", expression, "subPathExpr and subPath are mutually exclusive")
        check_relative_path(errors, f"{mounts}.subPathExpr", expression)


def _check_propagation(errors: ErrorList, mount: Plain, path: str, *, is_privileged: bool) -> None:
    """Check mount propagation and recursive read-only mounts. Some errors name only the list of mounts."""
    way, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if way is not None and way not in _PROPAGATIONS:
        errors.not_supported(f"{path}.mountPropagation", way, _PROPAGATIONS)
    if way == "Bidirectional" and not is_privileged:
        why = "Bidirectional mount propagation is available only to privileged containers"
        errors.forbidden(f"{path}.mountPropagation", why)
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            errors.forbidden(f"{path}.recursiveReadOnly", "may only be specified when readOnly is true")
        if way not in (None, "None"):
            why = "may only be specified when mountPropagation is None or not specified"
            errors.forbidden(f"{path}.recursiveReadOnly", why)
    elif recursive not in (None, "Disabled"):
        errors.not_supported(f"{path}.recursiveReadOnly", recursive, _RECURSIVE)


def _check_options(errors: ErrorList, options: list[str], path: str, volume: Plain | None) -> None:
    seen: set[str] = set()
    for index, option in enumerate(options):
        if option not in _OPTIONS:
            errors.not_supported(f"{path}[{index}]", option, _OPTIONS)
        if option in seen:
            errors.duplicate(f"{path}[{index}]", option)
        seen.add(option)
    if options and (volume or {}).get("image") is not None:
        errors.invalid(path, options, "bindMountOptions may not be used with image volumes")


def _check_devices(
    errors: ErrorList, mounts: Sequence[Plain], devices: Sequence[Plain], path: str, volumes: Volumes
) -> None:
    names: set[str] = set()
    paths: set[str] = set()
    taken = {each.get("name") or "": each.get("mountPath") or "" for each in mounts}
    for index, device in enumerate(devices):
        here, name, where = f"{path}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        volume = volumes.get(name)
        if not name:
            errors.required(f"{here}.name")
        if name in names:
            errors.invalid(f"{here}.name", name, "must be unique")
        if volume is None:
            errors.not_found(f"{here}.name", name)
        elif all(volume.get(member) is None for member in _CLAIMED):
            why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errors.invalid(f"{here}.name", name, why)
        if not where:
            errors.required(f"{here}.devicePath")
        if where in paths:
            errors.invalid(f"{here}.devicePath", where, "must be unique")
        if ".." in where.split("/"):
            errors.invalid(f"{here}.devicePath", where, "can not contain backsteps ('..')")
        else:
            paths.add(where)
        if name in taken:
            errors.invalid(f"{here}.name", name, "must not already exist in volumeMounts")
        if where in taken.values():
            errors.invalid(f"{here}.devicePath", where, "must not already exist as a path in volumeMounts")
        if name:
            names.add(name)
