"""Akri: devices that its udev handler finds by rules, for pods that request any device of a configuration.

Each rule is a udev rule of matches; a device must match one rule. Devices on the network (ONVIF, OPC UA) are no devices
of a node. Source: project-akri/akri, the definition of Configuration, docs on the udev discovery handler.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from hostdevices import Host
from nodeplug.config import Finding
from nodeplug.config.tree import Mapping as Keys
from nodeplug.config.tree import Scalar, Sequence, Unreadable
from nodeplug.convert.conversion import LeftOut, Offered, Values, one_or_all
from nodeplug.convert.wrapping import Wrapping, below, key, parsed, with_text

_UDEV = "udev"
_OF_PROPERTIES = {"devicePluginResourceName": "resourceName", "vfioPassthrough": "vfioPassthrough"}
"""Properties that the udev handler reads, and the fields of `File` for them."""
_KINDS = {
    "drm": "gpu",
    "gpio": "gpio",
    "hidraw": "hidraw",
    "i2c-dev": "i2c",
    "iio": "iio",
    "input": "input",
    "sound": "sound",
    "spidev": "spi",
    "tty": "tty",
    "usb": "usb",
    "video4linux": "video",
}
"""Kinds of devices by udev's subsystems."""
_ATTRIBUTES = {
    "idVendor": "vendor",
    "idProduct": "product",
    "serial": "serial",
    "ID_VENDOR_ID": "vendor",
    "ID_MODEL_ID": "product",
    "ID_SERIAL_SHORT": "serial",
}
_CLOSE = {"ENV{ID_V4L_CAPABILITIES}": "; the preset `camera` is close: the first node of each video device"}
_FOLDERS = {"event": "input", "js": "input", "mouse": "input", "controlC": "snd", "pcmC": "snd", "card": "dri"}
_FOLDERS |= {"renderD": "dri"}
_FILTER = re.compile(r'\s*([A-Z]+)(?:\{([^}]*)\})?\s*(==|!=)\s*"([^"]*)"\s*(?:,|$)')
_USB = ("SUBSYSTEM", None, "==", "usb")
_WHOLE_USB = ("ENV", "DEVTYPE", "==", "usb_device")  # a device of the subsystem that has a node is one of these
_BROKERS = "nodeplug starts no pods, so it starts no brokers. Deploy what is in brokerSpec as a separate workload."
_INSTANCES = (
    "pods request any of these devices under this name; names of single devices (akri.sh/NAME-HASH) are not offered."
)
_NODE = "UDEV_DEVNODE_... contains the paths and ends with the configuration's name; before, with the instance's hash."


class Details(Struct, frozen=True, rename="camel"):
    """The settings of the udev handler."""

    udev_rules: tuple[str, ...] = ()
    permissions: str = "rwm"
    group_recursive: bool = False


class File(Struct, frozen=True, rename="camel"):
    """A Configuration's name and its settings of devices; `has_brokers`: Akri creates pods for the found devices.

    `resource_name` and `vfio_passthrough` are properties; KubeVirt identifies the device by the first.
    """

    handler: str
    name: str = "configuration"
    details: Details = Details()
    capacity: int = 1
    broker_properties: dict[str, str] = {}
    has_brokers: bool = False
    resource_name: str = ""
    vfio_passthrough: str = ""


def _settings(root: Keys) -> Keys:
    """Return the settings of devices in a Configuration. Raises `Unreadable`."""
    handler = below(root, "spec", "discoveryHandler", "name")
    if handler is None:
        raise Unreadable(Finding(root.line, root.column, "this Configuration has no spec.discoveryHandler"))
    entries = [(key("handler", handler), handler)]
    for name, node in (
        ("name", below(root, "metadata", "name")),
        ("capacity", below(root, "spec", "capacity")),
        ("brokerProperties", below(root, "spec", "brokerProperties")),
    ):
        if node is not None:
            entries.append((key(name, node), node))
    details = below(root, "spec", "discoveryHandler", "discoveryDetails")
    if isinstance(handler, Scalar) and handler.text == _UDEV and isinstance(details, Scalar):
        entries.append((key("details", details), parsed(details)))
    properties = below(root, "spec", "discoveryHandler", "discoveryProperties")
    for node in properties.items if isinstance(properties, Sequence) else ():
        named = below(node, "name")
        if isinstance(named, Scalar) and named.text in _OF_PROPERTIES:
            if not isinstance(value := below(node, "value"), Scalar):
                message = f"the value of {named.text} is in another object"
                raise Unreadable(Finding(named.line, named.column, message, "write it here, as `value`"))
            entries.append((key(_OF_PROPERTIES[named.text], value), with_text(value, value.text.strip())))
    if (brokers := below(root, "spec", "brokerSpec")) is not None:
        entries.append((key("hasBrokers", brokers), key("true", brokers)))
    return Keys(tuple(entries), root.line, root.column)


