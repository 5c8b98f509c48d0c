"""The addresses and ports that an API server gives to services: one that no other has, or the one that was asked for.

Nothing answers at them. The network has IPv4 alone. Source: k8s.io/kubernetes pkg/registry/core/service.
"""

import ipaddress
import random
from collections.abc import Callable, Iterable
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.service_rules import check_service
from controlplane.apiserver.status import invalid
from controlplane.apiserver.store import Store
from resourceapi.objects import ErrorList

SERVICES = "services"
_NETWORK = ipaddress.IPv4Network("10.96.0.0/16")
_PORTS = range(30000, 32768)
_NONE = "None"
_SINGLE, _REQUIRE = "SingleStack", "RequireDualStack"
_OF_ADDRESSES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def with_addresses(store: Store, new: Plain, old: Plain | None) -> Plain:
    """A new service, or one that follows an older one, with what it needs of addresses and ports.

    Raises ApiError 422 for what another service has, or the network does not.
    """
    spec = {**new["spec"], "ports": [{**port} for port in new["spec"].get("ports") or ()]}
    if not spec["ports"]:
        del spec["ports"]
    before = (old or {}).get("spec") or {}
    _keep(spec, before)
    _check(new, spec, before)
    _check_families(new, spec, before)
    if spec["type"] != "ExternalName":
        others = [each for each in store.objects(SERVICES) if each["metadata"]["uid"] != new["metadata"].get("uid")]
        _give_address(new, spec, others)
        _give_ports(new, spec, others)
    return {**new, "spec": spec}


def _keep(spec: Plain, before: Plain) -> None:
    """What a client left out stays as it was; what its type has no use for goes, unless a client changed it."""
    had, has = (bool(each) and each["type"] != "ExternalName" for each in (before, spec))
    address, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if had and has:
        was, all_were = before.get("clusterIP", ""), before.get("clusterIPs", [])
        if not addresses and address in ("", was):
            addresses = all_were
        elif address != was and addresses == all_were:
            addresses = [address] if address else all_were
        spec |= {"clusterIP": address or was, "clusterIPs": addresses}
    elif address and not addresses:
        spec["clusterIPs"] = [address]
    if had and not has:
        for name in _OF_ADDRESSES:
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
    if _has_ports(before):
        _keep_ports(spec, before)
    for name, needs in _BY_TYPE:
        if name in before and needs(before) and not needs(spec) and spec.get(name) == before[name]:
            spec.pop(name, None)
    if _needs_health(before) and _needs_health(spec):
        spec.setdefault("healthCheckNodePort", before.get("healthCheckNodePort"))


