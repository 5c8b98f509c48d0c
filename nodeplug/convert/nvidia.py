"""NVIDIA's k8s-device-plugin: GPUs under one name, MIG instances under that of their profile, perhaps shared.

| migStrategy | it offers |
|---|---|
| none | whole GPUs as `nvidia.com/gpu` |
| single | on nodes whose GPUs are all in MIG mode their instances as `nvidia.com/gpu`, on others whole GPUs |
| mixed | whole GPUs as `nvidia.com/gpu`, instances as `nvidia.com/mig-1g.10gb` (`+me` is `.me` there) |

Every release ignores `resources` and, of a shared resource, `rename` and `devices`, and says so in its log.
Source: NVIDIA/k8s-device-plugin, README (configuration, sharing, MIG), CHANGELOG (0.12.0), the flags of its program.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from hostdevices import Host
from nodeplug.config import Settings
from nodeplug.convert.conversion import LeftOut, Offered, Values
from nodeplug.convert.wrapping import Wrapping

KEYS = ("version", "flags", "sharing")
"""Each file has one of these."""

_GPU = "gpu"
_NVML: Values = {"nvml": True}  # without it, the UUID and the profile of a MIG instance are unknown
_BY_CDI: Values = {"ids": "uuid", "cdiDevices": ["nvidia.com/gpu={uuid}"]}
_WITH_DRIVER: Values = {"ids": "uuid", "userspace": "nvidia"}
_TWICE = (
    "by CDI (nvidia-ctk cdi generate): a container with two resources has NVIDIA_VISIBLE_DEVICES of only one of them."
)
_CDI = "the driver's files come by CDI as before (deviceListStrategy), in nodeplug's own specs: `userspace`."
_RUNTIME = "gdrcopyEnabled, gdsEnabled and mofedEnabled are for NVIDIA's runtime, and left out."
_VOLUMES = (
    "NVIDIA's runtime gets the devices by a variable, which it must accept; before, by mounts (deviceListStrategy)."
)
_IGNORED = "`resources` is left out: NVIDIA's plugin ignores it, too."
_SINGLE = "MIG instances, and GPUs that are not in MIG mode; of a node with both the plugin offers neither (single)."
_UNLIKE = "`rename` and `devices` are left out: NVIDIA's plugin ignores them, too."
_XIDS = "XIDs count as before (DP_DISABLE_HEALTHCHECKS, DP_ENABLE_HEALTHCHECKS); `nvml` asks for more rights."
_SOME_XIDS = "all XIDs except `settings.ignoredXids` count; before, only those of DP_ENABLE_HEALTHCHECKS."
_XID = re.compile(r"[0-9]{1,9}")
_PROFILE = re.compile(r"mig-([0-9]+g\.[0-9]+gb)(?:\.(.+))?")
_MPS = (
    "the control daemon is NVIDIA's (its chart's mps-control-daemon, which stays) or yours, and divides the memory;"
    " without it no pod gets a GPU."
)
_MPS_ROOT = "/run/nvidia/mps"
_Setting: TypeAlias = str | int | bool | tuple[str | int, ...]


class Named(Struct, frozen=True):
    """GPUs whose model matches a pattern, under a name."""

    pattern: str
    name: str


class Resources(Struct, frozen=True):
    """Names for some GPUs and MIG instances, which every release ignores."""

    gpus: tuple[Named, ...] = ()
    mig: tuple[Named, ...] = ()
    migs: tuple[Named, ...] = ()


class Replicated(Struct, frozen=True):
    """How many containers share each GPU of a name."""

    name: str
    replicas: int
    rename: str = ""
    devices: _Setting = "all"


class Shared(Struct, frozen=True, rename="camel"):
    """The settings of one way of sharing.

    A container can request several shares, unless the last field or MPS forbids it.
    """

    resources: tuple[Replicated, ...] = ()
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None


class Sharing(Struct, frozen=True, rename="camel"):
    """How GPUs are shared: by time slicing, or by the Multi-Process Service, which takes precedence."""

    time_slicing: Shared = Shared()
    mps: Shared = Shared()


class Flags(Struct, frozen=True, rename="camel"):
    """Settings that the command line can also have."""

    mig_strategy: Literal["none", "single", "mixed"] = "none"
    fail_on_init_error: bool = True
    mps_root: str = ""
    nvidia_driver_root: str = "/"
    nvidia_dev_root: str = ""
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    use_node_feature_api: bool = field(default=False, name="useNodeFeatureAPI")
    device_discovery_strategy: str = ""
    plugin: dict[str, _Setting] = {}
    gfd: dict[str, _Setting] = {}


class Imex(Struct, frozen=True):
    """The channels that every container gets."""

    channel_ids: tuple[int, ...] = field(default=(), name="channelIDs")
    required: bool = False


class File(Struct, frozen=True):
    """The file; its last keys are the labels of nodes and settings that only variables have."""

    version: Literal["v1"] = "v1"
    flags: Flags = Flags()
    resources: Resources = Resources()
    sharing: Sharing = Sharing()
    imex: Imex = Imex()
    node_selector: dict[str, str] = field(default_factory=dict, name="nodeSelector")
    disabled_health_checks: str | int = ""
    enabled_health_checks: str | int = ""


_SETTINGS = {
    "mig-strategy": "flags.migStrategy",
    "mps-root": "flags.mpsRoot",
    "driver-root": "flags.nvidiaDriverRoot",
    "nvidia-driver-root": "flags.nvidiaDriverRoot",
    "gdrcopy-enabled": "flags.gdrcopyEnabled",
    "gds-enabled": "flags.gdsEnabled",
    "mofed-enabled": "flags.mofedEnabled",
    "device-list-strategy": "flags.plugin.deviceListStrategy",
    "shared-devices-allocation-policy": "flags.plugin.sharedDevicesAllocationPolicy",
}
_OTHERS = (
    "fail-on-init-error",
    "dev-root",
    "nvidia-dev-root",
    "pass-device-specs",
    "device-id-strategy",
    "device-discovery-strategy",
    "cdi-annotation-prefix",
    "nvidia-cdi-hook-path",
    "nvidia-ctk-path",
    "driver-root-ctr-path",
    "container-driver-root",
    "kubelet-socket",
    "cdi-feature-flags",
    "cdi-disable-hooks",
)

WRAPPING = Wrapping(
    image="nvidia/k8s-device-plugin",
    helpers=frozenset({"config-manager", "gpu-feature-discovery", "mps-control-daemon"}),
    flags=_SETTINGS,
    variables={flag.upper().replace("-", "_"): setting for flag, setting in _SETTINGS.items()}
    | {"DP_DISABLE_HEALTHCHECKS": "disabled_health_checks", "DP_ENABLE_HEALTHCHECKS": "enabled_health_checks"},
    others=frozenset(_OTHERS),
    file=frozenset({"config-file", "CONFIG_FILE"}),
    entry_label="nvidia.com/device-plugin.config",
)
"""The containers of its settings other than its file."""


def resources(file: File, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    """Yield a resource for each name, with the ids and the variable that NVIDIA's runtime and exporters read."""
    if file.imex.channel_ids:
        yield LeftOut(
            "imex", "a channel is a separate resource here, which pods request; docs/recipes.md, IMEX channels"
        )
    profiles = _profiles(file, domain) if file.flags.mig_strategy == "mixed" else {}
    if file.flags.mig_strategy == "mixed" and not profiles:
        example = "`select: {preset: mig, attributes: {profile: 1g.10gb}}`, `compat: nvidia` and `settings.nvml`"
        yield LeftOut(f"{domain}/mig-...", f"the file does not list the profiles: write for each {example}")
    whole: Any = {"any": ["mig", "nvidia-gpu"]} if file.flags.mig_strategy == "single" else "nvidia-gpu"
    kinds = {f"{domain}/{_GPU}": whole}
    kinds |= {name: {"preset": "mig", "attributes": {"profile": profile}} for name, profile in profiles.items()}
    notes = [_IGNORED] if file.resources != Resources() else []
    notes += [_SINGLE] if file.flags.mig_strategy == "single" else []
    way, remarks = _device_list(file)
    health, of_health, asked = _health(file)
    notes += of_health
    root: Values = {"driverRoot": file.flags.nvidia_driver_root} if way is _WITH_DRIVER else {}
    for name, select in kinds.items():
        settings = root | asked | (_NVML if select != "nvidia-gpu" else {})
        yield _shared(file, name, {"name": name, "select": select, **way, **health}, settings, notes + remarks)
        notes = []
        way, remarks = (way, []) if way is _WITH_DRIVER else (_BY_CDI, [_TWICE])


