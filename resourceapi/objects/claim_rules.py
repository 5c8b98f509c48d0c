"""Rules for the spec of claims and claim templates (allocator.md 4.5, "ResourceClaim spec")."""

from collections.abc import Mapping, Sequence

from resourceapi.objects import names, v1
from resourceapi.objects.class_rules import CheckSelector, selectors
from resourceapi.objects.errors import ErrorList
from resourceapi.objects.field_rules import (
    MAX_CONFIGS,
    add_invalid,
    check_items,
    configuration,
    dns_label,
    fully_qualified_name,
    label_name,
)

MAX_REQUESTS = 32
MAX_ALTERNATIVES = 8
MAX_CONSTRAINTS = 32

RequestNames = Mapping[str, frozenset[str]]
"""The requests of a claim, each with the names of its alternatives."""

_NO_SUCH_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def claim_spec(errors: ErrorList, path: str, spec: v1.ResourceClaimSpec, check: CheckSelector) -> None:
    """Check the spec of a new claim."""
    claim = spec.devices
    names = request_names(claim)
    devices = f"{path}.devices"

    def request(errors: ErrorList, path: str, request: v1.DeviceRequest) -> None:
        _request(errors, path, request, check)

    def constraint(errors: ErrorList, path: str, constraint: v1.DeviceConstraint) -> None:
        _constraint(errors, path, constraint, names)

    def config(errors: ErrorList, path: str, config: v1.DeviceClaimConfiguration) -> None:
        request_references(errors, f"{path}.requests", config.requests, names)
        configuration(errors, path, config.opaque, stored=False)

    check_items(errors, f"{devices}.requests", claim.requests, MAX_REQUESTS, request, lambda request: request.name)
    check_items(errors, f"{devices}.constraints", claim.constraints, MAX_CONSTRAINTS, constraint)
    check_items(errors, f"{devices}.config", claim.config, MAX_CONFIGS, config)


def request_names(claim: v1.DeviceClaim) -> RequestNames:
    """Return the names that constraints, configuration and results of a claim can refer to."""
    return {request.name: frozenset(x.name for x in request.first_available) for request in claim.requests}


def request_references(errors: ErrorList, path: str, references: Sequence[str], names: RequestNames) -> None:
    """Check a list of distinct references to requests."""

    def rule(errors: ErrorList, path: str, reference: str) -> None:
        request_reference(errors, path, reference, names)

    check_items(errors, path, references, MAX_REQUESTS, rule, lambda reference: reference)


def request_reference(errors: ErrorList, path: str, reference: str, names: RequestNames) -> None:
    """Check that `request` or `request/alternative` is well formed and exists."""
    parts = reference.split("/")
    if len(parts) > 2:
        errors.invalid(path, reference, _NO_SUCH_REQUEST)
        return
    for part in parts:
        dns_label(errors, path, part)
    if parts[0] not in names or (len(parts) == 2 and parts[1] not in names[parts[0]]):
        errors.invalid(path, reference, _NO_SUCH_REQUEST)


def _request(errors: ErrorList, path: str, request: v1.DeviceRequest, check: CheckSelector) -> None:
    dns_label(errors, f"{path}.name", request.name)
    one_is_needed = "exactly one of `exactly` or `firstAvailable` is required"
    if request.exactly is None and not request.first_available:
        errors.required(path, one_is_needed)
    elif request.exactly is not None and request.first_available:
        errors.invalid(path, None, f"{one_is_needed}, but multiple fields are set")
    elif request.exactly is not None:
        _wanted(errors, f"{path}.exactly", request.exactly, check)
    else:

        def alternative(errors: ErrorList, path: str, alternative: v1.DeviceSubRequest) -> None:
            dns_label(errors, f"{path}.name", alternative.name)
            _wanted(errors, path, alternative, check)

        alternatives = request.first_available
        check_items(errors, f"{path}.firstAvailable", alternatives, MAX_ALTERNATIVES, alternative, lambda x: x.name)


def _wanted(
    errors: ErrorList, path: str, request: v1.ExactDeviceRequest | v1.DeviceSubRequest, check: CheckSelector
) -> None:
    if not request.device_class_name:
        errors.required(f"{path}.deviceClassName")
    else:
        found = names.dns_subdomain(request.device_class_name)
        add_invalid(errors, f"{path}.deviceClassName", request.device_class_name, found)
    selectors(errors, f"{path}.selectors", request.selectors, check)
    if request.allocation_mode == v1.ALL:
        if request.count != 0:
            errors.invalid(f"{path}.count", request.count, "must not be specified when allocationMode is 'All'")
    elif request.allocation_mode == v1.EXACT_COUNT:
        if request.count <= 0:
            errors.invalid(f"{path}.count", request.count, "must be greater than zero")
    else:
        errors.not_supported(f"{path}.allocationMode", request.allocation_mode, [v1.ALL, v1.EXACT_COUNT])
    # The reference does not enforce the documented limit of 16 tolerations, so neither does this.
    check_items(errors, f"{path}.tolerations", request.tolerations, None, toleration)


def toleration(errors: ErrorList, path: str, toleration: v1.DeviceToleration) -> None:
    """Check a toleration of a request or an allocated device."""
    if toleration.key:
        label_name(errors, f"{path}.key", toleration.key)
    if toleration.operator == v1.EXISTS:
        if toleration.value:
            errors.invalid(f"{path}.value", toleration.value, "must be empty for operator `Exists`")
    elif toleration.operator == v1.EQUAL:
        add_invalid(errors, f"{path}.value", toleration.value, names.label_value(toleration.value))
    elif not toleration.operator:
        errors.required(f"{path}.operator")
    else:
        errors.not_supported(f"{path}.operator", toleration.operator, [v1.EQUAL, v1.EXISTS])
    if toleration.effect and toleration.effect not in v1.TAINT_EFFECTS:
        errors.not_supported(f"{path}.effect", toleration.effect, list(v1.TAINT_EFFECTS))


def _constraint(errors: ErrorList, path: str, constraint: v1.DeviceConstraint, names: RequestNames) -> None:
    request_references(errors, f"{path}.requests", constraint.requests, names)
    if constraint.match_attribute is not None:
        fully_qualified_name(errors, f"{path}.matchAttribute", constraint.match_attribute)
    elif constraint.distinct_attribute is not None:
        fully_qualified_name(errors, f"{path}.distinctAttribute", constraint.distinct_attribute)
    else:
        text = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        errors.required(path, text)
