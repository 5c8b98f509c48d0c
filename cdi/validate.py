"""What makes a spec invalid, in the words of CDI's own library if it has any.

`validate` has the rules of every runtime; `policy_problems` has what nodeplug never writes although CDI allows it.
"""

import re
from collections.abc import Iterator, Mapping

from cdi.names import device_problem, kind_problem
from cdi.spec import NO_EDITS, VERSIONS, ContainerEdits, IntelRdt, NetDevice, Spec, required_version

_HOOKS = frozenset({"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"})
_MAX_ANNOTATIONS = 256 * 1024  # bytes of keys and values, Kubernetes' limit
_MAX_CLOS_ID = 4096
_ANNOTATION_NAME = re.compile(r"[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def validate(spec: Spec) -> list[str]:
    """Return everything for which a runtime would refuse the file, in the order of the file; empty for a valid one."""
    return list(_problems(spec))


def policy_problems(spec: Spec) -> list[str]:
    """Return what nodeplug never writes: hooks (they run as root on the host), paths that are not absolute, `none`."""
    return [problem for _, edits in _all_edits(spec) for problem in _policy_edit_problems(edits)]


def _problems(spec: Spec) -> Iterator[str]:
    declared = spec.cdi_version.removeprefix("v")
    required = required_version(spec)
    if declared not in VERSIONS:
        yield f'invalid version "{spec.cdi_version}"'
    elif VERSIONS.index(declared) < VERSIONS.index(required):
        yield f"the spec version must be at least v{required}"
    if problem := kind_problem(spec.kind):
        yield problem
    if spec.annotations:
        yield from _annotation_problems(spec.annotations)
    if not spec.devices:
        yield "invalid spec, no devices"
    names: set[str] = set()
    for device in spec.devices:
        if problem := device_problem(device.name):
            yield problem
        if device.name in names:
            yield f'invalid spec, multiple device "{device.name}"'
        names.add(device.name)
        for problem in _annotation_problems(device.annotations) if device.annotations else ():
            yield f'device "{device.name}": {problem}'
        if device.container_edits == NO_EDITS:
            yield f'device "{device.name}": invalid device, empty device edits'
    for where, edits in _all_edits(spec):
        for problem in _edit_problems(edits):
            yield f"{where}invalid container edits: {problem}"


def _all_edits(spec: Spec) -> Iterator[tuple[str, ContainerEdits]]:
    if spec.container_edits != NO_EDITS:
        yield "", spec.container_edits
    for device in spec.devices:
        yield f'device "{device.name}": ', device.container_edits


def _edit_problems(edits: ContainerEdits) -> Iterator[str]:
    yield from _env_problems(edits.env)
    for node in edits.device_nodes:
        if not node.path:
            yield "invalid (empty) device path"
        if node.type not in ("", "b", "c", "u", "p"):
            yield f'device "{node.path}": invalid type "{node.type}"'
        if node.permissions != "none" and set(node.permissions) - set("rwm"):
            yield f'device "{node.path}": invalid permissions "{node.permissions}"'
        # -1 means every device to cgroups; rule of the library of CDI 1.1.2
        if min(numbers := (node.major or 0, node.minor or 0)) < 0:
            yield f'device "{node.path}": invalid (negative) device number {numbers[0]}:{numbers[1]}'
    if edits.net_devices:
        yield from _net_device_problems(edits.net_devices)
    for hook in edits.hooks:
        if hook.hook_name not in _HOOKS:
            yield f'invalid hook name "{hook.hook_name}"'
        if not hook.path:
            yield f'invalid hook "{hook.hook_name}" with empty path'
        for problem in _env_problems(hook.env):
            yield f'invalid hook "{hook.hook_name}": {problem}'
    for mount in edits.mounts:
        if not mount.host_path:
            yield "invalid mount, empty host path"
        if not mount.container_path:
            yield "invalid mount, empty container path"
    if edits.intel_rdt is not None:
        yield from _rdt_problems(edits.intel_rdt)


def _env_problems(env: tuple[str, ...]) -> Iterator[str]:
    for variable in env:
        if variable.find("=") < 1:
            yield f'invalid environment variable "{variable}"'


def _net_device_problems(devices: tuple[NetDevice, ...]) -> Iterator[str]:
    hosts: set[str] = set()
    names: set[str] = set()
    for device in devices:
        if not device.host_interface_name or not device.name:
            yield "invalid linux net device, empty name"
        if device.host_interface_name in hosts:
            yield f'invalid linux net device, duplicate host interface "{device.host_interface_name}"'
        if device.name in names:
            yield f'invalid linux net device, duplicate name "{device.name}"'
        hosts.add(device.host_interface_name)
        names.add(device.name)


def _rdt_problems(rdt: IntelRdt) -> Iterator[str]:
    name = rdt.clos_id
    if name != "/" and (len(name) >= _MAX_CLOS_ID or name in (".", "..") or "/" in name or "\n" in name):
        yield "invalid ClosID"


def _annotation_problems(annotations: Mapping[str, str]) -> Iterator[str]:
    for key in annotations:
        prefix, slash, name = key.lower().rpartition("/")
        named = _ANNOTATION_NAME.fullmatch(name)
        if not named or (slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix))):
            yield f'invalid annotation "{key}": must be a name of at most 63 characters, with a DNS domain before a "/"'
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _MAX_ANNOTATIONS:
        yield f"invalid annotations: {size} bytes, the limit is {_MAX_ANNOTATIONS}"


def _policy_edit_problems(edits: ContainerEdits) -> Iterator[str]:
    for hook in edits.hooks:
        yield f"a hook ({hook.path}) would run as root on the host; we never write one"
    for node in edits.device_nodes:
        if node.permissions == "none":
            yield f'device "{node.path}": CDI\'s library before 1.1.1 refuses the file for the permissions "none"'
    paths = [path for node in edits.device_nodes for path in (node.path, node.host_path) if path]
    paths += [path for mount in edits.mounts for path in (mount.host_path, mount.container_path)]
    for path in paths:
        if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
            yield f'path "{path}" must be absolute and without ".."'
