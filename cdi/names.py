"""CDI's names: kinds (`vendor/class`), qualified devices (`vendor/class=device`), and the kind for a resource."""

import re
from functools import lru_cache

from cdi.errors import CdiError

_PART = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]")
"""CDI allows a single letter, but runtimes with CDI up to 1.1 panic when they read it: containerd itself crashes."""
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


@lru_cache(256)  # like `kind_of`
def kind_problem(kind: str) -> str:
    """Return what is wrong with `kind`; empty if nothing is."""
    vendor, slash, name = kind.partition("/")
    if not slash:
        return f'invalid kind "{kind}": must be vendor/class'
    for what, part in (("vendor", vendor), ("class", name)):
        if not _PART.fullmatch(part):
            return (
                f'invalid {what} "{part}": must start with a letter, end with another letter or digit'
                " and have only letters, digits, '_', '-' and '.' between them"
            )
    return ""


def device_problem(name: str) -> str:
    """Return what is wrong with a device's `name`; empty if nothing is."""
    if _DEVICE.fullmatch(name):
        return ""
    return (
        f'invalid device name "{name}": must start and end with a letter or digit'
        " and have only letters, digits, '_', '-', '.' and ':' between them"
    )


def qualified_name(kind: str, device: str) -> str:
    """Return the name by which a container requests `device`. Raises `CdiError` if either part is invalid."""
    problem = kind_problem(kind) or device_problem(device)
    if problem:
        raise CdiError(problem)
    return f"{kind}={device}"


def split_qualified_name(name: str) -> tuple[str, str]:
    """Return kind and device of a qualified name. Raises `CdiError` if the name is invalid."""
    kind, equals, device = name.partition("=")
    problem = kind_problem(kind) or device_problem(device) if equals else "must be vendor/class=device"
    if problem:
        raise CdiError(f'"{name}" is not a qualified CDI device name: {problem}')
    return kind, device


@lru_cache(256)  # called with every grant, for a few resources
def kind_of(resource: str) -> str:
    """Return the kind for the devices of an extended resource: its own name, if CDI allows it.

    Resource names can start with a digit or be one letter, kinds cannot: `4k.example.com/8k` becomes
    `nodeplug.4k.example.com/r<digest>-8k`. Raises `CdiError` if even that is not a kind.
    """
    if not kind_problem(resource):
        return resource
    vendor, _, name = resource.partition("/")
    from hashlib import blake2b  # on first use: it loads OpenSSL

    digest = blake2b(resource.encode(), digest_size=4).hexdigest()
    kind = f"{vendor if _PART.fullmatch(vendor) else f'nodeplug.{vendor}'}/r{digest}-{name}"
    problem = kind_problem(kind)
    if problem:
        raise CdiError(f"resource {resource} has no CDI kind: {problem}")
    return kind