def _health(file: File) -> tuple[Values, list[str], Values]:
    """Return the keys of resources for the XIDs that variables enable, the remarks on that, and settings.

    Source: the plugin's internal/rm/health.go; enabled XIDs override disabled ones.
    """
    disabled, enabled = (_xids(x) for x in (file.disabled_health_checks, file.enabled_health_checks))
    if disabled == enabled == frozenset():
        return {}, [], {}
    if disabled is None and enabled == frozenset():
        return {"health": "present"}, [], {}
    if disabled is None and enabled is not None:
        return {}, [_SOME_XIDS], _NVML
    ignored = {*Settings().ignored_xids, *(disabled or ())}
    kept = sorted(ignored - enabled) if enabled is not None else []
    return {}, [_XIDS], {**_NVML, "ignoredXids": kept}


def _xids(text: str | int) -> frozenset[int] | None:
    """Return the XIDs of a list; None for all. Other words are ignored, as in the plugin."""
    words = {x.strip().lower() for x in str(text).split(",")}
    return None if words & {"all", "xids"} else frozenset(int(x) for x in words if _XID.fullmatch(x))


def _device_list(file: File) -> tuple[Values, list[str]]:
    """Return the keys by which a container's runtime learns its GPUs, and the remarks on that."""
    named = file.flags.plugin.get("deviceListStrategy", "envvar")
    strategies = [x for text in (named if isinstance(named, tuple) else (named,)) for x in str(text).split(",")]
    wanted = {
        "NVIDIA_GDRCOPY": file.flags.gdrcopy_enabled,
        "NVIDIA_GDS": file.flags.gds_enabled,
        "NVIDIA_MOFED": file.flags.mofed_enabled,
    }
    asked = {name: "enabled" for name, is_wanted in wanted.items() if is_wanted}
    env: Values = {"env": asked} if asked else {}
    if any(x.startswith("cdi-") for x in strategies) and "envvar" not in strategies:
        return _WITH_DRIVER, [_CDI, *([_RUNTIME] if asked else [])]
    return {"compat": "nvidia"} | env, [_VOLUMES] if strategies == ["volume-mounts"] else []


