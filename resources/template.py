"""Templates: values for containers with attributes of the allocated devices, and the variables that can have them.

`{ids}`, `{devnodes}`, `{pciFunctions}` (the addresses of all functions) and `{attribute}` are replaced by the values of
all devices, joined by commas; `{{` and `}}` are braces.
A value has a limit: the kernel starts no program with a variable of 128 KiB (MAX_ARG_STRLEN), or with variables that
take more than a quarter of its stack, and values are also stored in specs and leases.

Variables that cannot be set:

| by | variables |
|---|---|
| anybody | `PATH`; those that the loader uses (`LD_*`, `GLIBC_TUNABLES`); Kubernetes' own and ours |
| a claim, which any user can write | those that glibc ignores in setuid programs |
| | those with which shells and interpreters run or load code before a program |
| | proxies and trusted certificates; those with which a container runtime adds devices |
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from msgspec import Struct

from hostdevices.attributes import ATTRIBUTES, STANDARD
from hostdevices.device import Device
from hostdevices.errors import HostDevicesError

FUNCTIONS = "pciFunctions"
FIELDS = ("ids", "devnodes", FUNCTIONS)
"""The fields of a template beside attributes."""
MAX_BYTES = 32 * 1024
"""The most bytes of a filled value."""

_SHORT = {full: short for short, full in STANDARD.items()}
_FIELD = re.compile(r"\{([^{}]*)\}")
_BRACES = re.compile(r"(\{\{|\}\})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = re.compile(r"PATH|LD_.*|GLIBC_TUNABLES|KUBERNETES_.*|NODEPLUG_.*")
_NOT_FOR_CLAIMS = re.compile(
    r"GCONV_PATH|GETCONF_DIR|HOSTALIASES|LOCALDOMAIN|LOCPATH|MALLOC_.*|NIS_PATH|NLSPATH|RES_OPTIONS|RESOLV_HOST_CONF"
    r"|TMPDIR|TZDIR"  # glibc: unsecvars.h
    r"|ENV|IFS|CDPATH|SHELL|SHELLOPTS|PS[0-4]|PROMPT_COMMAND|BASH.*|ZDOTDIR|HOME"
    r"|PYTHON.*|PERL.*|NODE_.*|RUBY.*|GEM_.*|BUNDLE_.*|_?JAVA_.*|JDK_.*|CLASSPATH|LUA_.*|PHP.*|TCLLIBPATH|R_.*"
    r"|DOTNET_.*|CORECLR_.*|MONO_.*|GIT_.*|EDITOR|PAGER|LESSOPEN|LESSCLOSE"
    r"|OPENSSL_.*|SSL_.*|CURL_.*|REQUESTS_CA_BUNDLE|AWS_CA_BUNDLE|(?i:(HTTPS?|FTP|ALL|NO)_PROXY)"
    r"|NVIDIA_.*|AMD_VISIBLE_DEVICES|HABANA_.*|DOCKER_RESOURCE_.*"
)


class ValueTooLong(HostDevicesError):
    """A filled template has more than MAX_BYTES; the message names its purpose."""


class FieldMissing(HostDevicesError):
    """A template has a field that one of the devices does not have; the message names its purpose."""


class Template(Struct, frozen=True):
    """A template that was read. `text` has the attributes' full names; its mistakes are in the other two."""

    text: str
    unknown: tuple[str, ...] = ()  # fields that no device has
    is_unbalanced: bool = False  # whether it has a single brace


def read(text: str) -> Template:
    """Return a template from a configuration, in which standard attributes can have their short names."""
    parts = _BRACES.split(text)
    unknown: list[str] = []
    is_unbalanced = False
    for i, part in enumerate(parts):
        if part in ("{{", "}}"):
            continue
        names = dict.fromkeys(_FIELD.findall(part))  # a claim can name one a thousand times
        unknown += [name for name in names if STANDARD.get(name, name) not in ATTRIBUTES and name not in FIELDS]
        is_unbalanced |= bool(set(_FIELD.sub("", part)) & set("{}"))
        for name in names.keys() & STANDARD.keys():
            parts[i] = parts[i].replace(f"{{{name}}}", f"{{{STANDARD[name]}}}")
    return Template("".join(parts), tuple(unknown), is_unbalanced)


