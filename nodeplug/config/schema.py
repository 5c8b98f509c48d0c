"""The configuration file, each setting once: name, type, limits, default and help.

Everything else is derived from here: the strict reader (document.py), the JSON Schema and the
reference in docs/configuration.md (reference.py). Names in the file are camelCase; a missing key is `UNSET`.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from nodeplug.config.settings import Settings
from resources.resource import Api, CdiPolicy, HealthPolicy, Identity, Ids, PreferredPolicy, TaintPolicy, Userspace

Value: TypeAlias = bool | int | str
Texts: TypeAlias = str | tuple[str, ...]
Compat: TypeAlias = Literal["sriov", "kubevirt", "nvidia"]
_Amount: TypeAlias = int | str
_Owner: TypeAlias = Annotated[int, Meta(ge=0, le=4294967294)]


class Select(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Which devices a resource offers. A device must match all keys, and one entry of each list."""

    preset: Annotated[
        Texts | UnsetType, Meta(description="The name of a class of devices, see [Presets](#presets).")
    ] = UNSET
    kind: Annotated[Texts | UnsetType, Meta(description="The kind of device, see [Attributes](#attributes).")] = UNSET
    id: Annotated[Texts | UnsetType, Meta(description="A device id, as `nodeplug discover` shows it, or a glob.")] = (
        UNSET
    )
    path: Annotated[
        Texts | UnsetType,
        Meta(description="A glob below /dev that matches all of a device's nodes. `*` does not match `/`, `**` does."),
    ] = UNSET
    attributes: Annotated[
        Mapping[str, Value | tuple[Value, ...]],
        Meta(
            description='Attributes by name. Texts are globs. Numbers and versions can also be comparisons (`">=2"`) '
            'or ranges (`"2..7"`); `memory` and `size` take units, `">=10Gi"`.'
        ),
    ] = {}
    all: Annotated["tuple[str | Select, ...] | UnsetType", Meta(description="Selectors that must all match.")] = UNSET
    any: Annotated["tuple[str | Select, ...] | UnsetType", Meta(description="Selectors of which one must match.")] = (
        UNSET
    )
    negated: Annotated["str | Select | UnsetType", Meta(description="A selector that must not match.")] = field(
        default=UNSET, name="not"
    )


class SharesEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """How many shares some of a resource's devices have. Exactly one of `count` and `memory`."""

    select: Annotated[str | Select | UnsetType, Meta(description="Which devices. Default: all.")] = UNSET
    count: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType, Meta(description="How many containers can use each device at once.")
    ] = UNSET
    memory: Annotated[
        _Amount | UnsetType,
        Meta(
            description="One share for each so much of a device's `memory`: `10Gi`. Through DRA a claim can request "
            "another amount; without one it gets this amount."
        ),
    ] = UNSET


class PathEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One node of a group of paths."""

    path: Annotated[
        str, Meta(description="A glob below /dev. The wildcards of all paths in a group match the same text.")
    ]
    container_path: Annotated[str, Meta(description="The path of the node in the container. Empty: the same path.")] = (
        ""
    )
    optional: Annotated[bool, Meta(description="The group is offered even if this node does not exist.")] = False


class GroupEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Which devices form one device. Exactly one key."""

    within: Annotated[
        str | UnsetType, Meta(description="Devices that are parts of one device of this kind: `usb`, `pci`.")
    ] = UNSET
    attribute: Annotated[str | UnsetType, Meta(description="Devices that have the same value of this attribute.")] = (
        UNSET
    )
    paths: Annotated[
        tuple[PathEntry, ...] | UnsetType,
        Meta(description="Device nodes that form one device, each with its own path in the container."),
    ] = UNSET
    folder: Annotated[
        str | UnsetType,
        Meta(
            description="A folder below /dev, such as `/dev/snd`: all nodes in it and in its subfolders form one "
            "device."
        ),
    ] = UNSET


class MountEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A host path that is mounted into the container."""

    host_path: Annotated[str, Meta(description="A path below one of `settings.allowedMounts`.")]
    container_path: Annotated[str, Meta(description="The path in the container. Empty: the same path.")] = ""
    read_only: Annotated[bool, Meta(description="Mount it read-only.")] = True


class MpsEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The folders of the control daemon of NVIDIA's Multi-Process Service, below one of `settings.allowedMounts`."""

    pipe_directory: Annotated[str, Meta(description="Its `CUDA_MPS_PIPE_DIRECTORY`, which containers also get.")]
    shm_directory: Annotated[str, Meta(description="Its folder of shared memory, which containers get as `/dev/shm`.")]


class AccessEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Owner and mode of device nodes in the container, so that users other than root can open them.

    It uses CDI: not with `cdi: false`, and without effect if the container runtime has CDI switched off.
    """

    uid: Annotated[_Owner | UnsetType, Meta(description="The owner. Default: as on the host.")] = UNSET
    gid: Annotated[_Owner | UnsetType, Meta(description="The group. Default: as on the host.")] = UNSET
    mode: Annotated[
        Annotated[str, Meta(pattern="^0?[0-7]{3}$")] | UnsetType,
        Meta(description='Permission bits, octal and in quotes: `"0660"`. Default: as on the host.'),
    ] = UNSET


class CapacityEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A capacity of a device and, for a device with shares, the amounts that a claim can request.

    The amounts are a list (`validValues`) or a range (`min`); a request is rounded up. Default: any amount.
    """

    value: Annotated[_Amount, Meta(description="The whole amount, a Kubernetes quantity: `80Gi`, `25G`, `100`.")]
    default: Annotated[
        _Amount | UnsetType, Meta(description="What a claim gets if it requests no amount. Required with `shares`.")
    ] = UNSET
    valid_values: Annotated[
        tuple[_Amount, ...], Meta(description="Up to ten amounts that a claim can get, in ascending order.")
    ] = ()
    minimum: Annotated[_Amount | UnsetType, Meta(description="The smallest amount that a claim can get.")] = field(
        default=UNSET, name="min"
    )
    maximum: Annotated[
        _Amount | UnsetType, Meta(description="The largest amount that a claim can get. Default: `value`.")
    ] = field(default=UNSET, name="max")
    step: Annotated[
        _Amount | UnsetType, Meta(description="Amounts are `min` plus a multiple of `step`. Default: any amount.")
    ] = UNSET


class PartitionEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A part of a device that is allocated on its own."""

    name: Annotated[
        str,
        Meta(description="The part is offered as `<device>-<name>`, and its attribute `partitionType` has this name."),
    ]
    count: Annotated[
        int, Meta(ge=1, le=128, description="How many of these parts a device has if no other parts are allocated.")
    ] = 1
    consumes: Annotated[Mapping[str, _Amount], Meta(description="What the part takes from the device's `counters`.")]
    attributes: Annotated[
        Mapping[str, Value], Meta(description="Attributes of the part, in addition to those of its device.")
    ] = {}
    capacity: Annotated[Mapping[str, _Amount], Meta(description="The capacities of the part.")] = {}


class InterfaceEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a claim or its class may choose for an interface that moves into a pod."""

    name: Annotated[bool, Meta(description="The interface's name in the pod. Default: as on the host.")] = False
    mtu: Annotated[bool, Meta(description="The MTU, within the limits of the interface.")] = False
    mac: Annotated[bool, Meta(description="The hardware address.")] = False
    addresses: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses from these prefixes: `192.0.2.0/24`. Until the container starts they belong to the"
            " node, so do not use a prefix that the node itself communicates with."
        ),
    ] = ()


class BindEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The driver of a claim's PCI functions, and how containers open them."""

    driver: Annotated[Literal["vfio-pci"], Meta(description="The driver. Its module must already be loaded.")] = (
        "vfio-pci"
    )
    iommufd: Annotated[
        bool,
        Meta(
            description="Containers get `/dev/vfio/devices/vfioN` of each function, and `/dev/iommu`. Otherwise they "
            "get the IOMMU group's `/dev/vfio/N`, and `/dev/vfio/vfio`."
        ),
    ] = False


class DraEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """How devices are offered through DRA. Needs `api: dra` or `api: both`."""

    taint: Annotated[
        TaintPolicy,
        Meta(
            description="The taint of an unhealthy device: `NoSchedule` keeps new claims away, `NoExecute` also ends "
            "the pods that use it, `none` only reports it."
        ),
    ] = "NoSchedule"
    attributes: Annotated[
        Mapping[str, Value],
        Meta(
            description="Additional attributes of each device in slices and in the metadata of claims: "
            '`k8s.cni.cncf.io/deviceID: "{pciBusID}"`. Texts can refer to attributes, as in `env`; a text that is one '
            'attribute alone, such as `"{numaNode}"`, has the type of that attribute.'
        ),
    ] = {}
    capacity: Annotated[
        Mapping[str, _Amount | CapacityEntry],
        Meta(description="The capacities of each device. GPUs report their `memory` themselves."),
    ] = {}
    counters: Annotated[
        Mapping[str, _Amount], Meta(description="The counters of each device, from which its `partitions` take.")
    ] = {}
    partitions: Annotated[
        tuple[PartitionEntry, ...],
        Meta(description="The parts in which each device is offered. The whole device is then not offered."),
    ] = ()
    binding_conditions: Annotated[
        tuple[str, ...],
        Meta(description="Conditions that your controller must set for a claim's device before its pod starts."),
    ] = ()
    binding_failure_conditions: Annotated[
        tuple[str, ...],
        Meta(description="Conditions with which your controller reports that the device cannot be used."),
    ] = ()
    extended_resource: Annotated[
        bool,
        Meta(
            description="The DeviceClass that `nodeplug classes` prints also lets pods request the resource's name in"
            " their limits. Not with `api: both`."
        ),
    ] = False
    interface: Annotated[
        Literal["move"] | InterfaceEntry | UnsetType,
        Meta(
            description="`move`: the network interface of a device moves into the pod that claims it, and back when "
            "the pod ends, see [Interfaces that move](claims.md#interfaces-that-move). An object also "
            "defines what a claim may choose."
        ),
    ] = UNSET
    bind: Annotated[
        Literal["vfio-pci"] | BindEntry | UnsetType,
        Meta(
            description="`vfio-pci`: while a claim has a PCI function, its whole IOMMU group uses this driver. "
            "Afterwards each function gets its own driver back, see [Devices for virtual "
            "machines](claims.md#devices-for-virtual-machines)."
        ),
    ] = UNSET


class ResourceEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A name under which devices are offered. The first resource that selects a device owns it."""

    name: Annotated[str, Meta(description="The extended resource that pods request: `example.com/gpu`.")]
    on_nodes: Annotated[
        Texts,
        Meta(
            description="Globs: only nodes with a matching name offer the resource. Default: every node. If several "
            "resources have the same name, each node uses the first one that applies to it."
        ),
    ] = ()
    node_selector: Annotated[
        Mapping[str, Texts],
        Meta(
            description="Labels: only nodes that have all of them offer the resource. Values are globs, `{zone: [a, "
            "b*]}`; `*` matches every value. Needs the API server, see [above](#nodes-that-differ)."
        ),
    ] = {}
    select: Annotated[
        str | Select | UnsetType,
        Meta(
            description="Which devices are offered: a preset's name, or a selector. Not needed with `group.paths` and"
            " `group.folder`."
        ),
    ] = UNSET
    group: Annotated[
        Literal["parent", "functions"] | GroupEntry | UnsetType,
        Meta(
            description="Which devices are offered as one: `parent` (parts of the same device), `functions` (of one "
            "PCI device), or a group."
        ),
    ] = UNSET
    nodes: Annotated[
        Texts | UnsetType,
        Meta(
            description="Globs below /dev: containers get only these nodes of a device. Default: all. If none of its "
            "nodes match, the device is not offered, unless it is a network interface or a PCI function."
        ),
    ] = UNSET
    container_path: Annotated[
        str,
        Meta(
            description="The path in the container of a device's only node, `/dev/zigbee`, or of the nodes of "
            "`group.folder`. It can refer to attributes: `/dev/zigbee-{serial}`. Empty: the same path as "
            "on the host."
        ),
    ] = ""
    shares: Annotated[int, Meta(ge=1, description="How many containers can use one device at once.")] = 1
    shares_of: Annotated[
        tuple[SharesEntry, ...],
        Meta(
            description="Other numbers of shares for some devices: the first matching entry applies, and `shares` to "
            "all other devices."
        ),
    ] = ()
    permissions: Annotated[
        str,
        Meta(
            pattern="^[rwm]{1,3}$",
            description="What a container may do with a device node: read, write, mknod (`rwm`).",
        ),
    ] = "rw"
    env: Annotated[
        Mapping[str, str],
        Meta(
            description="Environment variables. Values can refer to `{ids}`, `{devnodes}`, `{pciFunctions}` and "
            "attributes; `{{` is a brace."
        ),
    ] = {}
    mounts: Annotated[tuple[MountEntry, ...], Meta(description="Host paths that are mounted into the container.")] = ()
    annotations: Annotated[
        Mapping[str, str],
        Meta(
            description="Annotations for the container runtime, with values like those of `env`. Not with `api: dra`."
        ),
    ] = {}
    cdi: Annotated[
        CdiPolicy,
        Meta(
            description="How containers get device nodes, see [above](#device-nodes-in-containers). `auto`: as plain "
            "nodes and by CDI names. `true`: only by CDI names. `false`: only as plain nodes. Through DRA"
            " always by CDI names."
        ),
    ] = "auto"
    cdi_devices: Annotated[
        tuple[str, ...],
        Meta(
            description="CDI devices of other programs that containers get with each device, `nvidia.com/gpu={uuid}`,"
            " see [above](#cdi-devices-of-others). The part after `=` can refer to attributes."
        ),
    ] = ()
    userspace: Annotated[
        Userspace | UnsetType,
        Meta(
            description="The driver whose libraries and tools containers get from the host: `nvidia`, see "
            "[the page](nvidia-gpus.md#the-drivers-files-without-the-toolkit). It uses CDI, so not with `cdi: false`."
        ),
    ] = UNSET
    mps: Annotated[
        MpsEntry | UnsetType,
        Meta(
            description="Share GPUs through NVIDIA's Multi-Process Service, see [the "
            "recipe](recipes.md#a-gpu-shared-through-mps): its folders and, with `shares`, the part of "
            "the multiprocessors that each share gets. While its control daemon does not run, no pod gets"
            " a device."
        ),
    ] = UNSET
    access: Annotated[AccessEntry | UnsetType, Meta(description="Owner and mode of device nodes in the container.")] = (
        UNSET
    )
    preferred: Annotated[
        PreferredPolicy,
        Meta(
            description="Which devices a container with several gets, if the kubelet lets the plugin choose: `numa` "
            "(one hive, one NUMA node), `packed` (shares of few devices), `spread` (shares of many "
            "devices), `distinct` (never two shares of one device)."
        ),
    ] = "numa"
    topology: Annotated[
        bool,
        Meta(
            description="Report each device's NUMA nodes to the kubelet's topology manager. `false`: the topology "
            "manager treats the device as near to all NUMA nodes, and refuses no pod because of it. DRA "
            "slices contain the NUMA node either way."
        ),
    ] = True
    compat: Annotated[
        Compat | UnsetType,
        Meta(
            description="Set the variables, ids and attributes that these programs expect, see "
            "[above](#what-other-programs-expect). Other keys of the resource override it."
        ),
    ] = UNSET
    identity: Annotated[
        Identity,
        Meta(
            description="How a device is identified: by itself (`device`), or by its USB port (`port`) if it turns "
            "into another device (when firmware is loaded). `select` must then match all its forms."
        ),
    ] = "device"
    ids: Annotated[
        Ids | UnsetType,
        Meta(
            description="The id of a device in the device plugin API, in pod-resources and `{ids}`: `identity` (the "
            "default: nodeplug's own, the same wherever it is plugged in), `pciBusID`, `uuid`, `path` (of"
            " its only node), or `auxiliary` (of a sub-function). A device that has no such id, or the "
            "same one as another device, is not offered. With `shares`: `ID::0`."
        ),
    ] = UNSET
    vhost_net: Annotated[
        bool,
        Meta(
            description="Containers also get /dev/vhost-net and /dev/net/tun, with which a DPDK program passes "
            "packets to the kernel. Many containers can have them at once. If they do not exist, no pod "
            "gets a device."
        ),
    ] = False
    additional_info: Annotated[
        dict[str, dict[str, str]],
        Meta(
            description="With `compat: sriov`: texts for `PCIDEVICE_<NAME>_INFO`, by the address of a function. `*` "
            'applies to all functions, `{"*": {token: x}}`; an address overrides it.'
        ),
    ] = {}
    health: Annotated[
        HealthPolicy,
        Meta(description="`strict`: every health signal counts. `present`: a device is healthy as long as it exists."),
    ] = "strict"
    evict_after_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=86400)] | UnsetType,
        Meta(
            description="Evict a pod when its device, allocated through the device plugin API, has been gone for so "
            "long, see [Unplugged devices](operating.md#unplugged-devices). Default: do not evict."
        ),
    ] = UNSET
    reset: Annotated[
        bool, Meta(description="Reset the device before each container starts (PCI function-level reset).")
    ] = False
    dangerous: Annotated[
        bool,
        Meta(
            description="Also offer devices that can harm the node: block devices, /dev/mem and "
            "[others](#one-owner-and-dangerous-devices)."
        ),
    ] = False
    api: Annotated[
        Api,
        Meta(
            description="Through which of the kubelet's APIs: `device-plugin`, `dra`, or `both`. With `both`, a "
            "device that one API has allocated is not available through the other."
        ),
    ] = "device-plugin"
    dra: Annotated[DraEntry | UnsetType, Meta(description="How the devices are offered through DRA.")] = UNSET

    @property
    def is_shared(self) -> bool:
        """Return whether devices are offered in shares."""
        return self.shares > 1 or bool(self.shares_of)


API_VERSION: Final = "nodeplug.dev/v1"


class File(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    api_version: Annotated[
        str,
        Meta(
            description="The version of the file's format: `nodeplug.dev/v1`. Optional.",
            extra_json_schema={"const": API_VERSION},
        ),
    ] = API_VERSION
    resources: Annotated[
        tuple[ResourceEntry, ...],
        Meta(description="What the node offers. If several resources select a device, the first one gets it."),
    ]
    settings: Annotated[Settings, Meta(description="The daemon's own settings.")] = Settings()
