"""Resources from the file's entries: checks of names, environment, mounts and access that types cannot express.

The key `dra` is in dra.py.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType, convert, structs

import cdi
from deviceplugin.limits import list_too_long_reason
from nodeplug.config.compat import NVIDIA_VARIABLE, CompatDefaults, compat_defaults
from nodeplug.config.document import Document, Path
from nodeplug.config.fields import filled_template
from nodeplug.config.kinds import check_kinds
from nodeplug.config.mps import mps_env, mps_mounts
from nodeplug.config.schema import AccessEntry, MountEntry, ResourceEntry, Select, Texts
from nodeplug.config.selectors import check_glob, check_path, grouping, selection
from nodeplug.config.settings import Settings
from nodeplug.config.shares import shares_entry
from resources import template
from resources.groups import Folder, Group, PathSet
from resources.mounts import NEVER_BELOW, SHARED_MEMORY, is_below, is_taken
from resources.resource import DraOptions, Mount, NodeAccess, Resource
from resources.selector import Paths, Selection

_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_CDI_KIND = re.compile(r"[A-Za-z]([-A-Za-z0-9_.]*[A-Za-z0-9])?/[A-Za-z]([-A-Za-z0-9_]*[A-Za-z0-9])?")
_DRIVER = re.compile(rf"(?=[a-z].){_DOMAIN.pattern}")
_MAX_DRIVER_LENGTH, _MAX_NODE_LENGTH = 63, 253
_ANY_FIELD = re.compile(r"\{[^{}]*\}")
_LAST_PORT = 65535
_SOCKET_PATH = 107  # bytes
_SOCKET_NAME = 48
_DRIVER_SOCKET = 27  # /plugins_registry/DRIVER-reg.sock, or /plugins/DRIVER/dra-HASH.sock: as short as possible
_STANDARD_NODES = tuple(f"/dev/{x}" for x in ("null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"))
_STANDARD_FOLDERS = ("/dev/pts", SHARED_MEMORY, "/dev/mqueue")
"""What every container has: the runtime's own nodes and folders (OCI runtime specification, default devices)."""
_NEVER_MOUNTED = ("/", "/boot", "/etc", "/home", "/root", "/run", "/usr", "/var", "/var/lib", "/var/run")


def check_settings(document: Document, settings: Settings) -> None:
    """Add findings about the daemon's settings to the document."""
    for name, text in (
        ("kubeletRoot", settings.kubelet_root),
        ("stateDirectory", settings.state_directory),
        ("cdiDirectory", settings.cdi_directory),
        *((("driverRoot", settings.driver_root),) if settings.driver_root != "/" else ()),
        *((("driverRootOnHost", on_host),) if (on_host := settings.driver_root_on_host) not in ("", "/") else ()),
        *((("featuresDirectory", settings.features_directory),) if settings.features_directory else ()),
    ):
        check_path(document, ("settings", name), text)
    longest = len(f"{settings.kubelet_root}/plugins_registry/".encode()) + _SOCKET_NAME
    if longest > _SOCKET_PATH:
        message = f"socket paths below {settings.kubelet_root} may have {longest} bytes; the limit is {_SOCKET_PATH}"
        document.at(("settings", "kubeletRoot"), message)
    if (port := settings.metrics_address.rpartition(":")[2]) and int(port) > _LAST_PORT:
        document.at(("settings", "metricsAddress"), f"{port} is not a port; the highest is {_LAST_PORT}")
    if not _DRIVER.fullmatch(settings.driver_name) or len(settings.driver_name) > _MAX_DRIVER_LENGTH:
        message = f"{settings.driver_name} cannot be the name of a driver and the vendor of CDI devices"
        hint = f"lower-case letters, digits, dots and dashes, 2 to {_MAX_DRIVER_LENGTH}, a letter first"
        document.at(("settings", "driverName"), message, hint)
    elif (longest := len(f"{settings.kubelet_root}{settings.driver_name}".encode()) + _DRIVER_SOCKET) > _SOCKET_PATH:
        message = f"socket paths of {settings.driver_name} may have {longest} bytes; the limit is {_SOCKET_PATH}"
        document.at(("settings", "driverName"), message, f"shorten it by {longest - _SOCKET_PATH}")
    if (name := settings.node_name) and not (_DOMAIN.fullmatch(name) and len(name) <= _MAX_NODE_LENGTH):
        hint = f"lower-case letters, digits, dots and dashes, at most {_MAX_NODE_LENGTH}"
        document.at(("settings", "nodeName"), f"{name} cannot be the name of a node", hint)
    for i, folder in enumerate(settings.allowed_mounts):
        place = ("settings", "allowedMounts", i)
        if not check_path(document, place, folder):
            continue
        never = (*NEVER_BELOW, settings.kubelet_root)
        if folder in _NEVER_MOUNTED or any(is_below(folder, root) for root in never):
            document.at(place, f"{folder} has files that no container must get", "name a folder for devices only")


