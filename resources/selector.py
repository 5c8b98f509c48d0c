"""Selectors of devices. Frozen values, so that configurations can be compared and shown.

Rules:
1. A selector returns the reason why it does *not* match a device; an empty reason means that it matches.
2. All kinds of selectors are one tagged union, `Selection`.
3. matching.py compares single values.
"""

from fnmatch import fnmatchcase
from typing import TypeAlias

from msgspec import Struct

from hostdevices.device import AttributeValue, Device
from hostdevices.globs import path_pattern
from resources.attribute_settings import providing_setting
from resources.matching import Accepted, accepts
from resources.resource import Selector


class Kinds(Struct, frozen=True, tag="kind"):
    """Devices of one of these kinds (the readers' nouns: pci, gpu, nic, ...)."""

    kinds: tuple[str, ...]

    def mismatch(self, device: Device) -> str:
        """Return why `device` is not selected; empty if it is."""
        return "" if device.kind in self.kinds else f"its kind is {device.kind}, not {_either(self.kinds)}"


class Attribute(Struct, frozen=True, tag="attribute"):
    """Devices that have this attribute with one of these values."""

    name: str
    accepted: tuple[Accepted, ...]

    def mismatch(self, device: Device) -> str:
        """Return why `device` is not selected; empty if it is."""
        value = device.attributes.get(self.name)
        if value is None:
            return f"it has no attribute {self.name}{providing_setting(self.name, device)}"
        if any(accepts(wanted, value) for wanted in self.accepted):
            return ""
        return f"its {self.name} is {_shown(value)}, not {_either(self.accepted)}"


class Paths(Struct, frozen=True, tag="path"):
    """Devices all of whose nodes match one of these globs; `*` does not cross `/`, `**` does.

    All, because a device is allocated with all its nodes. A glob for one node of a sound card selects that node (the
    device of kind `path` that the glob makes), not the card.
    """

    globs: tuple[str, ...]

    def mismatch(self, device: Device) -> str:
        """Return why `device` is not selected; empty if it is."""
        if not device.devnodes:
            return "it has no device node"
        for node in device.devnodes:
            if not any(path_pattern(glob).fullmatch(node.path) for glob in self.globs):
                return f"its node {node.path} does not match {_either(self.globs)}"
        return ""


class Ids(Struct, frozen=True, tag="id"):
    """Devices whose id matches one of these globs."""

    globs: tuple[str, ...]

    def mismatch(self, device: Device) -> str:
        """Return why `device` is not selected; empty if it is."""
        fits = any(fnmatchcase(device.id, glob) for glob in self.globs)
        return "" if fits else f"its id is not {_either(self.globs)}"


class Preset(Struct, frozen=True, tag="preset"):
    """A selector with a name; presets.py has ours."""

    name: str
    selector: "Selection"

    def mismatch(self, device: Device) -> str:
        """Return why `device` is not selected; empty if it is."""
        return self.selector.mismatch(device)


class AllOf(Struct, frozen=True, tag="all"):
    """Devices that each of these selects; all devices if there are none."""

    selectors: tuple["Selection", ...]

    def mismatch(self, device: Device) -> str:
        """Return the first reason why `device` is not selected; empty if it is."""
        for selector in self.selectors:
            if reason := selector.mismatch(device):
                return reason
        return ""


class AnyOf(Struct, frozen=True, tag="any"):
    """Devices that at least one of these selects; none if there are none."""

    selectors: tuple["Selection", ...]

    def mismatch(self, device: Device) -> str:
        """Return the reasons of those that concern this kind of device; empty if one of them selects it."""
        reasons: dict[str, bool] = {}
        for selector in self.selectors:
            reason = selector.mismatch(device)
            if not reason:
                return ""
            reasons[reason] = concerns(selector, device.kind)
        near = [reason for reason, concerned in reasons.items() if concerned]
        return "; ".join(near or reasons) or "nothing is selected"


class Not(Struct, frozen=True, tag="not"):
    """Devices that the other selector does not select; `because` is the reason in words."""

    selector: "Selection"
    because: str = ""

    def mismatch(self, device: Device) -> str:
        """Return why `device` is not selected; empty if it is."""
        if self.selector.mismatch(device):
            return ""
        return self.because or f"it is excluded: {describe(self.selector)}"


Selection: TypeAlias = Kinds | Attribute | Paths | Ids | Preset | AllOf | AnyOf | Not
NOTHING = AnyOf(())


def matched_conditions(selector: Selector, device: Device) -> int:
    """Return how many of a selector's conditions a device meets: of unselected devices, the highest number is nearest.

    Exclusions do not count: they do not describe the desired devices.
    """
    match selector:
        case Preset(_, inner):
            return matched_conditions(inner, device)
        case AllOf(selectors):
            return sum(matched_conditions(inner, device) for inner in selectors)
        case Not():
            return 0
    return not selector.mismatch(device)


def concerns(selector: Selector, kind: str) -> bool:
    """Return whether a device of `kind` can be selected at all; if not, its reason is of little use."""
    match selector:
        case Kinds(kinds):
            return kind in kinds
        case Preset(_, inner):
            return concerns(inner, kind)
        case AllOf(selectors):
            return all(concerns(inner, kind) for inner in selectors)
        case AnyOf(selectors):
            return any(concerns(inner, kind) for inner in selectors)
        case _:
            return True


def describe(selector: Selection) -> str:
    """Return a selector as one line, for reasons and tables."""
    match selector:
        case Kinds(kinds):
            return f"kind {_either(kinds)}"
        case Attribute(name, accepted):
            return f"{name} {_either(accepted)}"
        case Paths(globs):
            return f"path {_either(globs)}"
        case Ids(globs):
            return f"id {_either(globs)}"
        case Preset(name):
            return name
        case AllOf(selectors):
            return " and ".join(map(_bracketed, selectors)) or "everything"
        case AnyOf(selectors):
            return " or ".join(map(_bracketed, selectors)) or "nothing"
        case Not(inner):
            return f"not {_bracketed(inner)}"


def path_globs(selector: Selector) -> tuple[str, ...]:
    """Return the path globs that find devices of kind `path`, in order: the paths to list and watch below /dev.

    For others (`kind: block` and a path), the kernel's events are enough: they come sooner, and with all data.
    """
    if not concerns(selector, "path"):
        return ()
    match selector:
        case Paths(globs):
            return globs
        case AllOf(selectors) | AnyOf(selectors):
            return tuple(dict.fromkeys(glob for inner in selectors for glob in path_globs(inner)))
        case Not(inner) | Preset(_, inner):
            return path_globs(inner)
        case _:
            return ()


def _either(values: tuple[Accepted, ...]) -> str:
    return " or ".join(map(_shown, values)) or "anything"


def _shown(value: AttributeValue) -> str:
    """Return a value that can come from a device (a USB product name) without its control characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if not text.isprintable():
        text = "".join(x if x.isprintable() else repr(x)[1:-1] for x in text)
    return text or '""'


def _bracketed(selector: Selection) -> str:
    text = describe(selector)
    return f"({text})" if isinstance(selector, AllOf | AnyOf) and len(selector.selectors) > 1 else text
