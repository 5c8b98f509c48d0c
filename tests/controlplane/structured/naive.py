"""A second search, as simple as possible: recursion, lists and sets, explicit checks, no caching.

The input is the planned claims and the pools. The result is the allocated devices or an error.
Errors in claims and slices that are found before the search are out of scope.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from controlplane.structured import AllocatedState, AllocationError, DeviceID, Features
from controlplane.structured.capacity import CapacityError, consumption
from controlplane.structured.counters import CounterName
from controlplane.structured.node_selector import NodeSelectorError, node_matches
from controlplane.structured.pools import Pool
from controlplane.structured.requests import Choice, PlannedClaim
from controlplane.structured.selectors import SelectorError
from resourceapi.objects import Quantity
from resourceapi.objects.claims import tolerates
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import Device, ResourceSliceSpec

OVER_LIMIT = "too many"


class Candidate(NamedTuple):
    """A device with its position in the search order."""

    pool: Pool
    spec: ResourceSliceSpec
    device: Device

    @property
    def id(self) -> DeviceID:
        return DeviceID(*self.pool.id, self.device.name)


class Allocation(NamedTuple):
    """An allocated device."""

    claim: int
    choice: Choice
    candidate: Candidate
    amounts: dict[str, Quantity] | None  # None: not shared


class NaiveSearch:
    """One search; `run` returns the devices per claim or None, or raises AllocationError."""

    def __init__(
        self, claims: list[PlannedClaim], pools: list[Pool], node: Node, state: AllocatedState, features: Features
    ) -> None:
        self.claims = claims
        self.pools = pools
        self.node = node
        self.state = state
        self.features = features
        self.allocations: list[Allocation] = []
        self.steps = 0
        self.candidates = [
            Candidate(pool, record.slice.spec, device)
            for pool in pools
            if not pool.is_incomplete and not pool.is_invalid
            for record in pool.device_records
            for device in record.devices
        ]

    def run(self) -> list[list[tuple[str, DeviceID]]] | None:
        if self.step(0, 0, None, 0, 0) is not True:
            return None
        return [
            [(x.choice.ref, x.candidate.id) for x in self.allocations if x.claim == number]
            for number in range(len(self.claims))
        ]

    def step(self, claim: int, request: int, choice: Choice | None, index: int, start: int) -> bool | str:
        self.steps += 1
        if claim == len(self.claims):
            return True
        requests = self.claims[claim].requests
        if request == len(requests):
            return self.step(claim + 1, 0, None, 0, 0) is True
        if choice is None and requests[request].has_alternatives:
            outcomes = []
            for alternative in requests[request].choices:
                outcomes.append(self.step(claim, request, alternative, 0, 0))
                if outcomes[-1] is True:
                    return True
            return OVER_LIMIT if all(outcome == OVER_LIMIT for outcome in outcomes) else False
        choice = choice or requests[request].choices[0]
        listed = self.all_devices(choice) if choice.wants_all else None
        if listed == []:
            return False
        count = choice.count if listed is None else len(listed)
        if index == count:
            return self.step(claim, request + 1, None, 0, 0)
        if sum(x.claim == claim for x in self.allocations) + count - index > 32:
            return OVER_LIMIT
        if listed is not None:
            if not self.try_allocate(claim, choice, listed[index], is_required=True):
                return False
            outcome = self.step(claim, request, choice, index + 1, 0)
            if outcome is not True:
                self.allocations.pop()
            return outcome
        for position in range(start, len(self.candidates)):
            candidate = self.candidates[position]
            if self.in_use(claim, choice, candidate) or not self.is_suitable(choice, candidate):
                continue
            if not self.try_allocate(claim, choice, candidate, is_required=False):
                continue
            outcome = self.step(claim, request, choice, index + 1, position + 1)
            if outcome is True:
                return True
            self.allocations.pop()
            if outcome == OVER_LIMIT:
                return OVER_LIMIT
        return False

    def all_devices(self, choice: Choice) -> list[Candidate]:
        return [candidate for candidate in self.candidates if self.is_suitable(choice, candidate)]

    def is_shared(self, candidate: Candidate) -> bool:
        return self.features.consumable_capacity and bool(candidate.device.allow_multiple_allocations)

    def in_use(self, claim: int, choice: Choice, candidate: Candidate) -> bool:
        mine = [x for x in self.allocations if x.candidate.id == candidate.id and x.amounts is None]
        if choice.admin_access:
            return any(x.claim == claim for x in mine)
        return candidate.id in self.state.allocated_devices or bool(mine)

    def is_suitable(self, choice: Choice, candidate: Candidate) -> bool:
        if candidate.device.binding_conditions and not self.features.device_binding_and_status:
            return False
        for number, selector in enumerate(choice.selectors):
            try:
                if not selector.matches(candidate.spec.driver, candidate.device):
                    return False
            except SelectorError as error:
                raise self.selector_error(choice, number, candidate, error) from None
        if candidate.spec.per_device_node_selection and not self.serves_node(candidate.device):
            return False
        return not self.features.consumable_capacity or self.amounts(choice, candidate) is not None

    def selector_error(
        self, choice: Choice, number: int, candidate: Candidate, error: SelectorError
    ) -> AllocationError:
        owner = f"class {choice.device_class.metadata.name}"
        if number >= choice.class_selectors:
            number, owner = number - choice.class_selectors, f"claim {choice.claim_name}"
        if error.is_compile_error:
            return AllocationError(f"{owner}: selector #{number}: CEL compile error: {error}")
        return AllocationError(f"{owner}: selector #{number} on device {candidate.id}: CEL runtime error: {error}")

    def serves_node(self, device: Device) -> bool:
        if device.node_name:
            return device.node_name == self.node.metadata.name
        try:
            return bool(device.all_nodes) or (
                device.node_selector is not None and node_matches(device.node_selector, self.node)
            )
        except NodeSelectorError as error:
            raise AllocationError(str(error)) from None

    def amounts(self, choice: Choice, candidate: Candidate) -> dict[str, Quantity] | None:
        try:
            return consumption(candidate.device.capacity, choice.capacity_requests)
        except CapacityError as error:
            device = candidate.device.name if choice.wants_all else candidate.id
            raise AllocationError(
                f"claim {choice.claim_name}, request {choice.name}: checking capacity for device {device}: {error}"
            ) from None

    def try_allocate(self, claim: int, choice: Choice, candidate: Candidate, *, is_required: bool) -> bool:
        device = candidate.device
        if self.in_use(claim, choice, candidate) or candidate.spec.skip_node_operations:
            return False
        if device.consumes_counters and not (self.features.partitionable_devices and self.counters_suffice(candidate)):
            return False
        if self.features.device_taints and any(
            taint.effect in ("NoSchedule", "NoExecute") and not any(tolerates(x, taint) for x in choice.tolerations)
            for taint in device.taints
        ):
            return False
        if not self.constraints_allow(claim, choice, candidate):
            if is_required:
                raise AllocationError(
                    f"claim {choice.claim_name}, request {choice.name}: cannot add device {candidate.id} "
                    "because a claim constraint would not be satisfied"
                )
            return False
        amounts: dict[str, Quantity] | None = None
        if self.features.consumable_capacity:
            amounts = self.amounts(choice, candidate) or {}
            others = [x.amounts for x in self.allocations if x.candidate.id == candidate.id and x.amounts]
            others.append(dict(self.state.aggregated_capacity.get(candidate.id, {})))
            for name, amount in amounts.items():
                total = amount
                for other in others:
                    total = total + other[name] if name in other else total
                if total > device.capacity[name].value:
                    return False
        self.allocations.append(Allocation(claim, choice, candidate, amounts if self.is_shared(candidate) else None))
        return True

    def counters_suffice(self, candidate: Candidate) -> bool:
        """Check all counters of the pool against the consumption of all devices in use. A shared device counts once."""
        used: dict[CounterName, int] = {}
        shares = {share.device for share in self.state.allocated_shared_device_ids}
        shares |= set(self.state.aggregated_capacity)
        for name, draw in candidate.pool.draws():
            device = DeviceID(*candidate.pool.id, name)
            if device in self.state.allocated_devices or device in shares:
                _add(used, draw)
        if self.is_shared(candidate) and (
            candidate.id in shares or any(x.candidate.id == candidate.id for x in self.allocations)
        ):
            return True
        if any(total > candidate.pool.counters[name] for name, total in used.items()):
            return False
        paid = set(shares)
        for allocation in self.allocations:
            other = allocation.candidate
            if other.pool is not candidate.pool or (allocation.amounts is not None and other.id in paid):
                continue
            paid |= {other.id} if allocation.amounts is not None else set()
            _add(used, _draw(other.device))
        mine = _draw(candidate.device)
        return all(used.get(name, 0) + amount <= candidate.pool.counters[name] for name, amount in mine.items())

    def constraints_allow(self, claim: int, choice: Choice, candidate: Candidate) -> bool:
        for constraint in self.claims[claim].constraints:
            if not constraint.applies_to(choice):
                continue
            devices = [x.candidate for x in self.allocations if x.claim == claim and constraint.applies_to(x.choice)]
            sets = [self.values(each, constraint.attribute) for each in [*devices, candidate]]
            new = sets[-1]
            if new is None or (self.features.list_type_attributes and not new):
                return False
            if not devices:
                continue
            if not new:
                return False
            known = [values for values in sets if values is not None]
            if constraint.is_match and not set.intersection(*known):
                return False
            if not constraint.is_match and any(new & other for other in known[:-1]):
                return False
        return True

    def values(self, candidate: Candidate, name: str) -> set[tuple[str, object]] | None:
        attributes = candidate.device.attributes
        domain, _, bare = name.rpartition("/")
        attribute = attributes.get(name) or (attributes.get(bare) if domain == candidate.spec.driver else None)
        if attribute is None:
            return None
        scalars = {
            "int": attribute.int_value,
            "bool": attribute.bool_value,
            "string": attribute.string_value,
            "version": attribute.version_value,
        }
        found: set[tuple[str, object]] = {(kind, value) for kind, value in scalars.items() if value is not None}
        if self.features.list_type_attributes:
            lists: Iterator[tuple[str, tuple[object, ...] | None]] = iter(
                (
                    ("int", attribute.int_values),
                    ("bool", attribute.bool_values),
                    ("string", attribute.string_values),
                    ("version", attribute.version_values),
                )
            )
            for kind, values in lists:
                found |= {(kind, value) for value in values or ()}
        return found


def _draw(device: Device) -> dict[CounterName, int]:
    draw: dict[CounterName, int] = {}
    for part in device.consumes_counters:
        _add(
            draw,
            {CounterName(part.counter_set, name): counter.value.nanos or 0 for name, counter in part.counters.items()},
        )
    return draw


def _add(total: dict[CounterName, int], more: Mapping[CounterName, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