def resource(document: Document, path: Path, entry: ResourceEntry, settings: Settings) -> Resource | None:
    """Return the resource of an entry at `path`; None if the entry is invalid. Findings go to the document."""
    _check_name(document, path, entry.name)
    group = None if entry.group is UNSET else grouping(document, (*path, "group"), entry.group)
    selector = _selector(document, path, entry, group)
    if entry.api != "dra" and (why := list_too_long_reason(1, entry.shares)):
        document.at((*path, "shares"), why)
    shares = tuple(shares_entry(document, (*path, "sharesOf", i), x) for i, x in enumerate(entry.shares_of))
    _check_key_conflicts(document, path, entry)
    nodes = _nodes(document, (*path, "nodes"), entry.nodes)
    container_path = _container_path(document, (*path, "containerPath"), entry.container_path, group)
    env, annotations = _env(document, path, entry.env), _annotations(document, path, entry.annotations)
    mounts = _mounts(document, (*path, "mounts"), entry.mounts, settings)
    mounts = (*mounts, *mps_mounts(document, path, entry, settings, mounts))
    cdi_devices = _cdi_devices(document, (*path, "cdiDevices"), entry, settings)
    access = None if entry.access is UNSET else _access(document, path, entry.access, entry)
    dra = _dra(document, path, entry)
    if dra.bind is not None and selector is not None:
        from nodeplug.config.dra import check_bound_kinds

        check_bound_kinds(document, path, selector)
    if selector is not None:
        check_kinds(document, path, entry, selector)
    wanted = CompatDefaults()
    if entry.compat is not UNSET and selector is not None:
        is_auxiliary = entry.ids == "auxiliary"
        wanted = compat_defaults(
            document, (*path, "compat"), entry.compat, entry.name, selector, is_auxiliary=is_auxiliary
        )
    if selector is None or document.is_wrong(path):
        return None
    if entry.api != "device-plugin":
        dra = structs.replace(dra, attributes={**wanted.attributes, **dra.attributes})
    if access is None and (entry.api == "dra" or (entry.cdi is not False and _CDI_KIND.fullmatch(entry.name))):
        access = wanted.access
    ids = wanted.ids if entry.ids is UNSET else entry.ids
    return Resource(
        name=entry.name,
        selector=selector,
        group=group,
        nodes=nodes,
        container_path=container_path,
        shares=entry.shares,
        shares_of=shares,
        evict_after_seconds=0 if entry.evict_after_seconds is UNSET else entry.evict_after_seconds,
        permissions=entry.permissions,
        env={**wanted.env, **mps_env(entry), **env},
        mounts=mounts,
        annotations=annotations,
        cdi=entry.cdi,
        cdi_devices=cdi_devices,
        userspace=None if entry.userspace is UNSET else entry.userspace,
        mps="" if entry.mps is UNSET else entry.mps.pipe_directory,
        access=access,
        preferred=entry.preferred,
        topology=entry.topology,
        identity=entry.identity,
        ids="identity" if entry.api == "dra" else ids,
        device_info=wanted.device_info,
        additional_info=entry.additional_info,
        vhost_net=entry.vhost_net,
        health=entry.health,
        reset=entry.reset,
        dangerous=entry.dangerous,
        api=entry.api,
        dra=dra,
    )


