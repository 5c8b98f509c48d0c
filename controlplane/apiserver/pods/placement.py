"""Where a pod can run: affinity, topology spread; and its DNS settings.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateAffinity, validateTopologySpreadConstraints,
validatePodDNSConfig, ValidateHostAliases).
"""

import ipaddress
from collections.abc import Iterator
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.label_rules import check_selector
from resourceapi.objects import ErrorList, from_dict
from resourceapi.objects.core import NodeSelector
from resourceapi.objects.field_rules import add_invalid, label_name, node_selector
from resourceapi.objects.names import dns_label, dns_subdomain, dns_subdomain_with_underscores

REQUIRED, PREFERRED = (f"{way}DuringSchedulingIgnoredDuringExecution" for way in ("required", "preferred"))
_ACTIONS = ["DoNotSchedule", "ScheduleAnyway"]
_POLICIES = ["Honor", "Ignore"]
_MAX_SERVERS, _MAX_SEARCHES, _MAX_SEARCH_LENGTH = 3, 32, 2048
NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def check_affinity(errors: ErrorList, affinity: Plain, path: str) -> None:
    """Check the node affinity, pod affinity and pod anti-affinity."""
    nodes, here = affinity.get("nodeAffinity") or {}, f"{path}.nodeAffinity"
    if nodes.get(REQUIRED) is not None:
        node_selector(errors, f"{here}.{REQUIRED}", from_dict(NodeSelector, nodes[REQUIRED]))
    for where, term in _weighted(errors, nodes, here, "preference"):
        selector, found = from_dict(NodeSelector, {"nodeSelectorTerms": [term]}), ErrorList()
        node_selector(found, "", selector)
        for each in found:
            place = each.path.removeprefix(".nodeSelectorTerms[0]")
            if not (".matchExpressions" in place and ".values[" in place):  # preferences can have any value
                errors.append(each._replace(path=f"{where}{place}"))
    for way in ("podAffinity", "podAntiAffinity"):
        pods, here = affinity.get(way) or {}, f"{path}.{way}"
        for index, term in enumerate(pods.get(REQUIRED) or ()):
            _pod_term(errors, term, f"{here}.{REQUIRED}[{index}]")
        for where, term in _weighted(errors, pods, here, "podAffinityTerm"):
            _pod_term(errors, term, where)


def _weighted(errors: ErrorList, affinity: Plain, path: str, member: str) -> Iterator[tuple[str, Plain]]:
    for index, each in enumerate(affinity.get(PREFERRED) or ()):
        here, weight = f"{path}.{PREFERRED}[{index}]", each.get("weight", 0)
        if not 0 < weight <= 100:
            errors.invalid(f"{here}.weight", weight, "must be in the range 1-100")
        yield f"{here}.{member}", each.get(member) or {}


def _pod_term(errors: ErrorList, term: Plain, path: str) -> None:
    for name in ("labelSelector", "namespaceSelector"):
        check_selector(errors, f"{path}.{name}", term.get(name))
    for namespace in term.get("namespaces") or ():
        add_invalid(errors, f"{path}.namespace", namespace, dns_label(namespace))
    _check_keys(errors, term, path)
    if not term.get("topologyKey"):
        errors.required(f"{path}.topologyKey", "can not be empty")
    label_name(errors, f"{path}.topologyKey", term.get("topologyKey") or "")


