"""NVIDIA's k8s-device-plugin: GPUs under one name, perhaps shared in time.

Source: NVIDIA/k8s-device-plugin, README (configuration file, time-slicing, MIG).
"""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from hostdevices import Host
from nodeplug.convert.conversion import LeftOut, Offered, Values

_GPU = "gpu"
_NVML: Values = {"nvml": True}  # without it nobody knows the UUID and the profile of a MIG instance
_BY_CDI: Values = {"ids": "uuid", "cdiDevices": ["nvidia.com/gpu={uuid}"]}
_TWICE = "by CDI (nvidia-ctk cdi generate): NVIDIA_VISIBLE_DEVICES of two resources is in a container that of one."
_MPS = "MPS is not run by nodeplug; docs/recipes.md has what a resource needs beside a service of yours"
_Setting: TypeAlias = str | int | bool | tuple[str | int, ...]


class Named(Struct, frozen=True):
    """GPUs whose model fits a pattern, under a name."""

    pattern: str
    name: str


class Resources(Struct, frozen=True):
    """Names for some GPUs and MIG instances."""

    gpus: tuple[Named, ...] = ()
    migs: tuple[Named, ...] = ()


class Replicated(Struct, frozen=True):
    """How many containers share each GPU of a name."""

    name: str
    replicas: int
    rename: str = ""
    devices: _Setting = "all"


class Slicing(Struct, frozen=True, rename="camel"):
    """Sharing in time."""

    resources: tuple[Replicated, ...] = ()
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False


class Sharing(Struct, frozen=True, rename="camel"):
    """How GPUs are shared."""

    time_slicing: Slicing = Slicing()
    mps: Slicing = Slicing()


class Flags(Struct, frozen=True, rename="camel"):
    """What the command line could say, too."""

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
    """The file."""

    version: str
    flags: Flags = Flags()
    resources: Resources = Resources()
    sharing: Sharing = Sharing()
    imex: Imex = Imex()


def resources(file: File, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    """Yield a resource for each name, with the ids and the variable that NVIDIA's runtime and exporters read."""
    slicing = file.sharing.time_slicing
    shared = {_qualified(x.name, domain): x for x in slicing.resources}
    for replicated in file.sharing.mps.resources:
        yield LeftOut(_qualified(replicated.name, domain), _MPS)
    if file.imex.channel_ids:
        yield LeftOut(
            "imex", "a channel is a resource of its own here, which pods ask for; docs/recipes.md, IMEX channels"
        )
    wanted = {
        "NVIDIA_GDRCOPY": file.flags.gdrcopy_enabled,
        "NVIDIA_GDS": file.flags.gds_enabled,
        "NVIDIA_MOFED": file.flags.mofed_enabled,
    }
    asked = {name: "enabled" for name, is_wanted in wanted.items() if is_wanted}
    env: Values = {"env": asked} if asked else {}
    if file.flags.mig_strategy == "mixed" and not file.resources.migs:
        example = "`select: {preset: mig, attributes: {profile: 1g.10gb}}`, `compat: nvidia` and `settings.nvml`"
        yield LeftOut(f"{domain}/mig-...", f"the file does not say which profiles there are: for each {example}")
    gpus = file.resources.gpus or (Named("*", _GPU),)
    whole = "mig" if file.flags.mig_strategy == "single" else "nvidia-gpu"
    kinds: list[tuple[Named, str, str]] = [(each, whole, "model") for each in gpus]
    if file.flags.mig_strategy == "mixed":
        kinds += [(each, "mig", "profile") for each in file.resources.migs]
    taken = {_qualified(x.name, domain) for x in file.sharing.mps.resources}
    is_first = True
    for each, preset, attribute in kinds:
        name = _qualified(each.name, domain)
        if name in taken:
            continue
        select: Any = preset
        if each.pattern != "*":
            select = {"preset": preset, "attributes": {attribute: each.pattern}}
        values: Values = {"name": name, "select": select, **({"compat": "nvidia"} | env if is_first else _BY_CDI)}
        remarks: list[str] = [] if is_first else [_TWICE]
        if (sharing := shared.get(name)) is not None:
            if sharing.devices != "all":
                yield LeftOut(name, "some of its GPUs have replicas, and a resource has the same shares for all")
                continue
            if sharing.rename or slicing.rename_by_default:
                values["name"] = _qualified(sharing.rename, domain) if sharing.rename else f"{name}.shared"
            values["shares"] = sharing.replicas
            if slicing.fail_requests_greater_than_one:
                values["preferred"] = "distinct"
                remarks.append("two shares of one GPU are refused; before, any two were (failRequestsGreaterThanOne).")
        is_first = False
        yield Offered(values, tuple(remarks), settings=_NVML if preset == "mig" else {})


def _qualified(name: str, domain: str) -> str:
    return name if "/" in name else f"{domain}/{name}"
