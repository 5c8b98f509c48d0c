"""Keys that only some kinds of devices can have: a resource that selects only other kinds is an error in the file.

If a resource selects several kinds, the devices that cannot have the key are unavailable, with the reason.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import UNSET

from hostdevices import Device
from hostdevices.readers import BY_KIND
from nodeplug.config.document import Document, Path
from nodeplug.config.schema import ResourceEntry
from nodeplug.config.selectors import KINDS
from resources.selector import AllOf, AnyOf, Attribute, Preset, Selection, concerns

_ALL = frozenset(KINDS)
_WITH_INTERFACE = frozenset({"nic", "pci", "rdma", "usb"})
_WITH_MEMORY = frozenset(kind for kind, reader in BY_KIND.items() if "memory" in reader.attributes)
_WITH_UUID = frozenset(kind for kind, reader in BY_KIND.items() if "uuid" in reader.attributes)
_MAYBE_ON_PCI = _ALL - {"mdev", "misc", "usb"}
_MAYBE_ON_USB = _ALL - {"dsa", "mdev", "misc", "nvme", "pci", "qat", "rdma", "vdpa", "vfio"}
_GPU = frozenset({"gpu"})
_NVIDIA_GPU = Device("", "gpu", "", attributes={"vendor": "10de"})


def _selects_only_other_vendors(selector: Selection) -> bool:
    """Return whether a selector names vendors, and NVIDIA is not one of them."""
    match selector:
        case Attribute("vendor", _):
            return bool(selector.mismatch(_NVIDIA_GPU))
        case Preset(_, inner):
            return _selects_only_other_vendors(inner)
        case AllOf(selectors):
            return any(map(_selects_only_other_vendors, selectors))
        case AnyOf(selectors):
            return bool(selectors) and all(map(_selects_only_other_vendors, selectors))
        case _:
            return False


class _Rule(NamedTuple):
    """A key, or one value of it, that only devices of some kinds can have."""

    key: Path
    is_set: Callable[[ResourceEntry], bool]
    kinds: frozenset[str]  # that can have it
    what: str  # what these kinds can have
    hint: str
    is_about_key: bool = True  # otherwise about its value


_RULES: Final = (
    _Rule(("userspace",), lambda x: x.userspace is not UNSET, _GPU, "a GPU's driver", "leave it out, or select GPUs"),
    _Rule(("mps",), lambda x: x.mps is not UNSET, _GPU, "it: MPS is NVIDIA's", "leave it out, or select GPUs"),
    _Rule(
        ("ids",),
        lambda x: x.ids == "uuid" and x.api != "dra",
        _WITH_UUID,
        "a UUID",
        f"kinds with one: {', '.join(sorted(_WITH_UUID))}",
    ),
    _Rule(
        ("compat",),
        lambda x: x.compat == "nvidia" and x.ids is UNSET,
        _WITH_UUID,
        "a UUID, by which NVIDIA's programs know a GPU",
        "select GPUs",
        is_about_key=False,
    ),
    _Rule(
        ("compat",),
        lambda x: x.compat == "sriov",
        _MAYBE_ON_PCI,
        "a PCI address, by which Multus knows it",
        "select functions",
        is_about_key=False,
    ),
    _Rule(
        ("dra", "interface"),
        lambda x: x.dra is not UNSET and x.dra.interface is not UNSET,
        _WITH_INTERFACE,
        "a network interface",
        f"kinds with one: {', '.join(sorted(_WITH_INTERFACE))}",
    ),
    _Rule(
        ("identity",),
        lambda x: x.identity == "port" and x.group is UNSET,
        _MAYBE_ON_USB,
        "a USB port",
        "leave it out",
    ),
)


def check_kinds(document: Document, path: Path, entry: ResourceEntry, selector: Selection) -> None:
    """Add findings about keys of a resource at `path` that none of the devices that it can select can have."""
    if _check_nvidia_keys(document, path, entry, selector):
        return
    kinds = frozenset(kind for kind in KINDS if concerns(selector, kind))
    shown = ", ".join(sorted(kinds)) or "none"
    wrong = f"no device that is selected here (kind: {shown}) can have"
    for rule in _RULES:
        if rule.is_set(entry) and not kinds & rule.kinds:
            document.at((*path, *rule.key), f"{wrong} {rule.what}", rule.hint, key=rule.is_about_key)
    for i, shares in enumerate(entry.shares_of):
        at = (*path, "sharesOf", i)
        if shares.memory is not UNSET and not kinds & _WITH_MEMORY:
            document.at((*at, "memory"), f"{wrong} `memory`", "say how many shares: `count`", key=True)
        if i and entry.shares_of[i - 1].select is UNSET:
            message = "this applies to no device: the entry before it applies to all"
            document.at(at, message, "put it first, or give the other one `select`")


def _check_nvidia_keys(document: Document, path: Path, entry: ResourceEntry, selector: Selection) -> bool:
    """Add a finding about the first key for NVIDIA's GPUs if other GPUs are selected; return whether there is one."""
    if not _selects_only_other_vendors(selector):
        return False
    is_set_by_key = {
        "userspace": entry.userspace is not UNSET,
        "mps": entry.mps is not UNSET,
        "compat": entry.compat == "nvidia",
    }
    key = next((name for name, is_set in is_set_by_key.items() if is_set), None)
    if key is not None:
        document.at((*path, key), "this is for NVIDIA's GPUs, and others are selected", "leave it out", key=True)
    return key is not None
