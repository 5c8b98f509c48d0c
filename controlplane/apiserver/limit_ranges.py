"""Limit ranges: default amounts for a pod's containers, and bounds for all amounts.

Source: kubernetes.io "Limit Ranges"; k8s.io/kubernetes plugin/pkg/admission/limitranger.
"""

from collections.abc import Iterator, Mapping

from controlplane.apiserver.kinds import Kind, Plain
from controlplane.apiserver.pods.grace import PODS
from controlplane.apiserver.pods.resources import Amounts, peak_amounts
from controlplane.apiserver.quota_usage import VOLUME_CLAIMS
from controlplane.apiserver.rules.resource_rules import quantity
from controlplane.apiserver.status import forbidden
from controlplane.apiserver.store import Store
from resourceapi.objects import Quantity

_RANGES = "limitranges"
_ANNOTATION = "kubernetes.io/limit-ranger"
_CONTAINERS = (("containers", "container"), ("initContainers", "init container"))
_OF_PODS = ("cpu", "memory")
_MAX_MILLI = (2**63 - 1) // 1000
"""Above this value, amounts are compared in whole units."""
_ZERO = Quantity.of(0)


def with_limits(store: Store, pod: Plain) -> Plain:
    """Return a new pod whose containers have the defaults of the namespace's limit ranges."""
    for each in store.objects(_RANGES, pod["metadata"].get("namespace", "")):
        usual: dict[str, Plain] = {"requests": {}, "limits": {}}
        for limit in each["spec"].get("limits") or ():
            if limit.get("type") == "Container":
                usual["requests"] |= limit.get("defaultRequest") or {}
                usual["limits"] |= limit.get("default") or {}
        filled_in: list[str] = []
        lists = {
            member: [_filled(container, usual, what, filled_in) for container in pod["spec"].get(member) or ()]
            for member, what in _CONTAINERS
        }
        if filled_in:
            metadata = pod["metadata"]
            annotations = (metadata.get("annotations") or {}) | {
                _ANNOTATION: f"LimitRanger plugin set: {'; '.join(filled_in)}"
            }
            spec = pod["spec"] | {member: containers for member, containers in lists.items() if containers}
            pod = {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}
    return pod


def check_limits(store: Store, kind: Kind, subresource: str, new: Plain, old: Plain | None) -> None:
    """Refuse a pod or a storage claim that is outside of its namespace's limit ranges. Raises ApiError 403."""
    is_pod = kind.id == PODS and (old is None if not subresource else subresource == "resize")
    is_claim = kind.id == VOLUME_CLAIMS and not subresource
    if not (is_pod or is_claim) or (old is not None and "deletionTimestamp" in old["metadata"]):
        return
    for each in store.objects(_RANGES, new["metadata"].get("namespace", "")):
        limits = each["spec"].get("limits") or ()
        found = [text for limit in limits for text in (_of_pod if is_pod else _of_claim)(limit, new)]
        faults = list(dict.fromkeys(found))
        if faults:
            why = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
            raise forbidden(kind.group, kind.plural, new["metadata"].get("name", ""), why)


def _filled(container: Plain, usual: Mapping[str, Plain], what: str, filled_in: list[str]) -> Plain:
    """A container with the default amounts that it lacks; they are appended to `filled_in`."""
    resources: Plain = container.get("resources") or {}
    filled = {**resources}
    for member, word in (("requests", "request"), ("limits", "limit")):
        has = resources.get(member) or {}
        more = {name: amount for name, amount in usual[member].items() if name not in has}
        if more:
            filled[member] = has | more
            filled_in.append(f"{', '.join(sorted(more))} {word} for {what} {container.get('name') or ''}")
    return {**container, "resources": filled} if filled != resources else container


def _of_pod(limit: Plain, pod: Plain) -> Iterator[str]:
    """The violations of one limit by a pod."""
    spec = pod["spec"]
    if limit.get("type") == "Container":
        for member, _ in _CONTAINERS:
            for container in spec.get(member) or ():
                resources = container.get("resources") or {}
                requests, limits = (_amounts(resources.get(which)) for which in ("requests", "limits"))
                yield from _between(limit, requests, limits)
                yield from _in_proportion(limit, requests, limits)
    if limit.get("type") == "Pod":
        requests, limits = (_of_all(spec, which) for which in ("requests", "limits"))
        yield from _between(limit, requests, limits)
        yield from _in_proportion(limit, requests, limits)


def _of_claim(limit: Plain, claim: Plain) -> Iterator[str]:
    """The violations of one limit by a storage claim. Only its requests count."""
    if limit.get("type") == "PersistentVolumeClaim":
        requests = _amounts((claim["spec"].get("resources") or {}).get("requests"))
        for name, least in _amounts(limit.get("min")).items():
            rule = f"minimum {name} usage per PersistentVolumeClaim is {least}"
            yield from _at_least(rule, least, requests.get(name))
        for name, most in _amounts(limit.get("max")).items():
            rule, asked = f"maximum {name} usage per PersistentVolumeClaim is {most}", requests.get(name)
            if asked is None:
                yield f"{rule}.  No request is specified"
            elif _is_more(asked, most):
                yield f"{rule}, but request is {asked}"


def _between(limit: Plain, requests: Amounts, limits: Amounts) -> Iterator[str]:
    kind = limit["type"]
    for name, least in _amounts(limit.get("min")).items():
        yield from _at_least(f"minimum {name} usage per {kind} is {least}", least, requests.get(name), limits.get(name))
    for name, most in _amounts(limit.get("max")).items():
        rule, asked, limited = f"maximum {name} usage per {kind} is {most}", requests.get(name), limits.get(name)
        if limited is None:
            yield f"{rule}.  No limit is specified"
        elif _is_more(limited, most):
            yield f"{rule}, but limit is {limited}"
        elif asked is not None and _is_more(asked, most):
            yield f"{rule}, but request is {asked}"


def _at_least(rule: str, least: Quantity, asked: Quantity | None, limited: Quantity | None = None) -> Iterator[str]:
    if asked is None:
        yield f"{rule}.  No request is specified"
    elif _is_more(least, asked):
        yield f"{rule}, but request is {asked}"
    elif limited is not None and _is_more(least, limited):
        yield f"{rule}, but limit is {limited}"


def _in_proportion(limit: Plain, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, most in _amounts(limit.get("maxLimitRequestRatio")).items():
        rule = f"{name} max limit to request ratio per {limit['type']} is {most}"
        asked, limited = _comparable(requests.get(name, _ZERO), limits.get(name, _ZERO))
        if not asked:
            yield f"{rule}, but no request is specified or request is 0"
        elif not limited:
            yield f"{rule}, but no limit is specified or limit is 0"
        elif limited / asked > most.milli_value() / 1000:
            yield f"{rule}, but provided ratio is {limited / asked:f}"


def _is_more(one: Quantity, other: Quantity) -> bool:
    left, right = _comparable(one, other)
    return left > right


def _comparable(one: Quantity, other: Quantity) -> tuple[int, int]:
    if max(one.value(), other.value()) > _MAX_MILLI:
        return one.value(), other.value()
    return one.milli_value(), other.milli_value()


def _of_all(spec: Plain, member: str) -> Amounts:
    """The amounts of all containers together. CPU and memory of the pod as a whole take precedence."""
    whole = _amounts((spec.get("resources") or {}).get(member))
    return peak_amounts(spec, member) | {name: amount for name, amount in whole.items() if name in _OF_PODS}


def _amounts(amounts: Mapping[str, str] | None) -> Amounts:
    return {name: quantity(amount) for name, amount in (amounts or {}).items()}
