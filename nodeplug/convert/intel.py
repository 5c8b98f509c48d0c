"""Intel's device plugins with few settings: NPU, SGX, DSA, IAA, DLB and FPGA.

Each is a program with flags, or an object of their operator. The names of resources are fixed.

Source: intel/intel-device-plugins-for-kubernetes, README of each plugin and the operator's samples.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from hostdevices import Host
from nodeplug.convert.conversion import LeftOut, Offered, Values, one_or_all
from nodeplug.convert.wrapping import Wrapping

_DLB = re.compile(r"dlb[0-9]+")
_PREPARED = "nodeplug does not do what the init container does (provisioningConfig): {}."
_QUEUES = "enabling work queues"
_NUMBERS = "containers do not get the links below /dev/char, with which libaccel-config finds the node of a queue."
_DSA_FUNCTIONS = ("0b25", "11fb", "1212")


class Spec(Struct, frozen=True, rename="camel"):
    """The common part of the operator's objects."""

    image: str = ""
    init_image: str = ""
    provisioning_config: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, str | int], ...] = ()
    log_level: int = 0

    def remarks(self, prepared: str = "") -> list[str]:
        """Return the remarks on the common part; `prepared` is the work of the init container."""
        return [_PREPARED.format(prepared)] if prepared and (self.init_image or self.provisioning_config) else []


class Plugin(Struct, frozen=True):
    """One of the plugins: its name in `--from`, the schema of its settings, and the conversion."""

    name: str
    schema: type
    resources: Callable[[Any, str, Host], Iterator[Offered | LeftOut]]
    flags: Mapping[str, str] = {}
    variables: Mapping[str, str] = {}

    @property
    def domain(self) -> str:
        """Return the domain of its resources' names."""
        return f"{self.name}.intel.com"

    @property
    def wrapping(self) -> Wrapping:
        """Return the containers of its settings."""
        kind = f"{self.name.capitalize()}DevicePlugin"
        return Wrapping(kind, f"intel-{self.name}-plugin", self.flags, self.variables)


class Shared(Spec, frozen=True, rename="camel"):
    """A plugin whose devices several containers can have."""

    shared_dev_num: int = 1


class Dsa(Shared, frozen=True, rename="camel"):
    """Work queues, or with vfio-pci whole functions."""

    driver: str = "idxd"


class Sgx(Spec, frozen=True, rename="camel"):
    """How many containers of a node can have enclaves."""

    enclave_limit: int = 110
    provision_limit: int = 110
    dcap_infra_resources: bool = False
    pods_per_core: int = 0


class Fpga(Spec, frozen=True, rename="camel"):
    """The unit of a device: a programmed function (af), or a region."""

    mode: str = "af"


def offered(name: str, values: Values, remarks: list[str], shares: int = 1) -> Offered:
    """Return a resource, with its shares if it has several."""
    return Offered({"name": name, **values, **({"shares": shares} if shares > 1 else {})}, tuple(remarks))


def numbered(variable: str) -> str:
    """Return the remark on a variable that every device had before, with a number."""
    return (
        f"{variable}0 contains the addresses of all functions, with commas; before, each function had its own variable."
    )


def _npu(file: Shared, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    select = {"preset": "accel", "attributes": {"type": "accel", "vendor": "8086"}}
    yield offered(f"{domain}/accel", {"select": select}, file.remarks(), file.shared_dev_num)


def _sgx(file: Sgx, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    remarks = file.remarks()
    if file.pods_per_core:
        remarks.append("PODS_PER_CORE: the limit is a fixed number here, for all nodes with this file.")
    remarks.append("sgx.intel.com/epc comes from NFD and not from the plugin, so it stays.")
    yield offered(f"{domain}/enclave", {"select": "sgx"}, remarks, file.enclave_limit)
    yield offered(f"{domain}/provision", {"select": "sgx-provision"}, [], file.provision_limit)
    if file.dcap_infra_resources:
        for name in ("qe", "registration"):
            reason = f"it has the nodes of {domain}/enclave and {domain}/provision; a pod can request both"
            yield LeftOut(f"{domain}/{name}", reason)


def _queues(preset: str, file: Shared, domain: str) -> Iterator[Offered | LeftOut]:
    """Yield a resource for each mode of the work queues that are for user space."""
    remarks = [
        *file.remarks(_QUEUES),
        _NUMBERS,
        "work queues of the kernel (wq-kernel-...) have no node, and are not offered.",
    ]
    for mode in ("dedicated", "shared"):
        select = {"preset": preset, "attributes": {"mode": mode}}
        shares = file.shared_dev_num if mode == "shared" else 1
        yield offered(f"{domain}/wq-user-{mode}", {"select": select}, remarks, shares)
        remarks = []


def _dsa(file: Dsa, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    if file.driver == "vfio-pci":
        functions = {"kind": "vfio", "attributes": {"vendor": "8086", "device": list(_DSA_FUNCTIONS)}}
        values = {"select": functions, "ids": "pciBusID", "env": {"VFIO_BDF0": "{pciBusID}"}}
        yield offered(f"{domain}/vfio", values, [*file.remarks("binding functions to vfio-pci"), numbered("VFIO_BDF")])
        return
    yield from _queues("dsa", file, domain)


def _iaa(file: Shared, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    yield from _queues("iaa", file, domain)


def _dlb(file: Spec, domain: str, host: Host) -> Iterator[Offered | LeftOut]:
    """Yield a resource for the physical functions without virtual ones, and one for virtual functions."""
    functions: dict[str, list[str]] = {"pf": [], "vf": []}
    for name in sorted(filter(_DLB.fullmatch, host.list("/dev"))):
        device = f"/sys/class/dlb2/{name}/device"
        if host.exists(f"{device}/physfn"):
            functions["vf"].append(f"/dev/{name}")
        elif not host.exists(f"{device}/virtfn0"):
            functions["pf"].append(f"/dev/{name}")
    remarks = [
        *file.remarks("making virtual functions"),
        "these are the nodes of the machine that the file was converted on.",
    ]
    for role, paths in functions.items():
        if paths:
            yield offered(f"{domain}/{role}", {"select": {"path": one_or_all(paths)}}, remarks)
    if not any(functions.values()):
        yield LeftOut(
            f"{domain}/...",
            "the nodes of each device are known only on a machine that has them: run convert there, or with --root",
        )


def _fpga(file: Fpga, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    yield LeftOut(
        f"{domain}/{file.mode}-...",
        "nothing here knows FPGA regions, or programs them; nodes go by `select: {path: ...}`",
    )


PLUGINS = (
    Plugin("npu", Shared, _npu, {"shared-dev-num": "sharedDevNum"}),
    Plugin(
        "sgx",
        Sgx,
        _sgx,
        {
            "enclave-limit": "enclaveLimit",
            "provision-limit": "provisionLimit",
            "dcap-infra-resources": "dcapInfraResources",
        },
        {"PODS_PER_CORE": "podsPerCore"},
    ),
    Plugin("dsa", Dsa, _dsa, {"shared-dev-num": "sharedDevNum", "driver": "driver"}),
    Plugin("iaa", Shared, _iaa, {"shared-dev-num": "sharedDevNum"}),
    Plugin("dlb", Spec, _dlb),
    Plugin("fpga", Fpga, _fpga, {"mode": "mode"}),
)
"""The plugins of this module."""