def check_keys(document: Document, path: Path, values: Mapping[str, Any], settings: Settings) -> None:
    """Add findings about each key of an entry that has a mistake already, so that all mistakes are reported at once."""
    right = {key: value for key, value in values.items() if not document.is_wrong((*path, key))}
    if "name" in right:
        _check_name(document, path, right["name"])
    if select := _without_invalid(document, (*path, "select"), values.get("select")):
        selection(document, (*path, "select"), convert(select, str | Select))
    _env(document, path, right.get("env", {}))
    _annotations(document, path, right.get("annotations", {}))
    _mounts(document, (*path, "mounts"), convert(right.get("mounts", ()), tuple[MountEntry, ...]), settings)


def _without_invalid(document: Document, path: Path, value: Any) -> Any:
    """Return a value without its invalid members; None if nothing is left."""
    if not document.is_wrong(path):
        return value
    if not isinstance(value, Mapping):
        return None
    found = {key: _without_invalid(document, (*path, key), item) for key, item in value.items()}
    return {key: item for key, item in found.items() if item is not None}


def check_conflicts(document: Document, entries: Mapping[int, ResourceEntry]) -> None:
    """Add findings about resources (by their place in the list) that contradict each other."""
    env: dict[str, tuple[str, str]] = {}
    paths: dict[str, str] = {}
    for i, entry in entries.items():
        wanted = {NVIDIA_VARIABLE: "{uuid}"} if entry.compat == "nvidia" else {}
        for name, value in {**wanted, **mps_env(entry), **entry.env}.items():
            owner, first = env.setdefault(name, (entry.name, value))
            if owner != entry.name and (first != value or "{" in value):
                message = f"{name} is also set by {owner}; a container with both would see one of them"
                place = ("env", name) if name in entry.env else ("compat" if name in wanted else "mps",)
                document.at(("resources", i, *place), message, "choose another name", key=True)
        if (path := entry.container_path) and (owner := paths.setdefault(path, entry.name)) != entry.name:
            message = f"{owner} has its devices at {path}, too; a container with both would see one of them"
            document.at(("resources", i, "containerPath"), message, "choose another path")
    if any(entry.api != "device-plugin" for entry in entries.values()):
        from nodeplug.config.dra import check_classes  # see `_dra`

        check_classes(document, entries)


def name_error(name: str) -> str:
    """Return why `name` is not an extended resource name (the kubelet's rule); empty if it is one."""
    domain, slash, rest = name.partition("/")
    if not slash:
        return "it has no domain, as in example.com/gpu"
    if "kubernetes.io/" in name:
        return "names with kubernetes.io/ are Kubernetes' own"
    if name.startswith("requests."):
        return "names with requests. in front are quotas"
    if "/" in rest:
        return "it has more than one slash"
    if len(f"requests.{domain}") > 253 or not _DOMAIN.fullmatch(domain):
        return "the domain must have lower-case letters, digits, dots and dashes, at most 244"
    if len(rest) > 63 or not _NAME_PART.fullmatch(rest):
        return "after the slash there must be letters, digits, dots, dashes and underscores, at most 63"
    return ""


