"""Addresses and ports of services: a free one, or the one that the client asks for.

They are assigned before the rest of a service is checked. No process listens on them; the network has IPv4 only.
Source: k8s.io/kubernetes pkg/registry/core/service/storage (beginCreate, beginUpdate).
"""

import ipaddress
import random
from collections.abc import Iterable
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.service_rules import (
    NO_CLUSTER_IP,
    PREFER,
    REQUIRE,
    SINGLE,
    check_addresses,
    family_of,
    needs_health_check_port,
)
from controlplane.apiserver.status import internal, invalid
from controlplane.apiserver.store import Store
from resourceapi.objects import ErrorList
from resourceapi.objects.json_value import json_equal

SERVICES = "services"
_NETWORK = ipaddress.IPv4Network("10.96.0.0/16")
_FAMILIES = ("IPv4",)
_PORTS = range(30000, 32768)
_OF_DRY_RUNS = 32769
"""The first port that a dry run shows, as it allocates none."""


def with_addresses(store: Store, new: Plain, old: Plain | None, *, is_dry_run: bool = False) -> Plain:
    """Return a new or changed service with the addresses and ports that it needs.

    A dry run allocates none. Raises ApiError 422 if another service has one of them, or if it is outside of the
    network, and 500 for a health check port that cannot be allocated.
    """
    spec = {**new["spec"], "ports": [{**port} for port in new["spec"].get("ports") or ()]}
    before = (old or {}).get("spec") or {}
    others = _other_services(store, old["metadata"]["uid"] if old is not None else "")
    _copy_omitted(spec, before)
    _synchronize_cluster_ips(spec, before)
    if spec.get("type") != "ExternalName":
        _set_families(new, spec, before)
        _assign_address(new, spec, before, others, is_dry_run=is_dry_run)
    _Ports(new, spec, before, others, is_dry_run=is_dry_run).assign()
    for name in ("clusterIP", "clusterIPs", "ports"):
        if not spec.get(name):
            spec.pop(name, None)
    return {**new, "spec": spec}


def has_own_addresses(store: Store, service: Plain) -> bool:
    """Return whether no other service has an address or a node port that was assigned to this one earlier."""
    others = _other_services(store, service["metadata"]["uid"])
    addresses = _addresses([service]) - {NO_CLUSTER_IP}
    return not (addresses & _addresses(others) or (_ports([service]) - {None}) & _ports(others))


def _other_services(store: Store, uid: str) -> list[Plain]:
    return [each for each in store.objects(SERVICES) if each["metadata"]["uid"] != uid]


def _addresses(services: Iterable[Plain]) -> set[str]:
    return {address for each in services for address in each["spec"].get("clusterIPs") or ()}


def _ports(services: Iterable[Plain]) -> set[int | None]:
    """The node ports of services."""
    ports: set[int | None] = set()
    for each in services:
        ports |= {port.get("nodePort") for port in each["spec"].get("ports") or ()}
        ports.add(each["spec"].get("healthCheckNodePort"))
    return ports


def _copy_omitted(spec: Plain, before: Plain) -> None:
    """Copy addresses and ports that a client left out from the old service."""
    if _has_address(before) and _has_address(spec):
        spec["clusterIP"] = spec.get("clusterIP") or before.get("clusterIP", "")
        spec["clusterIPs"] = spec.get("clusterIPs") or before.get("clusterIPs", [])
    if _has_ports(before) and _has_ports(spec):
        known = {port.get("name", ""): port.get("nodePort") for port in before.get("ports") or ()}
        used = {*known.values()} & {port.get("nodePort") for port in spec["ports"]}
        for port in spec["ports"]:
            was = known.get(port.get("name", ""))
            if not port.get("nodePort") and was and was not in used:
                port["nodePort"] = was
    if needs_health_check_port(before) and needs_health_check_port(spec):
        spec["healthCheckNodePort"] = spec.get("healthCheckNodePort") or before.get("healthCheckNodePort")


def _synchronize_cluster_ips(spec: Plain, before: Plain) -> None:
    """Make `clusterIP` and `clusterIPs` agree, if the client changed only one of them."""
    address, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    was, were = before.get("clusterIP") or "", before.get("clusterIPs") or []
    if not before:
        spec["clusterIPs"] = addresses or ([address] if address else [])
        return
    if were and not addresses and address == was:
        addresses = were
    if address != was and json_equal(addresses, were):
        addresses = [] if was and not address else [address]
    spec["clusterIPs"] = addresses


