"""Claims as choices for the search.

A claim is a list of requests; a request is one choice, or several alternatives in order of preference. Faults of the
input are found here in upstream's order: request by request. Mode All is checked in the same sequence, but what "all"
is depends on the node. So a plan is made once, ends at its first fault, and is completed for each node.
"""

from collections.abc import Sequence
from typing import NamedTuple

from controlplane.structured.capacity import Amounts
from controlplane.structured.errors import AllocationError
from controlplane.structured.features import Features
from controlplane.structured.listers import ClassLister
from controlplane.structured.selectors import Selector, Selectors
from resourceapi.objects.v1 import (
    ALL,
    EXACT_COUNT,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)

MAX_RESULTS = 32
"""The most devices that one claim can hold."""


class Choice:
    """One way to satisfy a request: a request without alternatives, or one alternative."""

    __slots__ = (
        "admin_access",
        "capacity_key",
        "capacity_requests",
        "claim_name",
        "class_selectors",
        "count",
        "device_class",
        "name",
        "ref",
        "request",
        "selectors",
        "tolerations",
        "wants_all",
    )

    def __init__(
        self,
        claim_name: str,
        request: DeviceRequest,
        options: ExactDeviceRequest | DeviceSubRequest,
        device_class: DeviceClass,
        selectors: Selectors,
        features: Features,
    ) -> None:
        self.claim_name = claim_name
        self.request = self.name = self.ref = request.name
        self.admin_access = False
        if isinstance(options, DeviceSubRequest):
            self.name = options.name
            self.ref = f"{request.name}/{options.name}"
        else:
            self.admin_access = bool(options.admin_access)
        self.device_class = device_class
        self.class_selectors = len(device_class.spec.selectors)
        self.selectors: tuple[Selector, ...] = tuple(
            [selectors.get(x) for x in (*device_class.spec.selectors, *options.selectors)]
        )
        self.tolerations: tuple[DeviceToleration, ...] = options.tolerations
        self.wants_all = options.allocation_mode == ALL
        self.count = options.count
        self.capacity_requests: Amounts = options.capacity.requests if options.capacity is not None else {}
        self.capacity_key: tuple[tuple[str, str], ...] | None = None
        if features.consumable_capacity:
            self.capacity_key = (
                tuple(sorted((name, str(amount)) for name, amount in self.capacity_requests.items()))
                if self.capacity_requests
                else ()
            )


class PlannedRequest(NamedTuple):
    """A request's choices. The fault, if any, occurs after them."""

    name: str
    choices: list[Choice]
    has_alternatives: bool
    fault: AllocationError | None


class PlannedConstraint(NamedTuple):
    """An attribute in which the devices of some requests (empty: of all) agree or differ."""

    requests: frozenset[str]
    attribute: str
    is_match: bool

    def applies_to(self, choice: Choice) -> bool:
        """Return whether the constraint binds the devices of the choice."""
        return not self.requests or choice.request in self.requests or choice.ref in self.requests


class PlannedClaim(NamedTuple):
    """A claim's requests and constraints. The fault, if any, occurs after the requests."""

    claim: ResourceClaim
    name: str
    requests: list[PlannedRequest]
    constraints: list[PlannedConstraint]
    fault: AllocationError | None

    @property
    def is_faulty(self) -> bool:
        """Whether the claim or one of its requests has a fault."""
        return self.fault is not None or any(request.fault is not None for request in self.requests)


def claim_name(claim: ResourceClaim) -> str:
    """The claim's name in error texts."""
    namespace = claim.metadata.namespace
    return f"{namespace}/{claim.metadata.name}" if namespace else claim.metadata.name


def plan(
    claims: Sequence[ResourceClaim], classes: ClassLister, selectors: Selectors, features: Features
) -> list[PlannedClaim]:
    """Return the claims as choices, up to and including the first claim with a fault."""
    planned = []
    for claim in claims:
        planned.append(_plan_claim(claim, classes, selectors, features))
        if planned[-1].is_faulty:
            break
    return planned