WRAPPING = Wrapping(kind="Configuration", api_group="akri.sh", settings=_settings)
"""The objects that contain its settings."""


class _NotConvertible(Exception):
    """A rule that no selector can express."""


def resources(file: File, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    """Yield the resource of a configuration."""
    name = f"{domain}/{file.name}"
    try:
        details = file.details
        if file.handler != _UDEV:
            raise _NotConvertible(f"the handler {file.handler} finds no devices on the node itself")
        if details.group_recursive:
            raise _NotConvertible(
                "Akri makes one device of all that a rule finds below a device (groupRecursive); see `group.within`"
            )
        if file.capacity < 1:
            raise _NotConvertible("no pod could have one (capacity)")
        rules = [_selector(rule) for rule in details.udev_rules]
        if not rules:
            raise _NotConvertible("it has no rules (udevRules)")
        if file.vfio_passthrough.lower() == "true":
            raise _NotConvertible(
                "for functions for virtual machines use `kind: vfio` and `compat: kubevirt` (vfioPassthrough)"
            )
        if file.resource_name not in ("", name):
            raise _NotConvertible(f"KubeVirt requests {file.resource_name} (devicePluginResourceName), and not {name}")
        if file.resource_name and any(rule.get("kind") != "usb" for rule in rules):
            raise _NotConvertible(
                "KubeVirt can use only USB devices of it: SUBSYSTEM must be usb (devicePluginResourceName)"
            )
    except _NotConvertible as reason:
        yield LeftOut(name, str(reason))
        return
    values: Values = {"name": name, "select": rules[0] if len(rules) == 1 else {"any": rules}}
    values["permissions"] = "".join(x for x in "rwm" if x in details.permissions)
    escaped = {name: text.replace("{", "{{").replace("}", "}}") for name, text in file.broker_properties.items()}
    own = re.sub("[^A-Z0-9]", "_", file.name.upper())  # a container can have devices of several configurations
    values["env"] = {**escaped, f"UDEV_DEVNODE_{own}": "{devnodes}"}
    if file.resource_name:
        values["compat"] = "kubevirt"
    if file.capacity > 1:
        values["shares"] = file.capacity
    yield Offered(values, (_INSTANCES, _NODE, *([_BROKERS] if file.has_brokers else [])))


def _selector(rule: str) -> Values:
    """Return the selector for a rule: all of its matches."""
    matches: list[tuple[Any, ...]] = []
    place = 0
    while place < len(rule):
        match = _FILTER.match(rule, place)
        if match is None:
            raise _NotConvertible(f"{rule}: what begins with `{rule[place:].strip()}` is not a known match")
        place = match.end()
        matches.append(match.groups())
    if _USB in matches:
        matches = [x for x in matches if x != _WHOLE_USB]
    found = [_selector_values(rule, field, key, text) for field, key, operator, text in matches if operator == "=="]
    excluded = [_selector_values(rule, field, key, text) for field, key, operator, text in matches if operator == "!="]
    chosen = [x for x in found if x.keys() & {"kind", "path"}]
    if not chosen:
        raise _NotConvertible(f"{rule}: it matches every part of such a device; select some with SUBSYSTEM or KERNEL")
    if excluded and not any("kind" in x for x in chosen):
        raise _NotConvertible(f"{rule}: an exclusion needs a kind of devices; set it with SUBSYSTEM")
    attributes = {name: text for x in found for name, text in x.get("attributes", {}).items()}
    values: Values = {key: text for x in chosen for key, text in x.items()}
    if attributes:
        values["attributes"] = attributes
    if excluded:
        values["not"] = excluded[0] if len(excluded) == 1 else {"any": excluded}
    return values


def _selector_values(rule: str, field: str, key: str | None, text: str) -> Values:
    texts = text.split("|")
    if field == "SUBSYSTEM" and all(x in _KINDS for x in texts):
        return {"kind": one_or_all([_KINDS[x] for x in texts])}
    if field == "KERNEL" and not any(x in "%$/\\" for x in text):
        return {"path": one_or_all([_path(x) for x in texts])}
    if field in ("ATTR", "ATTRS", "ENV") and key in _ATTRIBUTES and (field == "ENV") == key.isupper():
        return {"attributes": {_ATTRIBUTES[key]: one_or_all(texts)}}
    shown = f"{field}{{{key}}}" if key is not None else field
    raise _NotConvertible(f"{rule}: nodeplug has no equivalent of {shown} with `{text}`{_CLOSE.get(shown, '')}")


def _path(name: str) -> str:
    """Return the path of a node below /dev, by the kernel's name for it."""
    folder = next((folder for begin, folder in _FOLDERS.items() if name.startswith(begin)), "")
    return f"/dev/{folder}/{name}" if folder else f"/dev/{name}"