def _check_key_conflicts(document: Document, path: Path, entry: ResourceEntry) -> None:
    """Add findings about keys of one resource that contradict each other."""
    if entry.reset and entry.is_shared:
        document.at((*path, "reset"), "a reset would affect the other containers that share the device")
    if len(set(entry.permissions)) < len(entry.permissions):
        document.at((*path, "permissions"), f"{entry.permissions} has a permission twice")
    if entry.api == "dra" and entry.ids is not UNSET:
        hint = "leave it out; use `dra.attributes` to describe a device"
        document.at((*path, "ids"), "only the device plugin API has such ids", hint, key=True)
    if entry.api == "dra" and entry.evict_after_seconds is not UNSET:
        message = "claims have taints for this"
        document.at((*path, "evictAfterSeconds"), message, "set `dra: {taint: NoExecute}`", key=True)
    if entry.identity == "port" and entry.group is not UNSET:
        document.at((*path, "identity"), "a group is identified by what its members have in common", "leave one out")
    by_name = entry.cdi is True or entry.access is not UNSET or entry.userspace is not UNSET
    needs_cdi = entry.api != "dra" and by_name
    if entry.userspace is not UNSET and entry.cdi is False and entry.api != "dra":
        document.at(
            (*path, "userspace"), "only CDI can add a driver's files to a container", "leave `cdi: false` out", key=True
        )
    if needs_cdi and not _CDI_KIND.fullmatch(entry.name):
        message = f"{entry.name} cannot be a CDI kind: it begins with a letter and has no dot after the slash"
        document.at((*path, "name"), message)
    if entry.additional_info and (entry.compat != "sriov" or entry.api == "dra"):
        hint = "only `compat: sriov` has that variable, and only in the device plugin API"
        document.at((*path, "additionalInfo"), "this resource sets no such variable", hint, key=True)


def _nodes(document: Document, path: Path, written: Texts | UnsetType) -> tuple[str, ...]:
    nodes = () if written is UNSET else (written,) if isinstance(written, str) else written
    for i, glob in enumerate(nodes):
        check_glob(document, path if isinstance(written, str) else (*path, i), glob)
    if written == ():
        document.at(path, "an empty list matches no node", "leave it out for all of a device's nodes")
    return nodes


def _check_name(document: Document, path: Path, name: str) -> None:
    if why := name_error(name):
        document.at((*path, "name"), f"{name} cannot be a resource name: {why}")


def _dra(document: Document, path: Path, entry: ResourceEntry) -> DraOptions:
    if entry.api == "device-plugin":
        if entry.dra is not UNSET:
            message = "this key is only for DRA, and the resource is not offered through DRA"
            document.at((*path, "dra"), message, "add `api: dra` or `api: both` to the resource", key=True)
        return DraOptions()
    from nodeplug.config.dra import dra_options  # imported here: only DRA needs the API's objects

    return dra_options(document, path, entry)


def _selector(document: Document, path: Path, entry: ResourceEntry, group: Group | None) -> Selection | None:
    if entry.select is not UNSET:
        return selection(document, (*path, "select"), entry.select)
    if isinstance(group, PathSet):
        return Paths(tuple(member.glob for member in group.members))
    if isinstance(group, Folder):
        return Paths((group.glob,))
    if entry.group is UNSET or group is not None:
        document.at(path, "the key select is missing", "it selects the devices")
    return None


def _container_path(document: Document, path: Path, text: str, group: Group | None) -> str:
    """Check the path of a device in containers and return it with full attribute names."""
    if not text:
        return ""
    filled = filled_template(document, path, text)
    if bad := [name for name in template.FIELDS if f"{{{name}}}" in text]:
        document.at(path, f"{{{bad[0]}}} is not an attribute of one device", "name an attribute")
    if check_path(document, path, text) and (
        text in ("/", "/dev", *_STANDARD_NODES) or any(is_below(text, x) for x in ("/proc", "/sys", *_STANDARD_FOLDERS))
    ):
        document.at(path, f"no device can be at {text}", "use a path below /dev that no container has already")
    if isinstance(group, PathSet):
        document.at(path, "`group.paths` sets the path of each node", "leave it out", key=True)
    return filled