def _shared(file: File, name: str, values: Values, settings: Values, remarks: list[str]) -> Offered:
    """Return a resource, with the shares of its GPUs."""
    is_mps = bool(file.sharing.mps.resources)
    shared = file.sharing.mps if is_mps else file.sharing.time_slicing
    replicated = next((x for x in shared.resources if _qualified(x.name, name.partition("/")[0]) == name), None)
    if replicated is None:
        return Offered(values, tuple(remarks), settings=settings)
    if replicated.rename or replicated.devices != "all":
        remarks = [*remarks, _UNLIKE]
    if shared.rename_by_default:
        values |= {"name": f"{name}.shared"}
    values |= {"shares": replicated.replicas}
    fails = shared.fail_requests_greater_than_one
    if fails or (fails is None and is_mps):
        values |= {"preferred": "distinct"}
        remarks = [*remarks, "two shares of one GPU are refused; before, any two were (failRequestsGreaterThanOne)."]
    elif file.flags.plugin.get("sharedDevicesAllocationPolicy") == "packed":
        values |= {"preferred": "packed"}
    if not is_mps:
        return Offered(values, tuple(remarks), settings=settings)
    root = file.flags.mps_root.rstrip("/") or _MPS_ROOT
    values |= {"mps": {"pipeDirectory": f"{root}/{values['name']}/pipe", "shmDirectory": f"{root}/shm"}}
    return Offered(values, (*remarks, _MPS), (root,), settings)


def _profiles(file: File, domain: str) -> dict[str, str]:
    """Return the MIG profiles that the file mentions, by the names of their resources."""
    names = [_qualified(x.name, domain) for way in (file.sharing.mps, file.sharing.time_slicing) for x in way.resources]
    names += [f"{domain}/mig-{x.pattern.replace('+', '.')}" for x in (*file.resources.mig, *file.resources.migs)]
    found = {name: _PROFILE.fullmatch(name.partition("/")[2]) for name in names}
    return {name: "+".join(filter(None, match.groups())) for name, match in found.items() if match}


def _qualified(name: str, domain: str) -> str:
    return name if "/" in name else f"{domain}/{name}"