def _check_keys(errors: ErrorList, term: Plain, path: str) -> None:
    """Check the keys of the pod's own labels that a selector has to match or to differ from."""
    selector, own = term.get("labelSelector"), term.get("matchLabelKeys") or []
    for member in ("matchLabelKeys", "mismatchLabelKeys"):
        if term.get(member) and selector is None:
            errors.forbidden(f"{path}.{member}", "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(term.get(member) or ()):
            label_name(errors, f"{path}.{member}[{index}]", key)
    seen, last = {*((selector or {}).get("matchLabels") or ())}, {key: index for index, key in enumerate(own)}
    for each in (selector or {}).get("matchExpressions") or ():
        key = each.get("key") or ""
        if key in last and key in seen:
            errors.invalid(f"{path}[{last[key]}]", key, "exists in both matchLabelKeys and labelSelector")
        seen.add(key)
    for index, key in enumerate(own):
        if key in (term.get("mismatchLabelKeys") or ()):
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.invalid(f"{path}.matchLabelKeys[{index}]", key, why)


def with_own_labels(pod: Plain) -> Plain:
    """Return a new pod whose selectors contain the pod's own labels that `matchLabelKeys` name."""
    labels, spec = pod["metadata"].get("labels") or {}, {**(pod.get("spec") or {})}
    if spec.get("topologySpreadConstraints"):
        spec["topologySpreadConstraints"] = [_selecting(x, labels) for x in spec["topologySpreadConstraints"]]
    affinity = {**(spec.get("affinity") or {})}
    for way in ("podAffinity", "podAntiAffinity"):
        if affinity.get(way):
            terms = {**affinity[way]}
            if terms.get(REQUIRED):
                terms[REQUIRED] = [_selecting(each, labels) for each in terms[REQUIRED]]
            if terms.get(PREFERRED):
                terms[PREFERRED] = [
                    {**each, "podAffinityTerm": _selecting(each.get("podAffinityTerm") or {}, labels)}
                    for each in terms[PREFERRED]
                ]
            affinity[way] = terms
    return {**pod, "spec": {**spec, "affinity": affinity} if affinity else spec}


def _selecting(term: Plain, labels: Plain) -> Plain:
    selector = term.get("labelSelector")
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for member, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(member) or ()
        if key in labels
    ]
    if selector is None or not added:
        return term
    expressions = [*(selector.get("matchExpressions") or ()), *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


def check_spread(errors: ErrorList, constraints: list[Plain], path: str) -> None:
    """Check the topology spread constraints."""
    places = [(each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints]
    last = {place: index for index, place in enumerate(places)}
    for index, each in enumerate(constraints):
        here, skew, action = f"{path}[{index}]", each.get("maxSkew", 0), each.get("whenUnsatisfiable") or ""
        if skew <= 0:
            errors.invalid(f"{here}.maxSkew", skew, "must be greater than zero")
        if not each.get("topologyKey"):
            errors.required(f"{here}.topologyKey", "can not be empty")
        if action not in _ACTIONS:
            errors.not_supported(f"{here}.whenUnsatisfiable", action, _ACTIONS)
        if last[places[index]] > index:
            errors.duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{places[index][0]}, {action}}}")
        least = each.get("minDomains")
        if least is not None:
            if least <= 0:
                errors.invalid(f"{here}.minDomains", least, "must be greater than zero")
            if action != _ACTIONS[0]:
                why = f"can only use minDomains if whenUnsatisfiable={_ACTIONS[0]}, not {action}"
                errors.invalid(f"{here}.minDomains", least, why)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if each.get(name) is not None and each[name] not in _POLICIES:
                errors.not_supported(f"{here}.{name}", each[name], _POLICIES)
        _check_keys(errors, each, here)
        check_selector(errors, f"{here}.labelSelector", each.get("labelSelector"))


def check_names(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check the DNS policy and configuration."""
    config, here = spec.get("dnsConfig"), f"{path}.dnsConfig"
    if spec.get("dnsPolicy") == "None":
        if config is None:
            errors.required(here, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            errors.required(f"{here}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
            return
    servers, searches = ((config or {}).get(name) or [] for name in ("nameservers", "searches"))
    if len(servers) > _MAX_SERVERS:
        errors.invalid(f"{here}.nameservers", servers, f"must not have more than {_MAX_SERVERS} nameservers")
    for index, server in enumerate(servers):
        check_address(errors, f"{here}.nameservers[{index}]", server)
    if len(searches) > _MAX_SEARCHES:
        errors.invalid(f"{here}.searches", searches, f"must not have more than {_MAX_SEARCHES} search paths")
    if len(" ".join(searches)) > _MAX_SEARCH_LENGTH:
        why = f"must not have more than {_MAX_SEARCH_LENGTH} characters (including spaces) in the search list"
        errors.invalid(f"{here}.searches", searches, why)
    for index, search in enumerate(searches):
        domain = search.removesuffix(".")
        if search != ".":
            add_invalid(errors, f"{here}.searches[{index}]", domain, dns_subdomain_with_underscores(domain))
    for index, option in enumerate((config or {}).get("options") or ()):
        if not option.get("name"):
            errors.required(f"{here}.options[{index}]", "must not be empty")


def check_aliases(errors: ErrorList, aliases: list[Plain], path: str) -> None:
    """Check the host aliases."""
    for index, each in enumerate(aliases):
        check_address(errors, f"{path}[{index}].ip", each.get("ip") or "")
        for number, name in enumerate(each.get("hostnames") or ()):
            add_invalid(errors, f"{path}[{index}].hostnames[{number}]", name, dns_subdomain(name))


def check_address(errors: ErrorList, path: str, text: Any) -> None:
    """Check an IP address."""
    if not is_address(text):
        errors.invalid(path, text, NO_ADDRESS)


def is_address(text: str) -> bool:
    """Return whether a text is an IP address. As in Go, zones are not allowed."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text
