"""What a class or a claim can choose for an interface that moves into a pod, if the node's configuration allows it.

    interface: {name: data0, mtu: 9000, mac: "02:00:5e:00:53:01", addresses: [192.0.2.7/24]}

Every key must be allowed by the resource (`dra.interface`): any user can write a claim, and the node's own interface is
changed before it moves. Addresses must be within the resource's prefixes: until the container starts they are the
node's, which would answer for another host with the same address.
"""

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct, structs

from dra_plugin.errors import DraPluginError
from hostdevices.printable import printable
from resources.resource import InterfaceMoves

MAX_ADDRESSES = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
_RESERVED_NAMES = ("all", "default", "eth0", "lo")  # names of sysctls, and the pod's own interfaces
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_MULTICAST = 0x01


class InterfaceRefused(DraPluginError):
    """An interface cannot move into a pod as requested; the text names the interface, the reason and what to do."""


class InterfaceConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The interface inside the pod. A field that is not set changes nothing."""

    name: str = ""
    mtu: Annotated[int, Meta(ge=68, le=65535)] | None = None
    mac: str = ""
    addresses: Annotated[tuple[str, ...], Meta(max_length=MAX_ADDRESSES)] = ()


def merged(before: InterfaceConfig, later: InterfaceConfig) -> InterfaceConfig:
    """Return `before` with the fields that `later` sets."""
    return InterfaceConfig(
        name=later.name or before.name,
        mtu=before.mtu if later.mtu is None else later.mtu,
        mac=later.mac or before.mac,
        addresses=later.addresses or before.addresses,
    )


def problems(config: InterfaceConfig) -> Iterator[str]:
    """Yield problems of a configuration that are independent of the node, each with the field's path."""
    place = "parameters.interface"
    if config.name and (why := interface_name_problem(config.name)):
        yield f"{place}.name: {why}"
    if config.mac and not (_MAC.fullmatch(config.mac) and is_unicast(config.mac)):
        yield f'{place}.mac: must be the address of one interface in lower case, as in "02:00:5e:00:53:01"'
    seen: set[object] = set()
    for i, text in enumerate(config.addresses):
        try:
            address = ipaddress.ip_interface(text)
        except ValueError:
            address = None
        if address is None or "/" not in text or "%" in text:
            yield f"{place}.addresses[{i}]: {printable(text)} is not an address with its prefix, as in 192.0.2.7/24"
        elif why := _address_problem(address):
            yield f"{place}.addresses[{i}]: {printable(text)} is {why}"
        elif address.ip in seen:
            yield f"{place}.addresses[{i}]: {printable(text)} appears twice"
        else:
            seen.add(address.ip)


def canonical(config: InterfaceConfig) -> InterfaceConfig:
    """Return a valid configuration with its addresses as the kernel and the API write them."""
    return structs.replace(config, addresses=tuple(str(ipaddress.ip_interface(x)) for x in config.addresses))


def interface_name_problem(name: str) -> str:
    """Return why an interface cannot have this name inside a pod; empty if it can."""
    if not _NAME.fullmatch(name):
        return f"{printable(name)} cannot be the name of an interface: letters, digits, dots and dashes, at most 15"
    return f"every pod has an interface {name} already; choose another name" if name in _RESERVED_NAMES else ""


def is_unicast(mac: str) -> bool:
    """Return whether an address can belong to one interface."""
    return not int(mac[:2], 16) & _MULTICAST and mac.strip("0:") != ""


def check_allowed(config: InterfaceConfig, moves: InterfaceMoves | None, where: str) -> None:
    """Raise `InterfaceRefused` for a choice that the resource does not allow; `where` names the device."""
    if config == InterfaceConfig():
        return
    if moves is None:
        raise InterfaceRefused(
            f"{where}: its interface does not move into pods; remove `interface`, or request another device"
        )
    changes = (("name", config.name, moves.name), ("mtu", config.mtu, moves.mtu), ("mac", config.mac, moves.mac))
    for key, value, is_allowed in changes:
        if value and not is_allowed:
            raise InterfaceRefused(f"{where}: a claim cannot set interface.{key} here; remove it")
    prefixes = [ipaddress.ip_network(x) for x in moves.addresses]
    for text in config.addresses:
        address = ipaddress.ip_interface(text).ip
        if not any(address in prefix for prefix in prefixes):
            among = ", ".join(moves.addresses) or "none"
            raise InterfaceRefused(
                f"{where}: the address {text} is not one of those that a claim can have here: {among}"
            )


def _address_problem(address: "ipaddress.IPv4Interface | ipaddress.IPv6Interface") -> str:
    ip, network = address.ip, address.network
    kinds = {
        "a multicast address": ip.is_multicast,
        "a loopback address": ip.is_loopback,
        "no address": ip.is_unspecified or ip.is_reserved,
        "a link-local address": ip.is_link_local,  # not of global scope: it does not move
        "its network's own address": ip in (network.network_address, network.broadcast_address)
        and ip.version == 4
        and network.prefixlen < 31,
    }
    return next((words for words, holds in kinds.items() if holds), "")