def _has_address(spec: Plain) -> bool:
    return bool(spec) and spec.get("type") != "ExternalName"


def _has_ports(spec: Plain) -> bool:
    is_balanced = spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort" or is_balanced


def _set_families(new: Plain, spec: Plain, before: Plain) -> None:
    """Set the IP families of a service. Only IPv4 exists, except for headless services without a selector."""
    if _is_as_preferred(spec, before):
        return
    is_free = spec.get("clusterIP") == NO_CLUSTER_IP and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:
        spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy") or (REQUIRE if is_free else SINGLE)
    errors = ErrorList()
    check_addresses(errors, spec, before)
    _refuse(new, errors)
    _match_policy(errors, spec, before)
    families = [*(spec.get("ipFamilies") or ())]
    for index, each in enumerate(spec["clusterIPs"]):
        if each == NO_CLUSTER_IP:
            break
        if index >= len(families) and family_of(each) in _FAMILIES:
            families.append(family_of(each))
        elif index >= len(families):
            why = f"{family_of(each)} is not configured on this cluster"
            errors.invalid(f"spec.clusterIPs[{index}]", spec["clusterIPs"], why)
    _refuse(new, errors)
    if is_free:
        families = families or ["IPv4"]
        if len(families) < 2 and spec["ipFamilyPolicy"] != SINGLE:
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        spec["ipFamilies"] = families
        return
    if spec["ipFamilyPolicy"] == REQUIRE:
        errors.invalid("spec.ipFamilyPolicy", REQUIRE, "this cluster is not configured for dual-stack services")
    for index, family in enumerate(families):
        if family not in _FAMILIES:
            errors.invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
    _refuse(new, errors)
    spec["ipFamilies"] = families or ["IPv4"]


def _is_as_preferred(spec: Plain, before: Plain) -> bool:
    """Return whether a service that prefers dual-stack is unchanged in its type, addresses and families."""
    stays = ("type", "clusterIP", "clusterIPs", "ipFamilies")
    is_preferred = spec.get("ipFamilyPolicy") == PREFER and before.get("ipFamilyPolicy") in (PREFER, None)
    return bool(before) and is_preferred and all(json_equal(spec.get(name), before.get(name)) for name in stays)


def _match_policy(errors: ErrorList, spec: Plain, before: Plain) -> None:
    """Check the number of addresses and families against the policy. SingleStack keeps only the first ones."""
    policy, path = spec["ipFamilyPolicy"], "spec.ipFamilyPolicy"
    for member, what, several in (
        ("clusterIPs", "cluster IP", "cluster IPs"),
        ("ipFamilies", "IP family", "IP families"),
    ):
        now, was = spec.get(member) or [], before.get(member) or []
        if before and policy == SINGLE and json_equal(now, was) and len(now) > 1:
            now = spec[member] = now[:1]
        if before and policy != SINGLE and was and len(now) == 1 < len(was):
            errors.invalid(path, policy, f"must be 'SingleStack' to release the secondary {what}")
        if policy == SINGLE and len(now) == 2:
            why = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {several} are specified"
            errors.invalid(path, policy, why)


def _assign_address(new: Plain, spec: Plain, before: Plain, others: Iterable[Plain], *, is_dry_run: bool) -> None:
    """Assign an address to a service that had none."""
    if _has_address(before) or spec["clusterIPs"][:1] == [NO_CLUSTER_IP]:
        return
    used = _addresses(others)
    address_text = (spec["clusterIPs"] or [""])[0]
    if not address_text:
        size = _NETWORK.num_addresses - 2
        start = random.randrange(size)  # noqa: S311 - nothing is secret in it
        free = (str(_NETWORK[1 + (start + step) % size]) for step in range(size))
        address_text = next(each for each in free if each not in used)
        spec |= {"clusterIP": address_text, "clusterIPs": [address_text]}
        return
    why, address = "", ipaddress.IPv4Address(address_text)
    if address not in _NETWORK:
        why = "the provided network does not match the current range"
    elif address in (_NETWORK[0], _NETWORK[-1]):
        why = f"the provided IP ({address_text}) is not in the valid range. The range of valid IPs is {_NETWORK}"
    elif address_text in used and not is_dry_run:
        why = "provided IP is already allocated"
    if why:
        errors = ErrorList()
        errors.invalid("spec.clusterIPs", spec["clusterIPs"], f"failed to allocate IP {address_text}: {why}")
        _refuse(new, errors)


