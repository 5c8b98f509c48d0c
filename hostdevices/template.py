"""Templates: values for containers that name facts of the devices given, and the variables that may hold them.

`{ids}`, `{devnodes}` and `{attribute}` stand for the facts of all devices, joined by commas; `{{` and `}}` are braces.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from hostdevices.attributes import ATTRIBUTES, STANDARD
from hostdevices.device import Device

FIELDS = ("ids", "devnodes")
"""What a template can name beside attributes."""

_FIELD = re.compile(r"\{([^{}]*)\}")
_BRACES = re.compile(r"(\{\{|\}\})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = re.compile(r"LD_.*|PATH|KUBERNETES_.*|NODEPLUG_.*")


class Template(Struct, frozen=True):
    """A template that was read. `text` has the attributes' full names; what is wrong with it is in the other two."""

    text: str
    unknown: tuple[str, ...] = ()  # fields that no device has
    is_unbalanced: bool = False  # a brace without its other


def read(text: str) -> Template:
    """Return a template as it is written in a configuration, where standard attributes may have their short names."""
    parts = _BRACES.split(text)
    unknown: list[str] = []
    is_unbalanced = False
    for i, part in enumerate(parts):
        if part in ("{{", "}}"):
            continue
        names = _FIELD.findall(part)
        unknown += [name for name in names if STANDARD.get(name, name) not in ATTRIBUTES and name not in FIELDS]
        is_unbalanced |= bool(set(_FIELD.sub("", part)) & set("{}"))
        parts[i] = _FIELD.sub(lambda found: "{" + STANDARD.get(found[1], found[1]) + "}", part)
    return Template("".join(parts), tuple(unknown), is_unbalanced)


def render(template: str, ids: Sequence[str], devices: Sequence[Device]) -> str:
    """Fill a template (`Template.text`) with the facts of different `devices`; `ids` are the names they go by.

    Control characters are dropped: names and serial numbers come from the hardware, and the container's environment is
    no place for what somebody's stick calls itself.
    """

    def value(field: str) -> str:
        if field == "ids":
            return ",".join(ids)
        if field == "devnodes":
            return ",".join(node.container_path or node.path for device in devices for node in device.devnodes)
        return ",".join(_text(device.attributes.get(field, "")) for device in devices)

    parts = _BRACES.split(template)
    filled = ("{" if p == "{{" else "}" if p == "}}" else _FIELD.sub(lambda m: value(m[1]), p) for p in parts)
    return _CONTROL.sub("", "".join(filled))


def is_variable(name: str) -> bool:
    """Tell whether an environment variable can have this name."""
    return _VARIABLE.fullmatch(name) is not None


def is_reserved(name: str) -> bool:
    """Tell whether a variable is not for a configuration to set: it steers the loader, or is Kubernetes' or ours."""
    return _RESERVED.fullmatch(name) is not None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