def _env(document: Document, path: Path, env: Mapping[str, str]) -> dict[str, str]:
    for name in env:
        place = (*path, "env", name)
        if not template.is_variable(name):
            document.at(place, f"{name} cannot be the name of a variable", "letters, digits, underscores", key=True)
        elif template.is_reserved(name):
            document.at(place, f"{name} cannot be set here", "choose another name", key=True)
    return {name: filled_template(document, (*path, "env", name), value) for name, value in env.items()}


def _annotations(document: Document, path: Path, annotations: Mapping[str, str]) -> dict[str, str]:
    for name in annotations:
        domain, slash, rest = name.rpartition("/")
        if (slash and not (_DOMAIN.fullmatch(domain) and len(domain) <= 253)) or not (
            _NAME_PART.fullmatch(rest) and len(rest) <= 63
        ):
            document.at((*path, "annotations", name), f"{name} cannot be the name of an annotation", key=True)
    return {name: filled_template(document, (*path, "annotations", name), x) for name, x in annotations.items()}


def _mounts(document: Document, path: Path, entries: Sequence[MountEntry], settings: Settings) -> tuple[Mount, ...]:
    mounts: list[Mount] = []
    for i, entry in enumerate(entries):
        inside = entry.container_path or entry.host_path
        if check_path(document, (*path, i, "hostPath"), entry.host_path):
            allowed = any(is_below(entry.host_path, folder) for folder in settings.allowed_mounts)
            if not allowed and not document.is_wrong(("settings",)):
                message = f"{entry.host_path} is not below any of settings.allowedMounts"
                document.at((*path, i, "hostPath"), message, "the administrator of the node must allow mounts")
        plain = check_path(document, (*path, i, "containerPath"), inside) if entry.container_path else False
        if plain and is_taken(inside):
            document.at((*path, i, "containerPath"), f"nothing can be mounted at {inside}")
        if any(inside == mount.container_path for mount in mounts):
            document.at((*path, i), f"two mounts at {inside}")
        mounts.append(Mount(entry.host_path, inside, entry.read_only))
    return tuple(mounts)


def _cdi_devices(document: Document, path: Path, entry: ResourceEntry, settings: Settings) -> tuple[str, ...]:
    """Check names of CDI devices of other programs; one of ours would be a device without a lease."""
    if entry.cdi_devices and entry.cdi is False and entry.api != "dra":
        document.at(path, "only CDI can add such devices to a container", "leave `cdi: false` out", key=True)
    found: dict[str, None] = {}
    for i, text in enumerate(entry.cdi_devices):
        place, kind = (*path, i), text.partition("=")[0]
        filled = filled_template(document, place, text)
        if bad := [field for field in template.FIELDS if f"{{{field}}}" in text]:
            document.at(place, f"{{{bad[0]}}} is not an attribute of one device", "name an attribute")
        try:
            cdi.split_qualified_name(f"{kind}{_ANY_FIELD.sub('x', text.removeprefix(kind))}")
        except cdi.CdiError as error:
            document.at(place, str(error), "fields can be used only after the =, as in nvidia.com/gpu={uuid}")
        if kind == entry.name or kind.partition("/")[0] == settings.driver_name:
            document.at(place, f"devices of {kind} are described by nodeplug itself", "name another's")
        if filled in found:
            document.at(place, f"{text} appears twice")
        if entry.userspace == "nvidia" and kind.partition("/")[0] == "nvidia.com":
            message = "both this and `userspace: nvidia` add the driver's libraries"
            document.at(place, message, "leave one of them out")
        found[filled] = None
    return tuple(found)


def _access(document: Document, path: Path, entry: AccessEntry, owner: ResourceEntry) -> NodeAccess:
    if owner.cdi is False and owner.api != "dra":
        document.at((*path, "access"), "only CDI can set the owner of a device node", "leave `cdi: false` out")
    mode = None if entry.mode is UNSET else int(entry.mode, 8)
    return NodeAccess(
        None if entry.uid is UNSET else entry.uid,
        None if entry.gid is UNSET else entry.gid,
        mode,
    )