def _plan_claim(claim: ResourceClaim, classes: ClassLister, selectors: Selectors, features: Features) -> PlannedClaim:
    name = claim_name(claim)
    requests = []
    for request in claim.spec.devices.requests:
        requests.append(_plan_request(name, request, classes, selectors, features))
        if requests[-1].fault is not None:
            return PlannedClaim(claim, name, requests, [], None)
    constraints: list[PlannedConstraint] = []
    for index, constraint in enumerate(claim.spec.devices.constraints):
        attribute = constraint.match_attribute
        if attribute is None:
            attribute = constraint.distinct_attribute
        if attribute is None:
            fault = AllocationError(
                f"claim {name}, constraint #{index}: empty constraint (unsupported constraint type?)"
            )
            return PlannedClaim(claim, name, requests, constraints, fault)
        constraints.append(
            PlannedConstraint(frozenset(constraint.requests), attribute, constraint.match_attribute is not None)
        )
    return PlannedClaim(claim, name, requests, constraints, None)


def _plan_request(
    claim: str, request: DeviceRequest, classes: ClassLister, selectors: Selectors, features: Features
) -> PlannedRequest:
    choices: list[Choice] = []
    has_alternatives = bool(request.first_available)
    try:
        if has_alternatives:
            if not features.prioritized_list:
                raise AllocationError(
                    f"claim {claim}, request {request.name}: "
                    "has subrequests, but the DRAPrioritizedList feature is disabled"
                )
            for options in request.first_available:
                if options.capacity is not None and not features.consumable_capacity:
                    raise AllocationError(
                        f"claim {claim}, subrequest {options.name}: "
                        "has capacity requests, but the DRAConsumableCapacity feature is disabled"
                    )
            for options in request.first_available:
                choice = _choose(claim, request, options, classes, selectors, features)
                choices.append(choice)
        elif request.exactly is None:
            raise AllocationError(
                f"claim {claim}, request {request.name}: missing device class name (unsupported request type?)"
            )
        else:
            if request.exactly.capacity is not None and not features.consumable_capacity:
                raise AllocationError(
                    f"claim {claim}, request {request.name}: "
                    "has capacity requests, but the DRAConsumableCapacity feature is disabled"
                )
            choices.append(_choose(claim, request, request.exactly, classes, selectors, features))
    except AllocationError as fault:
        return PlannedRequest(request.name, choices, has_alternatives, fault)
    return PlannedRequest(request.name, choices, has_alternatives, None)


def _choose(
    claim: str,
    request: DeviceRequest,
    options: ExactDeviceRequest | DeviceSubRequest,
    classes: ClassLister,
    selectors: Selectors,
    features: Features,
) -> Choice:
    name = options.name if isinstance(options, DeviceSubRequest) else request.name
    where = f"claim {claim}, request {name}"
    if options.derived_attributes:
        raise AllocationError(f"{where}: cannot handle request with derived attributes, the feature is disabled")
    for index, selector in enumerate(options.selectors):
        if selector.cel is None:
            raise AllocationError(f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)")
    if isinstance(options, ExactDeviceRequest) and options.admin_access is not None and not features.admin_access:
        raise AllocationError(f"{where}: admin access is requested, but the feature is disabled")
    if not options.device_class_name:
        raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
    try:
        device_class = classes.get(options.device_class_name)
    except LookupError as error:
        raise AllocationError(
            f"{where}: could not retrieve device class {options.device_class_name}: {error}"
        ) from error
    if options.allocation_mode not in (EXACT_COUNT, ALL):
        raise AllocationError(f"{where}: unsupported count mode {options.allocation_mode}")
    if options.allocation_mode == EXACT_COUNT and options.count < 0:
        raise AllocationError(f"{where}: exact count {options.count} is negative")
    for index, selector in enumerate(device_class.spec.selectors):
        if selector.cel is None:
            raise AllocationError(
                f"class {options.device_class_name}: selector #{index}: "
                "CEL expression empty (unsupported selector type?)"
            )
    return Choice(claim, request, options, device_class, selectors, features)
