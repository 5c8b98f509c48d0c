"""Keys that only some kinds of devices can have: a resource whose selector means none of these is wrong in the file.

Where devices of several kinds are meant, those that lack it say so one by one, as unavailable.
"""

from msgspec import UNSET

from hostdevices import Device
from hostdevices.readers import BY_KIND
from nodeplug.config.document import Document, Path
from nodeplug.config.schema import ResourceEntry
from nodeplug.config.selectors import KINDS
from resources.selector import AllOf, AnyOf, Attribute, Preset, Selection, concerns

_WITH_INTERFACE = frozenset({"nic", "pci", "rdma", "usb"})
_NEVER_ON_USB = frozenset({"dsa", "mdev", "misc", "nvme", "pci", "qat", "rdma", "vdpa", "vfio"})
_NEVER_ON_PCI = frozenset({"mdev", "misc", "usb"})
_NVIDIAS = Device("", "gpu", "", attributes={"vendor": "10de"})


def _is_of_others(selector: Selection) -> bool:
    """Tell whether a selector names vendors, and NVIDIA is none of them."""
    match selector:
        case Attribute("vendor", _):
            return bool(selector.why_not(_NVIDIAS))
        case Preset(_, inner):
            return _is_of_others(inner)
        case AllOf(selectors):
            return any(map(_is_of_others, selectors))
        case AnyOf(selectors):
            return bool(selectors) and all(map(_is_of_others, selectors))
        case _:
            return False


def check_kinds(document: Document, path: Path, entry: ResourceEntry, selector: Selection) -> None:
    """Add findings about keys of a resource at `path` that none of the devices which it may mean can have."""
    kinds = {kind for kind in KINDS if concerns(selector, kind)}
    shown = ", ".join(sorted(kinds)) or "none"
    wrong = f"no device that is selected here (kind: {shown}) can have"
    for name, is_said in (
        ("userspace", entry.userspace is not UNSET),
        ("mps", entry.mps is not UNSET),
        ("compat", entry.compat == "nvidia"),
    ):
        if is_said and _is_of_others(selector):
            document.at((*path, name), "this is for NVIDIA's GPUs, and others are selected", "leave it out", key=True)
            return
    if entry.userspace is not UNSET and "gpu" not in kinds:
        hint = "leave it out, or select GPUs"
        document.at((*path, "userspace"), f"{wrong} a GPU's driver", hint, key=True)
    if entry.mps is not UNSET and "gpu" not in kinds:
        document.at((*path, "mps"), f"{wrong} it: MPS is NVIDIA's", "leave it out, or select GPUs", key=True)
    with_uuid = {kind for kind, reader in BY_KIND.items() if "uuid" in reader.attributes}
    if not kinds & with_uuid:
        if entry.ids == "uuid" and entry.api != "dra":
            document.at((*path, "ids"), f"{wrong} a UUID", f"kinds with one: {', '.join(sorted(with_uuid))}", key=True)
        elif entry.ids is UNSET and entry.compat == "nvidia":
            document.at((*path, "compat"), f"{wrong} a UUID, by which NVIDIA's programs know a GPU", "select GPUs")
    if entry.compat == "sriov" and kinds <= _NEVER_ON_PCI:
        document.at((*path, "compat"), f"{wrong} a PCI address, by which Multus knows it", "select functions")
    if entry.dra is not UNSET and entry.dra.interface is not UNSET and not kinds & _WITH_INTERFACE:
        hint = f"kinds with one: {', '.join(sorted(_WITH_INTERFACE))}"
        document.at((*path, "dra", "interface"), f"{wrong} a network interface", hint, key=True)
    if entry.identity == "port" and entry.group is UNSET and kinds <= _NEVER_ON_USB:
        document.at((*path, "identity"), f"{wrong} a USB port", "leave it out", key=True)
    with_memory = {kind for kind, reader in BY_KIND.items() if "memory" in reader.attributes}
    for i, each in enumerate(entry.shares_of):
        if each.memory is not UNSET and not kinds & with_memory:
            message = f"{wrong} `memory`"
            document.at((*path, "sharesOf", i, "memory"), message, "say how many shares: `count`", key=True)
        if i and entry.shares_of[i - 1].select is UNSET:
            message = "this counts for no device: the entry before it means all"
            document.at((*path, "sharesOf", i), message, "put it first, or give the other one `select`")
