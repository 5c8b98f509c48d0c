"""The rules of resource requests and limits of containers, pods and other objects.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateResourceRequirements), helper.go.
"""

from collections.abc import Callable, Sequence, Set
from typing import Any

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList, Quantity, QuantityError
from resourceapi.objects.field_rules import add_invalid, dns_label
from resourceapi.objects.names import REQUESTS_PREFIX, is_extended_resource, is_native_resource, label_key

HUGE_PAGES = "hugepages-"
_OF_CONTAINERS = ("cpu", "memory", "ephemeral-storage")
_OF_PODS = ["cpu", "hugepages-", "memory"]
COUNTED = (
    *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
    *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
)
_STANDARD = {
    *(*_OF_CONTAINERS, *COUNTED, "storage", f"{REQUESTS_PREFIX}storage"),
    *(f"{which}.{name}" for which in ("limits", "requests") for name in _OF_CONTAINERS),
}
_PLAIN = ("cpu", "memory")
NameRule = Callable[[ErrorList, str, str], None]


def container_resource(errors: ErrorList, path: str, name: str) -> None:
    """Check the name of a container's resource."""
    standard_resource(errors, path, name)
    if "/" not in name:
        if name not in _OF_CONTAINERS and not name.startswith(HUGE_PAGES):
            errors.invalid(path, name, "must be a standard resource for containers")
    elif not is_native_resource(name) and not is_extended_resource(name):
        errors.invalid(path, name, "doesn't follow extended resource name standard")


def pod_resource(errors: ErrorList, path: str, name: str) -> None:
    """Check the name of a resource of a pod as a whole."""
    before = len(errors)
    standard_resource(errors, path, name)
    if len(errors) == before and name not in _PLAIN and not name.startswith(HUGE_PAGES):
        errors.not_supported(path, name, _OF_PODS)


def standard_resource(errors: ErrorList, path: str, name: str) -> None:
    """Check the name of a resource: a standard name, or a qualified one."""
    found = label_key(name)
    add_invalid(errors, path, name, found)
    is_known = name in _STANDARD or name.removeprefix(REQUESTS_PREFIX).startswith(HUGE_PAGES)
    if not found and "/" not in name and not is_known:
        errors.invalid(path, name, "must be a standard resource type or fully qualified")


def check_requirements(
    errors: ErrorList, resources: Plain, path: str, claims: Set[str], name_rule: NameRule = container_resource
) -> None:
    """Check requests and limits, and the references to the pod's claims, whose names are `claims`."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, amount in limits.items():
        _check_amount(errors, f"{path}.limits[{name}]", name, amount, name_rule)
    for name, amount in requests.items():
        _check_amount(errors, f"{path}.requests[{name}]", name, amount, name_rule)
        limit, is_shared = limits.get(name), is_native_resource(name) and not name.startswith(HUGE_PAGES)
        if limit is None:
            if not is_shared:
                errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif not is_shared and quantity(amount) != quantity(limit):
            errors.invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
        elif quantity(amount) > quantity(limit):
            errors.invalid(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limit}")
    names = {*requests, *limits}
    if any(name.startswith(HUGE_PAGES) for name in names) and not names & {*_PLAIN}:
        errors.forbidden(path, "HugePages require cpu or memory")
    _check_claims(errors, resources.get("claims") or (), f"{path}.claims", claims)


def check_amount(errors: ErrorList, path: str, name: str, text: Any) -> None:
    """Check an amount: not negative, and whole for resources that are counted (ValidateResourceQuantityValue)."""
    amount = quantity(text)
    if amount < quantity("0"):
        errors.invalid(path, str(amount), "must be greater than or equal to 0")
    if (name in COUNTED or is_extended_resource(name)) and amount.milli_value() % 1000:
        errors.invalid(path, str(amount), "must be an integer")


def _check_amount(errors: ErrorList, path: str, name: str, text: Any, name_rule: NameRule) -> None:
    name_rule(errors, path, name)
    check_amount(errors, path, name, text)
    amount = quantity(text)
    if name.startswith(HUGE_PAGES) and not _is_multiple(amount, name.removeprefix(HUGE_PAGES)):
        errors.invalid(path, text, f"{text} is not positive integer multiple of {name}")


def _is_multiple(amount: Quantity, size: str) -> bool:
    try:
        page = Quantity.parse(size)
    except QuantityError:
        return False
    return page > quantity("0") and page.milli_value() % 1000 == 0 and amount.value() % page.value() == 0


def _check_claims(errors: ErrorList, claims: Sequence[Plain], path: str, known: Set[str]) -> None:
    """Check the references to claims of the pod, or to requests of one. Each can occur once."""
    seen: set[str] = set()
    requested: dict[str, int] = {}  # claim -> number of its requests
    for index, each in enumerate(claims):
        here, name, request = f"{path}[{index}]", each.get("name") or "", each.get("request") or ""
        if not name:
            errors.required(here)
            continue
        key = f"{name}/{request}" if request else name
        if name in seen:
            errors.duplicate(here, name)
        else:
            if request:
                dns_label(errors, f"{here}.request", request)
            for _ in range(int(key in seen) if request else requested.get(name, 0)):
                errors.duplicate(here, key)
            if request and key not in seen:
                requested[name] = requested.get(name, 0) + 1
            seen.add(key)
        if name not in known:
            alternatives = f": {', '.join(sorted(known))}" if known else " which is empty"
            errors.not_found(here, name, f"must be one of the names in pod.spec.resourceClaims{alternatives}")


def quantity(text: Any) -> Quantity:
    """Return an amount of an object whose types were checked; 0 if it is invalid."""
    try:
        return Quantity.parse(str(text))
    except QuantityError:
        return Quantity.parse("0")