class _Ports:
    """The node ports of one service."""

    def __init__(self, new: Plain, spec: Plain, before: Plain, others: Iterable[Plain], *, is_dry_run: bool) -> None:
        self._new, self._spec, self._before, self._is_dry_run = new, spec, before, is_dry_run
        self._used = _ports(others)
        self._mine: set[int] = set()

    def assign(self) -> None:
        """Assign the ports. Raises ApiError."""
        if self._spec.get("type") in ("NodePort", "LoadBalancer"):
            if self._before:
                self._assign_to_existing()
            else:
                self._assign_to_new()
        if needs_health_check_port(self._spec) and not needs_health_check_port(self._before):
            asked = self._spec.get("healthCheckNodePort")
            if asked and (why := self._allocate(asked)):
                raise internal(f"failed to allocate requested HealthCheck NodePort {asked}: {why}")
            self._spec["healthCheckNodePort"] = asked or self._allocate_free()

    def _assign_to_new(self) -> None:
        """Assign ports of a new service. Entries with the same port share a node port."""
        ports, known, wanted = self._spec["ports"], dict[Any, int](), dict[Any, int]()
        for port in ports:
            if port.get("nodePort"):
                wanted.setdefault(port.get("port"), port["nodePort"])
        for index, port in enumerate(ports):
            number = port.get("port")
            if not port.get("nodePort") and not _has_ports(self._spec):
                continue
            if number in known and port.get("nodePort") in (None, 0, known[number]):
                port["nodePort"] = known[number]
                continue
            asked = port["nodePort"] if number in known else wanted.get(number, 0)
            if asked:
                self._allocate_for(index, asked)
            port["nodePort"] = asked or self._allocate_free()
            known.setdefault(number, port["nodePort"])

    def _assign_to_existing(self) -> None:
        """Assign ports of a service that can have some already."""
        known = {port.get("nodePort") for port in self._before.get("ports") or ()}
        seen: set[tuple[Any, Any]] = set()
        for index, port in enumerate(self._spec["ports"]):
            asked = port.get("nodePort")
            if not asked and not _has_ports(self._spec):
                continue
            if asked and asked not in known and asked not in self._mine:
                self._allocate_for(index, asked)
            port["nodePort"] = asked or self._allocate_free()
            key = (port.get("protocol"), port["nodePort"])
            if key in seen:
                raise internal(f"duplicate nodePort: {{{key[0]} {key[1]}}}")
            seen.add(key)

    def _allocate_for(self, index: int, asked: int) -> None:
        if why := self._allocate(asked):
            errors = ErrorList()
            errors.invalid(f"spec.ports[{index}].nodePort", asked, why)
            _refuse(self._new, errors)

    def _allocate(self, port: int) -> str:
        """Allocate a port. Return why it cannot be allocated; empty if it was."""
        if not self._is_dry_run and port not in _PORTS:
            valid = f"{_PORTS[0]}-{_PORTS[-1]}"
            return f"provided port is not in the valid range. The range of valid ports is {valid}"
        if (port in self._used and port in _PORTS) or port in self._mine:
            return "provided port is already allocated"
        self._mine.add(port)
        return ""

    def _allocate_free(self) -> int:
        """Allocate a free port. A dry run returns a port outside the range. Raises ApiError if all are used."""
        if self._is_dry_run:
            found = max(self._mine) + 1 if self._mine else _OF_DRY_RUNS
        else:
            start = random.randrange(len(_PORTS))  # noqa: S311 - nothing is secret in it
            numbers = (_PORTS[(start + step) % len(_PORTS)] for step in range(len(_PORTS)))
            free = next((port for port in numbers if port not in self._used and port not in self._mine), None)
            if free is None:
                raise internal("Internal error occurred: failed to allocate a nodePort: range is full")
            found = free
        self._mine.add(found)
        return found


def _refuse(new: Plain, errors: ErrorList) -> None:
    if errors:
        raise invalid("", "Service", new["metadata"].get("name", ""), errors)
