"""DeviceConfig: what a DeviceClass or a claim can configure about how containers get this driver's devices.

    apiVersion: nodeplug.dev/v1
    kind: DeviceConfig
    env: {MODEL: "{model}"}              values may name facts of the devices of a request (resources/template.py)
    access: {gid: 44, mode: "0660"}      owner and mode of the device nodes inside the container
    reset: true                          reset PCI devices before they are used
    sharing: {maximum: 2}                most holders of a shared device at once, including this claim
    mounts: [{hostPath: /opt/lib}]       also containerPath, readOnly (default: true)
    interface: {name: data0}             of an interface that moves, see interface_config.py

Rules:
1. Any user can write a claim, so it is read strictly: unknown, duplicate, wrongly typed, deep or large input is
   refused, with the field's path.
2. Classes belong to the administrator: only they can mount, below the folders that the node allows, and only they can
   limit the holders of a shared device, which affects other claims. A claim's own variables are restricted
   (resources/template.py). The owners that a claim sets apply only to its device nodes: processes get no group from
   them.
3. Classes apply before claims, and each in the order of the list: a later value of a field or a variable replaces an
   earlier one. A reset takes place if any of them requests it.
4. All variables of a device together have a limit, because the claim's lease stores them.

Source: DRA specification 5.2, 5.3; possible harm by users: threat model, opaque configuration.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from dra_plugin.errors import DraPluginError
from dra_plugin.preparing.interface_config import InterfaceConfig, canonical, merged
from dra_plugin.preparing.interface_config import problems as interface_problems
from hostdevices.printable import printable
from resourceapi.objects import DecodeError, config_for_result, parse_json, v1
from resourceapi.objects.strict import Members, parse_members
from resources import template
from resources.mounts import is_below, is_plain, is_taken
from resources.resource import Mount, NodeAccess, Resource

API_VERSION, KIND = "nodeplug.dev/v1", "DeviceConfig"
MAX_BYTES = 10 * 1024  # the API's own limit for parameters
MAX_ENV = 32 * 1024
"""The most bytes of all variables of a device, as configured."""
_MAX_DEPTH = 16  # levels of nesting; a DeviceConfig has four
_MAX_TEXT = 300
_GROUP_BITS = 0o060
_MODE = re.compile(r"0?[0-7]{3}")
_ERROR_PATH = re.compile(r"(?s)(.*) - at `\$(.*)`")

_Owner = Annotated[int, Meta(ge=0, le=2**32 - 2)]


class InvalidConfig(DraPluginError):
    """Configuration that is refused; `problems` has everything that is wrong with it, each with the field's path."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Store the problems."""
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class _Object(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """An object of the configuration."""


class Access(_Object, frozen=True, kw_only=True):
    """Owner and mode of the device nodes inside the container; `mode` is octal text. Fields not set change nothing."""

    uid: _Owner | UnsetType = UNSET
    gid: _Owner | UnsetType = UNSET
    mode: str | UnsetType = UNSET


class Sharing(_Object, frozen=True, kw_only=True):
    """How a shared device is shared: `maximum` is the most holders at once while this claim is one of them."""

    maximum: Annotated[int, Meta(ge=1)]


class MountConfig(_Object, frozen=True, kw_only=True):
    """A host path that containers see, at the same path unless `container_path` is set."""

    host_path: str
    container_path: str = ""
    read_only: bool = True


class DeviceConfig(_Object, frozen=True, kw_only=True):
    """The opaque parameters of a claim or class for this driver."""

    api_version: str
    kind: str
    env: Mapping[str, str] = {}
    access: Access = Access()
    reset: bool = False
    sharing: Sharing | UnsetType = UNSET
    mounts: tuple[MountConfig, ...] = ()
    interface: InterfaceConfig = InterfaceConfig()


class Settings(Struct, frozen=True):
    """The effective settings of one device of a claim. `env` are templates; `maximum` 0: as many as there are shares.

    `grants_group`: processes get the group that owns the nodes, because the administrator has configured it.
    `with_driver`: containers get the driver's files.
    """

    env: Mapping[str, str] = {}
    access: NodeAccess = NodeAccess()
    reset: bool = False
    maximum: int = 0
    mounts: tuple[Mount, ...] = ()
    grants_group: bool = True
    interface: InterfaceConfig = InterfaceConfig()
    with_driver: bool = False


class Configs(Struct, frozen=True):
    """The configuration of an allocation for this driver, each part with where it applies, in order of precedence."""

    items: tuple[tuple[v1.DeviceAllocationConfiguration, DeviceConfig], ...] = ()

    def settings(self, resource: Resource, result: v1.DeviceRequestAllocationResult) -> Settings:
        """Return the effective settings of a request's device of `resource`: the resource's, changed by these parts.

        Raises `InvalidConfig` for too many variables.
        """
        access = granted = resource.access or NodeAccess()  # the second without what claims configure
        env, reset, maximum = dict(resource.env), resource.reset, 0
        mounts = {mount.container_path: mount for mount in resource.mounts}
        interface = InterfaceConfig()
        for where, config in self.items:
            if not config_for_result((where,), result):
                continue
            env.update(config.env)
            access = _override_access(access, config.access)
            if where.source == v1.FROM_CLASS:
                granted = access
            reset = reset or config.reset
            if config.sharing is not UNSET:
                maximum = config.sharing.maximum
            mounts.update({mount.container_path: mount for mount in map(_mount, config.mounts)})
            interface = merged(interface, config.interface)
        if (size := sum(len(name) + len(text) for name, text in env.items())) > MAX_ENV:
            largest = max(env, key=lambda name: len(env[name]))
            raise InvalidConfig(
                [f"request {result.request}: {size} bytes of variables, the limit is {MAX_ENV}; shorten {largest}"]
            )
        grants_group = process_group(access) == process_group(granted)
        return Settings(
            env,
            access,
            reset,
            maximum,
            tuple(mounts.values()),
            grants_group,
            interface,
            resource.userspace is not None,
        )


def process_group(access: NodeAccess) -> int:
    """Return the group that a process needs to open nodes with this owner; 0 for none.

    If no owner is set, the runtime makes the process's own user the owner, and no group is needed.
    """
    opens = access.mode is None or access.mode & _GROUP_BITS
    return access.gid if access.uid is not None and access.gid and opens else 0


def read_configs(allocation: v1.DeviceAllocationResult, driver: str, allowed_mounts: Sequence[str]) -> Configs:
    """Return the configuration for `driver`; other drivers' configuration is not checked.

    Raises `InvalidConfig`, which names each part by its index in `status.allocation.devices.config`.
    """
    found: list[tuple[v1.DeviceAllocationConfiguration, DeviceConfig]] = []
    problems: list[str] = []
    own_results = [result for result in allocation.results if result.driver == driver]
    for i, where in enumerate(allocation.config):
        from_class = where.source == v1.FROM_CLASS
        place = f"config[{i}] (from the {'class' if from_class else 'claim'}): "
        if where.opaque is None:
            if any(_applies_to(where, result) for result in own_results):
                problems.append(f"{place}only opaque parameters are understood")
        elif where.opaque.driver == driver:
            try:
                config = read(where.opaque.parameters, from_class=from_class, allowed_mounts=allowed_mounts)
                found.append((where, config))
            except InvalidConfig as error:
                problems += [place + problem for problem in error.problems]
    if problems:
        raise InvalidConfig(problems)
    return Configs(tuple(sorted(found, key=lambda item: item[0].source != v1.FROM_CLASS)))


def read(parameters: Any, *, from_class: bool, allowed_mounts: Sequence[str] = ()) -> DeviceConfig:
    """Return a configuration from a plain JSON value, or from JSON text, in which duplicate members are detected.

    Values of `env` are returned with the full names of attributes. Raises `InvalidConfig`.
    """
    if isinstance(parameters, bytes | str):
        parameters = _parse(parameters)
    _check_size(parameters)
    if not isinstance(parameters, dict):
        raise InvalidConfig([f"parameters: must be an object with apiVersion {API_VERSION} and kind {KIND}"])
    type_meta = (parameters.get("apiVersion"), parameters.get("kind"))
    if type_meta != (API_VERSION, KIND):
        has = " ".join(_shortened(str(each)) for each in type_meta if each is not None) or "nothing"
        raise InvalidConfig([f"parameters: must have apiVersion {API_VERSION} and kind {KIND}, has {has}"])
    if duplicates := list(_duplicates(parameters, "parameters")):
        raise InvalidConfig([f"{_shortened(path)}: appears twice" for path in duplicates])
    config = _decode(parameters)
    problems = [*_env_problems(config.env, from_class), *_access_problems(config.access)]
    problems += interface_problems(config.interface)
    if config.sharing is not UNSET and not from_class:
        problems.append("parameters.sharing: concerns other claims, so only a DeviceClass can set it")
    if config.mounts and not from_class:
        problems.append("parameters.mounts: only a DeviceClass can mount; ask your administrator for one")
    problems += _mount_problems(config.mounts, allowed_mounts) if from_class else []
    if problems:
        raise InvalidConfig(problems)
    env = {name: template.read(text).text for name, text in config.env.items()}
    return msgspec.structs.replace(config, env=env, interface=canonical(config.interface))


def _parse(text: bytes | str) -> Any:
    if len(text) > MAX_BYTES:
        raise InvalidConfig([f"parameters: more than {MAX_BYTES} bytes"])
    try:
        parse_json(text)
        return parse_members(text)
    except (DecodeError, RecursionError) as error:
        raise InvalidConfig([f"parameters: {_shortened(str(error))}"]) from None


def _check_size(value: Any) -> None:
    """Refuse deep or large values before any recursion into them."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            x
            for each in level
            for x in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        ]
        if not level:
            break
    else:
        raise InvalidConfig([f"parameters: more than {_MAX_DEPTH} levels deep"])
    try:
        size = len(msgspec.json.encode(value))
    except (TypeError, ValueError, UnicodeError) as error:
        raise InvalidConfig([f"parameters: not JSON: {_shortened(str(error))}"]) from None
    if size > MAX_BYTES:
        raise InvalidConfig([f"parameters: {size} bytes, the limit is {MAX_BYTES}"])


def _duplicates(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of duplicate members; only `Members` preserve them."""
    if isinstance(value, dict):
        seen = set()
        for name, item in value.pairs if isinstance(value, Members) else value.items():
            if name in seen:
                yield f"{path}.{name}"
            seen.add(name)
            yield from _duplicates(item, f"{path}.{name}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _duplicates(item, f"{path}[{i}]")


def _decode(value: dict[str, Any]) -> DeviceConfig:
    env = value.get("env")
    if isinstance(env, dict):  # msgspec would not name the variable
        wrong = [name for name, text in env.items() if not isinstance(text, str)]
        if wrong:
            raise InvalidConfig([f"parameters.env.{_shortened(str(name))}: must be text in quotes" for name in wrong])
    try:
        return msgspec.convert(value, DeviceConfig)
    except msgspec.ValidationError as error:
        found = _ERROR_PATH.fullmatch(str(error))
        message, place = (found[1], found[2]) if found else (str(error), "")
        raise InvalidConfig([f"parameters{place}: {_shortened(message)}"]) from None


def _env_problems(env: Mapping[str, str], from_class: bool) -> Iterator[str]:
    for name, text in env.items():
        place = f"parameters.env.{_shortened(name)}: "
        if not template.is_variable(name):
            yield f"{place}cannot be the name of a variable; use letters, digits and underscores"
        elif template.is_reserved(name):
            yield f"{place}cannot be set by a configuration; choose another name"
        elif not from_class and template.is_reserved(name, for_claim=True):
            yield f"{place}cannot be set by a claim; ask your administrator for a DeviceClass that does"
        found = template.read(text)
        if found.unknown:
            yield f"{place}no device has {{{_shortened(found.unknown[0])}}}"
        if found.is_unbalanced:
            yield f"{place}unmatched brace; write {{{{ or }}}} for a brace"


def _access_problems(access: Access) -> Iterator[str]:
    if isinstance(access.mode, str) and not _MODE.fullmatch(access.mode):
        yield 'parameters.access.mode: must be permission bits in octal, as in "0660"'


def _mount_problems(mounts: Sequence[MountConfig], allowed: Sequence[str]) -> Iterator[str]:
    seen: set[str] = set()
    for i, mount in enumerate(mounts):
        place, inside = f"parameters.mounts[{i}]", mount.container_path or mount.host_path
        for name, path in (("hostPath", mount.host_path), ("containerPath", inside)):
            if not is_plain(path) or "\0" in path:
                text = _shortened(path)
                yield f"{place}.{name}: {text} is not an absolute path without empty, `.` or `..` components"
        if not any(is_below(mount.host_path, folder) for folder in allowed):
            yield f"{place}.hostPath: {_shortened(mount.host_path)} is not below any of the node's allowedMounts"
        if is_taken(inside):
            yield f"{place}.containerPath: nothing can be mounted at {_shortened(inside)}"
        if inside in seen:
            yield f"{place}: two mounts at {_shortened(inside)}"
        seen.add(inside)


def _override_access(access: NodeAccess, override: Access) -> NodeAccess:
    return NodeAccess(
        access.uid if override.uid is UNSET else override.uid,
        access.gid if override.gid is UNSET else override.gid,
        access.mode if override.mode is UNSET else int(override.mode, 8),
    )


def _mount(config: MountConfig) -> Mount:
    return Mount(config.host_path, config.container_path or config.host_path, config.read_only)


def _applies_to(where: v1.DeviceAllocationConfiguration, result: v1.DeviceRequestAllocationResult) -> bool:
    opaque = msgspec.structs.replace(where, opaque=v1.OpaqueDeviceConfiguration())
    return bool(config_for_result((opaque,), result))


def _shortened(text: str) -> str:
    return printable(text, _MAX_TEXT)