def _check(new: Plain, spec: Plain, before: Plain) -> None:
    """What is wrong with what a service asks for, once it has what it keeps."""
    errors, address, addresses = ErrorList(), spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    check_service(errors, spec)
    if spec["type"] == "ExternalName":
        if not spec.get("externalName"):
            errors.required("spec.externalName")
    elif not spec.get("ports") and address != _NONE:
        errors.required("spec.ports")
    for index, port in enumerate(spec.get("ports") or ()):
        if spec["type"] == "ClusterIP" and port.get("nodePort"):
            errors.forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
    if not address and addresses:
        errors.invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified")
    for index, each in enumerate(addresses):
        if each != _NONE and not _is_address(each):
            text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            errors.invalid(f"spec.clusterIPs[{index}]", each, text)
    were = before.get("clusterIPs") or []
    if were and addresses and addresses[0] != were[0] and "ExternalName" not in (spec["type"], before["type"]):
        errors.invalid("spec.clusterIPs[0]", addresses, "may not change once set")
    _refuse(new, errors)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _keep_ports(spec: Plain, before: Plain) -> None:
    known = {port.get("name", ""): port.get("nodePort") for port in before.get("ports") or ()}
    given = {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
    if not _has_ports(spec):
        if given <= {*known.values()}:
            for port in spec.get("ports") or ():
                port.pop("nodePort", None)
        return
    for port in spec.get("ports") or ():
        was = known.get(port.get("name", ""))
        if not port.get("nodePort") and was and was not in given:
            port["nodePort"] = was


def _has_ports(spec: Plain) -> bool:
    is_balanced = spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort" or is_balanced


def _needs_health(spec: Plain) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _is_outside(spec: Plain) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer") or bool(spec.get("externalIPs"))


_BY_TYPE: tuple[tuple[str, Callable[[Plain], bool]], ...] = (
    ("healthCheckNodePort", _needs_health),
    ("allocateLoadBalancerNodePorts", lambda spec: spec.get("type") == "LoadBalancer"),
    ("externalTrafficPolicy", _is_outside),
)


def _check_families(new: Plain, spec: Plain, before: Plain) -> None:
    """Say which families of addresses a service has; IPv4 is the only one, but where nobody looks at addresses."""
    if spec["type"] == "ExternalName":
        return
    is_free = spec.get("clusterIP") == _NONE and not spec.get("selector")
    policy = spec.get("ipFamilyPolicy") or before.get("ipFamilyPolicy") or (_REQUIRE if is_free else _SINGLE)
    is_other = not spec.get("ipFamilies") and ":" in (spec.get("clusterIP") or "")
    families = spec.get("ipFamilies") or before.get("ipFamilies") or ["IPv4"]
    spec |= {"ipFamilyPolicy": policy, "ipFamilies": families}
    if is_free:
        other = "IPv6" if families[0] == "IPv4" else "IPv4"
        spec["ipFamilies"] = [*families, other] if len(families) == 1 and policy != _SINGLE else families
        return
    errors = ErrorList()
    if policy == _REQUIRE:
        errors.invalid("spec.ipFamilyPolicy", policy, "this cluster is not configured for dual-stack services")
    if is_other:
        errors.invalid("spec.clusterIPs[0]", spec["clusterIPs"], "IPv6 is not configured on this cluster")
    for index, family in enumerate(families):
        if family != "IPv4":
            errors.invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
    _refuse(new, errors)


def _give_address(new: Plain, spec: Plain, others: Iterable[Plain]) -> None:
    given = (spec.get("clusterIPs") or [""])[0]
    if given == _NONE:
        return
    used = {address for each in others for address in each["spec"].get("clusterIPs") or ()}
    if not given:
        size = _NETWORK.num_addresses - 2
        start = random.randrange(size)  # noqa: S311 - nothing is secret in it
        free = (str(_NETWORK[1 + (start + step) % size]) for step in range(size))
        given = next(each for each in free if each not in used)
        spec |= {"clusterIP": given, "clusterIPs": [given]}
        return
    why = ""
    if ipaddress.IPv4Address(given) not in _NETWORK:
        why = "the provided network does not match the current range"
    elif given in used:
        why = "provided IP is already allocated"
    if why:
        errors = ErrorList()
        errors.invalid("spec.clusterIPs", spec["clusterIPs"], f"failed to allocate IP {given}: {why}")
        _refuse(new, errors)


def _give_ports(new: Plain, spec: Plain, others: Iterable[Plain]) -> None:
    used = {port.get("nodePort") for each in others for port in each["spec"].get("ports") or ()}
    used |= {each["spec"].get("healthCheckNodePort") for each in others}
    errors, known = ErrorList(), dict[Any, int]()
    for index, port in enumerate(spec.get("ports") or ()):
        asked = port.get("nodePort")
        if asked and asked != known.get(port.get("port")):
            why = "provided port is already allocated" if asked in used else ""
            if asked not in _PORTS:
                valid = f"{_PORTS[0]}-{_PORTS[-1]}"
                why = f"provided port is not in the valid range. The range of valid ports is {valid}"
            if why:
                errors.invalid(f"spec.ports[{index}].nodePort", asked, why)
                _refuse(new, errors)
        elif not asked and _has_ports(spec):
            asked = port["nodePort"] = known.get(port.get("port")) or _free_port(used)
        if asked:
            used.add(asked)
            known.setdefault(port.get("port"), asked)
    if _needs_health(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = _free_port(used)


def _free_port(used: set[Any]) -> int:
    start = random.randrange(len(_PORTS))  # noqa: S311 - nothing is secret in it
    return next(port for step in range(len(_PORTS)) if (port := _PORTS[(start + step) % len(_PORTS)]) not in used)


def _refuse(new: Plain, errors: ErrorList) -> None:
    if errors:
        raise invalid("", "Service", new["metadata"].get("name", ""), errors)
