"""The configuration file, each setting once: name, type, limits, default and help.

Everything else that knows the settings is derived from here: the strict reader (document.py), the JSON Schema and the
reference in docs/configuration.md (reference.py). Names in the file are camelCase; what is not set is `UNSET`.
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
    """Which devices are meant. All keys that are given must agree; of a list, one entry."""

    preset: Annotated[Texts | UnsetType, Meta(description="The name of a class of devices, see Presets.")] = UNSET
    kind: Annotated[Texts | UnsetType, Meta(description="The kind of device, see Attributes.")] = UNSET
    id: Annotated[Texts | UnsetType, Meta(description="A device id, as `nodeplug discover` shows it, or a glob.")] = (
        UNSET
    )
    path: Annotated[
        Texts | UnsetType,
        Meta(description="A glob below /dev that fits all of a device's nodes. `*` does not cross `/`, `**` does."),
    ] = UNSET
    attributes: Annotated[
        Mapping[str, Value | tuple[Value, ...]],
        Meta(
            description="Attributes by name. Texts are globs; numbers and versions may also be compared "
            '(`">=2"`) or be a range (`"2..7"`), and `memory` and `size` be written as in `">=10Gi"`.'
        ),
    ] = {}
    all: Annotated["tuple[str | Select, ...] | UnsetType", Meta(description="Selectors that must all agree.")] = UNSET
    any: Annotated["tuple[str | Select, ...] | UnsetType", Meta(description="Selectors of which one must agree.")] = (
        UNSET
    )
    negated: Annotated["str | Select | UnsetType", Meta(description="A selector that must not agree.")] = field(
        default=UNSET, name="not"
    )


class SharesEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """How many shares some of a resource's devices have. One of `count` and `memory`."""

    select: Annotated[str | Select | UnsetType, Meta(description="Which of them. Without: all.")] = UNSET
    count: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType, Meta(description="How many containers may use each at once.")
    ] = UNSET
    memory: Annotated[
        _Amount | UnsetType,
        Meta(
            description="One share for each so much of a device's `memory`: `10Gi`. Through DRA a claim can ask for "
            "another amount of it; who does not gets this."
        ),
    ] = UNSET


class PathEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One node of a group of paths."""

    path: Annotated[
        str, Meta(description="A glob below /dev. The wildcards of a group's paths stand for the same text.")
    ]
    container_path: Annotated[str, Meta(description="Where the container sees the node. Empty: at the same path.")] = ""
    optional: Annotated[bool, Meta(description="Whether the group may do without it.")] = False


class GroupEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What makes devices belong together. Exactly one key."""

    within: Annotated[str | UnsetType, Meta(description="They are parts of one device of this kind: `usb`, `pci`.")] = (
        UNSET
    )
    attribute: Annotated[str | UnsetType, Meta(description="They have the same value of this attribute.")] = UNSET
    paths: Annotated[
        tuple[PathEntry, ...] | UnsetType,
        Meta(description="Nodes that go together, each with its own path in the container."),
    ] = UNSET
    folder: Annotated[
        str | UnsetType,
        Meta(description="A folder below /dev: all nodes in it and in its folders are handed out as one, `/dev/snd`."),
    ] = UNSET


class MountEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A host path that the container sees."""

    host_path: Annotated[str, Meta(description="A path below one of `settings.allowedMounts`.")]
    container_path: Annotated[str, Meta(description="Where the container sees it. Empty: at the same path.")] = ""
    read_only: Annotated[bool, Meta(description="Whether the container may only read it.")] = True


class MpsEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Where the control daemon of NVIDIA's Multi-Process Service is. Both are below one of `settings.allowedMounts`."""

    pipe_directory: Annotated[str, Meta(description="Its `CUDA_MPS_PIPE_DIRECTORY`; containers have it, too.")]
    shm_directory: Annotated[str, Meta(description="Its folder of shared memory, which is `/dev/shm` of containers.")]


class AccessEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Who owns device nodes inside the container, so that others than root can open them.

    Only CDI can say so: not with `cdi: false`, and without effect in a runtime that has CDI switched off.
    """

    uid: Annotated[_Owner | UnsetType, Meta(description="The owner. Without: as on the host.")] = UNSET
    gid: Annotated[_Owner | UnsetType, Meta(description="The group. Without: as on the host.")] = UNSET
    mode: Annotated[
        Annotated[str, Meta(pattern="^0?[0-7]{3}$")] | UnsetType,
        Meta(description='Permission bits, octal and in quotes: `"0660"`. Without: as on the host.'),
    ] = UNSET


class CapacityEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """How much of something a device has, and, of a device with shares, what a claim may ask for.

    What a claim may ask for is a list (`validValues`) or a range (`min`); it is rounded up. Without, any amount.
    """

    value: Annotated[_Amount, Meta(description="How much there is, a Kubernetes quantity: `80Gi`, `25G`, `100`.")]
    default: Annotated[
        _Amount | UnsetType, Meta(description="What a claim gets that does not ask for it. Needed with `shares`.")
    ] = UNSET
    valid_values: Annotated[
        tuple[_Amount, ...], Meta(description="At most ten amounts that a claim can get, in ascending order.")
    ] = ()
    minimum: Annotated[_Amount | UnsetType, Meta(description="The least amount that a claim can get.")] = field(
        default=UNSET, name="min"
    )
    maximum: Annotated[_Amount | UnsetType, Meta(description="The most that a claim can get. Without: `value`.")] = (
        field(default=UNSET, name="max")
    )
    step: Annotated[_Amount | UnsetType, Meta(description="Amounts are `min` and so many steps. Without: any.")] = UNSET


class PartitionEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A part of a device that is given out alone."""

    name: Annotated[
        str,
        Meta(
            description="The part is offered as `<device>-<name>`, and has the name as the attribute `partitionType`."
        ),
    ]
    count: Annotated[
        int, Meta(ge=1, le=128, description="How many of them a device has, if the others take nothing.")
    ] = 1
    consumes: Annotated[Mapping[str, _Amount], Meta(description="What it takes from the device's `counters`.")]
    attributes: Annotated[
        Mapping[str, Value], Meta(description="Attributes of the part, beside those of its device.")
    ] = {}
    capacity: Annotated[Mapping[str, _Amount], Meta(description="How much of what the part has.")] = {}


class InterfaceEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a claim or its class may choose of an interface that moves into a pod."""

    name: Annotated[bool, Meta(description="Its name inside. Without: as on the host.")] = False
    mtu: Annotated[bool, Meta(description="Its MTU, as far as the interface can.")] = False
    mac: Annotated[bool, Meta(description="Its hardware address.")] = False
    addresses: Annotated[
        tuple[str, ...],
        Meta(
            description="Its addresses, from these prefixes: `192.0.2.0/24`. Until the container starts they are the "
            "node's: never a prefix that the node itself talks to."
        ),
    ] = ()


class BindEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which driver a claim's PCI functions have, and how containers open them."""

    driver: Annotated[Literal["vfio-pci"], Meta(description="The driver. Its module is loaded already.")] = "vfio-pci"
    iommufd: Annotated[
        bool,
        Meta(
            description="Containers get `/dev/vfio/devices/vfioN` of each function, and `/dev/iommu`. Without: the "
            "IOMMU group's `/dev/vfio/N`, and `/dev/vfio/vfio`."
        ),
    ] = False


class DraEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """How devices are offered through DRA. Needs `api: dra` or `api: both`."""

    taint: Annotated[
        TaintPolicy,
        Meta(
            description="What an unhealthy device gets: `NoSchedule` keeps new claims away, `NoExecute` also ends the "
            "pods that use it, `none` only reports it."
        ),
    ] = "NoSchedule"
    attributes: Annotated[
        Mapping[str, Value],
        Meta(
            description="Attributes of each device in slices and in the metadata of claims, beside its own: "
            '`k8s.cni.cncf.io/deviceID: "{pciBusID}"`. Texts may name attributes, as those of `env`; '
            'one that is an attribute and no more, as `"{numaNode}"`, has its type.'
        ),
    ] = {}
    capacity: Annotated[
        Mapping[str, _Amount | CapacityEntry],
        Meta(description="How much of what each device has. GPUs tell their `memory` by themselves."),
    ] = {}
    counters: Annotated[
        Mapping[str, _Amount], Meta(description="What each device has for its `partitions` to take from.")
    ] = {}
    partitions: Annotated[
        tuple[PartitionEntry, ...],
        Meta(description="The parts in which each device is offered, and then never as a whole."),
    ] = ()
    binding_conditions: Annotated[
        tuple[str, ...],
        Meta(
            description="Conditions that a controller of yours must report of a claim's device before its pod starts."
        ),
    ] = ()
    binding_failure_conditions: Annotated[
        tuple[str, ...], Meta(description="Conditions with which it says that the device cannot be had.")
    ] = ()
    extended_resource: Annotated[
        bool,
        Meta(
            description="Whether the DeviceClass that `nodeplug classes` prints lets pods ask for the resource's name "
            "in their limits, too. Not with `api: both`."
        ),
    ] = False
    interface: Annotated[
        Literal["move"] | InterfaceEntry | UnsetType,
        Meta(
            description="`move`: the network interface of a device moves into the pod that claims it, and comes back, "
            "see [Interfaces that move](claims.md#interfaces-that-move). An object also says what a claim may choose."
        ),
    ] = UNSET
    bind: Annotated[
        Literal["vfio-pci"] | BindEntry | UnsetType,
        Meta(
            description="`vfio-pci`: while a claim has a PCI function, this is the driver of its whole IOMMU group; "
            "then each has its own again, see [Devices for virtual machines](claims.md#devices-for-virtual-machines)."
        ),
    ] = UNSET


class ResourceEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A name under which devices are offered. The first resource that means a device owns it."""

    name: Annotated[str, Meta(description="The extended resource that pods ask for: `example.com/gpu`.")]
    on_nodes: Annotated[
        Texts,
        Meta(
            description="Globs: only nodes with such a name offer it; every node without. Of several resources of one "
            "name the first that is for a node counts there."
        ),
    ] = ()
    node_selector: Annotated[
        Mapping[str, Texts],
        Meta(
            description="Labels: only nodes that have all of them offer it. Values are globs, `{zone: [a, b*]}`; `*` "
            "is whatever the label says. Needs the API server, see [above](#unlike-nodes)."
        ),
    ] = {}
    select: Annotated[
        str | Select | UnsetType,
        Meta(
            description="Which devices are meant: a preset's name, or a selector. `group.paths` and `group.folder` "
            "can stand for it."
        ),
    ] = UNSET
    group: Annotated[
        Literal["parent", "functions"] | GroupEntry | UnsetType,
        Meta(
            description="Which of them are handed out as one: `parent` (parts of the same device), `functions` "
            "(of one PCI device), or a group."
        ),
    ] = UNSET
    nodes: Annotated[
        Texts | UnsetType,
        Meta(
            description="Globs below /dev: only these of a device's nodes are handed out. Without: all. A device of "
            "which they fit none is given to nobody, unless it is a network interface or a PCI function."
        ),
    ] = UNSET
    container_path: Annotated[
        str,
        Meta(
            description="Where the container sees a device's one node, `/dev/zigbee`, or the nodes of `group.folder`. "
            "It may name attributes: `/dev/zigbee-{serial}`. Empty: at the same path."
        ),
    ] = ""
    shares: Annotated[int, Meta(ge=1, description="How many containers may use one device at once.")] = 1
    shares_of: Annotated[
        tuple[SharesEntry, ...],
        Meta(
            description="Other shares for other devices: the first that means a device counts, for the rest `shares` "
            "does."
        ),
    ] = ()
    permissions: Annotated[
        str,
        Meta(pattern="^[rwm]{1,3}$", description="What a container may do with a node: read, write, mknod (`rwm`)."),
    ] = "rw"
    env: Annotated[
        Mapping[str, str],
        Meta(
            description="Environment variables. Values may name `{ids}`, `{devnodes}`, "
            "`{pciFunctions}` and attributes; `{{` is a brace."
        ),
    ] = {}
    mounts: Annotated[tuple[MountEntry, ...], Meta(description="Host paths that the container sees.")] = ()
    annotations: Annotated[
        Mapping[str, str],
        Meta(
            description="Annotations for the container runtime, with values like those of `env`. Not with `api: dra`."
        ),
    ] = {}
    cdi: Annotated[
        CdiPolicy,
        Meta(
            description="How device nodes are handed out. `auto`: plainly and by CDI names, for runtimes without CDI "
            "ignore the names. `true`: by names alone; a container that starts again finds its device wherever it is "
            "then. `false`: plainly alone. Through DRA it is always by names."
        ),
    ] = "auto"
    cdi_devices: Annotated[
        tuple[str, ...],
        Meta(
            description="CDI devices that others describe and that go with each device, `nvidia.com/gpu={uuid}`, see "
            "[above](#cdi-devices-of-others). They may name attributes behind the `=`."
        ),
    ] = ()
    userspace: Annotated[
        Userspace | UnsetType,
        Meta(
            description="Which driver's libraries and tools containers get from the host with the device: `nvidia`, "
            "see [above](#nvidia-with-nothing-else-installed). By CDI, so not with `cdi: false`."
        ),
    ] = UNSET
    mps: Annotated[
        MpsEntry | UnsetType,
        Meta(
            description="GPUs are shared through NVIDIA's Multi-Process Service, see "
            "[the recipe](recipes.md#a-gpu-shared-through-mps): its folders and, with `shares`, each one's part of the "
            "multiprocessors. While its control daemon is not there nobody gets a device."
        ),
    ] = UNSET
    access: Annotated[AccessEntry | UnsetType, Meta(description="Who owns nodes inside the container.")] = UNSET
    preferred: Annotated[
        PreferredPolicy,
        Meta(
            description="Which devices go together where the kubelet leaves it to us: `numa` (one hive, one NUMA "
            "node), `packed` (shares of few devices), `spread` (shares of many devices), `distinct` (never two shares "
            "of one)."
        ),
    ] = "numa"
    topology: Annotated[
        bool,
        Meta(
            description="The kubelet's topology manager is told each device's NUMA nodes. `false`: it places a pod as "
            "if the device were near all of them, and refuses none for it. Slices of DRA tell them either way."
        ),
    ] = True
    compat: Annotated[
        Compat | UnsetType,
        Meta(
            description="Programs that read variables, ids and attributes of the container's devices: sets what they "
            "want, see [above](#what-other-programs-expect). What the resource says itself goes before."
        ),
    ] = UNSET
    identity: Annotated[
        Identity,
        Meta(
            description="What a device is known by: `device`, itself, or `port`, its USB port, for one that becomes "
            "another device there (a firmware is loaded): `select` must mean all that it becomes."
        ),
    ] = "device"
    ids: Annotated[
        Ids | UnsetType,
        Meta(
            description="The id of a device in the device plugin API, in pod-resources and `{ids}`: `identity` (our "
            "own, the same wherever it is plugged in; without this key), or what others expect there: `pciBusID`, "
            "`uuid`, `path` (of its one node), `auxiliary` (of a sub-function). A device that has none, or the "
            "same as another, is not offered. With `shares`: `ID::0`."
        ),
    ] = UNSET
    vhost_net: Annotated[
        bool,
        Meta(
            description="Containers also get /dev/vhost-net and /dev/net/tun, which many can have at once: with them a "
            "DPDK program gives the kernel packets. Where they are missing, nobody gets a device."
        ),
    ] = False
    additional_info: Annotated[
        dict[str, dict[str, str]],
        Meta(
            description="With `compat: sriov`: texts for `PCIDEVICE_<NAME>_INFO`, by the address of a function; `*` is "
            'for all of them, `{"*": {token: x}}`. What is said of an address goes before.'
        ),
    ] = {}
    health: Annotated[
        HealthPolicy, Meta(description="`strict`: every signal counts. `present`: only that the device exists.")
    ] = "strict"
    evict_after_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=86400)] | UnsetType,
        Meta(
            description="Evict the pod whose device, given through the device plugin API, has been gone for so long, "
            "see [Unplugged devices](operating.md#unplugged-devices). Without: it stays."
        ),
    ] = UNSET
    reset: Annotated[
        bool, Meta(description="Reset the device before each container starts (PCI function-level reset).")
    ] = False
    dangerous: Annotated[
        bool,
        Meta(description="Also offer devices that can harm the node: block devices, /dev/mem and their like."),
    ] = False
    api: Annotated[
        Api,
        Meta(
            description="Through which of the kubelet's APIs: `device-plugin`, `dra`, or `both`; what one of them has "
            "given out, the other one cannot."
        ),
    ] = "device-plugin"
    dra: Annotated[DraEntry | UnsetType, Meta(description="How they are offered through DRA.")] = UNSET

    @property
    def is_shared(self) -> bool:
        """Tell whether devices are offered in shares."""
        return self.shares > 1 or bool(self.shares_of)


API_VERSION: Final = "nodeplug.dev/v1"


class File(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    api_version: Annotated[
        str,
        Meta(
            description="What the file is written in: `nodeplug.dev/v1`, which need not be said.",
            extra_json_schema={"const": API_VERSION},
        ),
    ] = API_VERSION
    resources: Annotated[
        tuple[ResourceEntry, ...], Meta(description="What is offered, in the order in which devices are given away.")
    ]
    settings: Annotated[Settings, Meta(description="The daemon's own settings.")] = Settings()
