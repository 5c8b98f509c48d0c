"""The rules of port numbers and port names. Source: k8s.io/apimachinery pkg/util/validation."""

import re
from typing import Any

from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid


def check_port(errors: ErrorList, path: str, port: Any) -> None:
    """Check a port number."""
    if not isinstance(port, int) or not 0 < port < 65536:
        errors.invalid(path, port, "must be between 1 and 65535, inclusive")


def check_port_or_name(errors: ErrorList, path: str, port: Any) -> None:
    """Check a port number, or the name of a container's port."""
    if isinstance(port, str):
        add_invalid(errors, path, port, port_name(port))
    else:
        check_port(errors, path, port or 0)


def port_name(name: str) -> list[str]:
    """Return the faults in the name of a port."""
    found = []
    if len(name.encode()) > 15:
        found.append("must be no more than 15 characters")
    if not re.fullmatch(r"[-a-z0-9]+", name):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        found.append("must contain at least one letter (a-z)")
    if "--" in name:
        found.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found