def render(template: str, ids: Sequence[str], devices: Sequence[Device], *, of: str = "a value") -> str:
    """Fill a template (`Template.text`) with the facts of different `devices`; `ids` are their names.

    Control characters are dropped: names and serial numbers come from the hardware, and must not alter a container's
    environment. `of` is the purpose of the value in errors. Raises `ValueTooLong`, and `FieldMissing` instead of
    omitting the fact of a device, because then the values could not be matched to devices.
    """

    @cache
    def fact(field: str) -> str:
        if field == "ids":
            return ",".join(ids)
        if field == "devnodes":
            return ",".join(node.container_path or node.path for device in devices for node in device.devnodes)
        values = [(device.id, _fact(device, field)) for device in devices]
        if (lacking := next((i for i, text in values if text is None), None)) is not None:
            raise FieldMissing(f"{of}: device {lacking} has no {short_name(field)}")
        return ",".join(text for _, text in values if text is not None)

    def pieces() -> Iterator[str]:
        for part in _BRACES.split(template):
            if part in ("{{", "}}"):
                yield part[0]
            else:
                yield from (fact(piece) if i % 2 else piece for i, piece in enumerate(_FIELD.split(part)))

    filled: list[str] = []
    size = 0
    for piece in pieces():
        filled.append(_CONTROL.sub("", piece))
        size += len(filled[-1].encode(errors="surrogatepass"))
        if size > MAX_BYTES:  # before it gets too large
            raise ValueTooLong(
                f"{of}: more than {MAX_BYTES} bytes with the attributes of {len(ids)} device(s); use fewer"
            )
    return "".join(filled)


def sole_attribute(template: str) -> str:
    """Return the attribute that is all of a template (`Template.text`), `{name}`; empty if there is more or none."""
    found = _FIELD.fullmatch(template)
    return found[1] if found is not None and found[1] not in FIELDS else ""


def named(template: str) -> dict[str, None]:
    """Return the attributes in a template (`Template.text`), in order."""
    return dict.fromkeys(name for name in _fields(template) if name not in FIELDS)


def names_facts(template: str) -> bool:
    """Return whether a template has a field that a device might not have (`missing`)."""
    return bool(named(template)) or FUNCTIONS in _fields(template)


def missing(template: str, device: Device) -> str:
    """Return the short name of a field in a template that `device` does not have; empty if there is none."""
    if FUNCTIONS in _fields(template) and not device.pci_functions:
        return FUNCTIONS
    return next((short_name(name) for name in named(template) if name not in device.attributes), "")


def facts(templates: Iterable[str], device: Device) -> dict[str, str]:
    """Return the facts of a device in templates beside its ids and nodes, as text: its attributes, its functions.

    A device with these attributes fills the templates, whatever its other facts (`render`).
    """
    fields = (name for text in templates for name in _fields(text))
    values = {name: _fact(device, name) for name in fields if name not in FIELDS or name == FUNCTIONS}
    return {name: text for name, text in values.items() if text is not None}


def short_name(attribute: str) -> str:
    """Return the name of an attribute in configurations."""
    return _SHORT.get(attribute, attribute)


def is_variable(name: str) -> bool:
    """Return whether an environment variable can have this name."""
    return _VARIABLE.fullmatch(name) is not None


def is_reserved(name: str, *, for_claim: bool = False) -> bool:
    """Return whether a configuration must not set a variable (see the module); a claim's own can set fewer."""
    return bool(_RESERVED.fullmatch(name) or (for_claim and _NOT_FOR_CLAIMS.fullmatch(name)))


def _fields(template: str) -> Iterator[str]:
    return (name for part in _BRACES.split(template) for name in _FIELD.findall(part))


def _fact(device: Device, field: str) -> str | None:
    """Return a fact of a device as text; None if the device does not have it."""
    if field == FUNCTIONS and device.pci_functions:
        return ",".join(device.pci_functions)
    return _text(device.attributes[field]) if field in device.attributes else None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
