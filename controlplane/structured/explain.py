"""Why a node cannot serve claims, for each request: how many devices there are, and which rule removed how many.

Each device counts for the first rule that removes it, in the order of the search. The remaining devices can still be
too few for all requests together. Then the requests are tried one after the other, with and without constraints, to
find the first that fails, and whether devices, counters or a constraint are the reason.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from controlplane.structured.allocator import Allocator
from controlplane.structured.capacity import CapacityError, consumption, fits
from controlplane.structured.errors import AllocationAborted, AllocationError, NodeError
from controlplane.structured.features import Features
from controlplane.structured.holdings import Holdings
from controlplane.structured.identity import DeviceID
from controlplane.structured.index import SliceIndex
from controlplane.structured.layout import Layout
from controlplane.structured.listers import ClassLister
from controlplane.structured.problem import blocking_taint
from controlplane.structured.requests import Choice, PlannedConstraint, claim_name, plan
from controlplane.structured.selectors import SelectorError
from controlplane.structured.state import AllocatedState
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import AllocationResult, DeviceConstraint, ResourceClaim, ResourceSlice


class Removal(Struct, frozen=True):
    """A rule and the number of devices that it removed; `detail` is the selector, the taint or the holders."""

    rule: str
    count: int
    detail: str = ""


class RequestReport(Struct, frozen=True):
    """The result of each rule on a node's devices for one request or alternative."""

    claim: str
    request: str  # "name" or "name/alternative"
    wanted: int | None  # None: all
    considered: int
    matching: int | None  # with mode All: the devices that it selects, available or not
    removed: tuple[Removal, ...]

    @property
    def left(self) -> int:
        """How many devices no rule removed."""
        return self.considered - sum(removal.count for removal in self.removed)


class NodeReport(Struct, frozen=True):
    """The allocations for claims on one node, or why there are none."""

    node: str
    allocations: tuple[AllocationResult, ...] | None
    reason: str = ""  # the line to read first
    error: str = ""  # the allocator's, if it raised one
    pools: tuple[str, ...] = ()  # the unusable pools, with the reason
    requests: tuple[RequestReport, ...] = ()


class Explainer:
    """Allocates on nodes, and explains a refusal."""

    def __init__(
        self,
        features: Features,
        state: AllocatedState,
        classes: ClassLister,
        slices: Sequence[ResourceSlice],
        *,
        holders: Mapping[DeviceID, str] | None = None,
        timeout: float = 10.0,
    ) -> None:
        """`holders` maps a device to the text that names its holder; `timeout` (seconds) applies to each search."""
        self._features = features
        self._state = state
        self._classes = classes
        self._holders = holders or {}
        self._timeout = timeout
        self._index = SliceIndex()
        self._index.update(slices)
        self._allocator = Allocator(features, state, classes, slices, index=self._index)

    def report(self, node: Node, claims: Sequence[ResourceClaim]) -> NodeReport:
        """Return allocations for the claims on the node, or the reasons why there are none."""
        error = ""
        try:
            allocations = self._allocator.allocate(node, claims, timeout=self._timeout)
            if allocations is not None:
                return NodeReport(node.metadata.name, tuple(allocations))
        except NodeError as raised:
            error = str(raised)
        except AllocationError as raised:
            return NodeReport(node.metadata.name, None, str(raised), str(raised))
        layout = self._index.layout(node, self._features)
        holdings = Holdings(self._state, layout, self._features)
        planned = plan(claims, self._classes, self._index.selectors, self._features)
        requests = [
            self._request_report(choice, claim.constraints, layout, holdings)
            for claim in planned
            for request in claim.requests
            for choice in request.choices
        ]
        pools = tuple(_pool_faults(layout))
        reason = self._reason(node, claims, requests) or error
        return NodeReport(node.metadata.name, None, reason, error, pools, tuple(requests))

    # One device after the other

    def _request_report(
        self, choice: Choice, constraints: Sequence[PlannedConstraint], layout: Layout, holdings: Holdings
    ) -> RequestReport:
        removed: dict[tuple[str, str], int] = {}
        considered = layout.size
        for pool in layout.pools:
            if pool.is_incomplete or pool.is_invalid:
                number = sum(len(record.devices) for record in pool.records if not record.has_counters)
                considered += number
                rule = "pool incomplete" if pool.is_incomplete else "pool invalid"
                if number:
                    removed[rule, str(pool.id)] = removed.get((rule, str(pool.id)), 0) + number
        matching = 0
        for position in range(layout.size):
            found = None if choice.wants_all else self._holder(choice, layout, holdings, position)
            if found is None:
                found = self._mismatch(choice, layout, position)
                if found is None:
                    matching += 1
                    found = (
                        self._holder(choice, layout, holdings, position)
                        or self._unavailability(choice, layout, holdings, position)
                        or self._missing_attribute(choice, constraints, layout, position)
                    )
            if found is not None:
                removed[found] = removed.get(found, 0) + 1
        return RequestReport(
            choice.claim_name,
            choice.ref,
            None if choice.wants_all else choice.count,
            considered,
            matching if choice.wants_all else None,
            tuple(Removal(rule, count, detail) for (rule, detail), count in removed.items()),
        )

    def _holder(self, choice: Choice, layout: Layout, holdings: Holdings, position: int) -> tuple[str, str] | None:
        if holdings.exclusive & 1 << position and not choice.admin_access:
            return "in use", self._holders.get(layout.device_id(position), "")
        return None

    def _mismatch(self, choice: Choice, layout: Layout, position: int) -> tuple[str, str] | None:
        """Why the request does not select the device."""
        record, index = layout.locate(position)
        device = record.devices[index]
        if device.binding_conditions and not self._features.device_binding_and_status:
            return "feature off", "binding conditions"
        for number, selector in enumerate(choice.selectors):
            is_of_class = number < choice.class_selectors
            owner = f"class {choice.device_class.metadata.name}" if is_of_class else f"request {choice.name}"
            try:
                if not record.evaluate(selector, index):
                    return "selector false", f"{owner}: {selector.key}"
            except SelectorError as error:
                return "selector error", f"{owner}: {selector.key}: {error}"
        if layout.node_dependent & 1 << position:
            return "other node", ""
        if self._features.consumable_capacity:
            try:
                amounts = consumption(device.capacity, choice.capacity_requests)
            except CapacityError as error:
                return "capacity error", str(error)
            if amounts is None:
                return "capacity", "the device does not have what is asked for"
        return None

    def _unavailability(
        self, choice: Choice, layout: Layout, holdings: Holdings, position: int
    ) -> tuple[str, str] | None:
        """Why a device that the request selects is not available."""
        bit = 1 << position
        record, index = layout.locate(position)
        device = record.devices[index]
        if self._features.consumable_capacity:
            amounts = consumption(device.capacity, choice.capacity_requests) or {}
            if not fits(device.capacity, amounts, holdings.capacity.get(position, {})):
                return "capacity", "too little is left"
        if record.skips_operations:
            return "feature off", "skipped node operations"
        if record.draws.get(index) is not None:
            if not self._features.partitionable_devices:
                return "feature off", "partitionable devices"
            pool = layout.spans[layout.pool_numbers[position]][0]
            is_paid = self._features.consumable_capacity and layout.shareable & bit and holdings.shared & bit
            if not is_paid and not holdings.has_counters_for(pool, record.draws[index]):
                return "counters", str(pool.id)
        if self._features.device_taints:
            taint = blocking_taint(device.taints, choice.tolerations)
            if taint is not None:
                value = f"={taint.value}" if taint.value else ""
                return "taint", f"{taint.key}{value}:{taint.effect}"
        return None

    def _missing_attribute(
        self, choice: Choice, constraints: Sequence[PlannedConstraint], layout: Layout, position: int
    ) -> tuple[str, str] | None:
        """The constraint that excludes the device by itself, because the device lacks the attribute."""
        for constraint in constraints:
            if constraint.applies_to(choice):
                attribute = layout.attribute(constraint.attribute, is_list=self._features.list_type_attributes)
                if not attribute.present & 1 << position:
                    return "constraint", f"no attribute {constraint.attribute}"
        return None

    # One request after the other

    def _reason(self, node: Node, claims: Sequence[ResourceClaim], requests: Sequence[RequestReport]) -> str:
        short = self._first_short_request(claims, requests)
        if short:
            return short
        try:
            for number, claim in enumerate(claims):
                before = claims[:number]
                if self._can_allocate(node, [*before, claim]):
                    continue
                return self._reason_in(node, before, claim, requests)
        except AllocationAborted:
            return "the search took too long"
        return ""

    def _first_short_request(self, claims: Sequence[ResourceClaim], requests: Sequence[RequestReport]) -> str:
        """The shortage of the first request for which every alternative has too few devices; empty if there is none."""
        for claim in claims:
            for request in claim.spec.devices.requests:
                reports = [
                    report
                    for report in requests
                    if report.claim == claim_name(claim) and report.request.split("/")[0] == request.name
                ]
                if reports and all(_is_short(report) for report in reports):
                    return "; or ".join(map(_shortage_text, reports))
        return ""

    def _reason_in(
        self,
        node: Node,
        before: Sequence[ResourceClaim],
        claim: ResourceClaim,
        requests: Sequence[RequestReport],
    ) -> str:
        """The first request of a claim that cannot be allocated, and the reason."""
        devices = claim.spec.devices
        for number, request in enumerate(devices.requests, 1):
            part = _claim_part(claim, number, devices.constraints)
            if self._can_allocate(node, [*before, part]):
                continue
            where = f"claim {claim_name(claim)}, request {request.name}"
            if self._can_allocate(node, [*before, _claim_part(claim, number, ())]):
                for constraint in devices.constraints:
                    if not self._can_allocate(node, [*before, _claim_part(claim, number, (constraint,))]):
                        return f"{where}: {_constraint_text(constraint)}"
                return f"{where}: the constraints of the claim cannot be met together"
            fitting = _fitting_text(request.name, claim, requests)
            alone = replace(devices, requests=(request,), constraints=())
            if not self._can_allocate(node, [replace(claim, spec=replace(claim.spec, devices=alone))]):
                return f"{where}: {fitting} but not together: counters or capacity that they share are too small"
            others = (
                "claims" if number == 1 or self._can_allocate(node, [_claim_part(claim, number, ())]) else "requests"
            )
            return f"{where}: {fitting} but the {others} before it need what it would take"
        return f"claim {claim_name(claim)}: its requests fit one by one, but not together"

    def _can_allocate(self, node: Node, claims: Sequence[ResourceClaim]) -> bool:
        try:
            return self._allocator.allocate(node, claims, timeout=self._timeout) is not None
        except AllocationAborted:
            raise
        except AllocationError:
            return False


def _pool_faults(layout: Layout) -> Iterable[str]:
    for pool in layout.pools:
        if pool.is_incomplete:
            have, wanted = len(pool.records) + len(pool.others), pool.records[0].slice_count
            yield f"pool {pool.id} is incomplete: {have} of {wanted} slices"
        elif pool.is_invalid:
            yield f"pool {pool.id} is invalid: {pool.invalid}"


def _is_short(report: RequestReport) -> bool:
    wanted = max(report.matching or 0, 1) if report.wanted is None else report.wanted
    return report.left < wanted


def _shortage_text(report: RequestReport) -> str:
    wanted = str(report.wanted)
    if report.wanted is None:
        wanted = f"all {report.matching} that match" if report.matching else "at least 1"
    where = f"claim {report.claim}, request {report.request}"
    if not report.considered:
        return f"{where}: needs {wanted}, and the node sees no devices"
    counts: dict[str, int] = {}
    details: dict[str, list[str]] = {}
    for removal in sorted(report.removed, key=lambda removal: -removal.count):
        counts[removal.rule] = counts.get(removal.rule, 0) + removal.count
        if removal.detail:
            details.setdefault(removal.rule, []).append(removal.detail)
    reasons = ", ".join(f"{count} {rule}{_detail_text(details.get(rule, []))}" for rule, count in counts.items())
    reasons = reasons or "nothing against them"
    return f"{where}: needs {wanted}, {report.left} of {report.considered} devices left ({reasons})"


def _detail_text(details: Sequence[str]) -> str:
    more = f" and {len(details) - 2} more" if len(details) > 2 else ""
    return f" [{'; '.join(details[:2])}{more}]" if details else ""


def _constraint_text(constraint: DeviceConstraint) -> str:
    if constraint.match_attribute is not None:
        return f"there are not enough devices that agree in {constraint.match_attribute}"
    return f"there are not enough devices that all differ in {constraint.distinct_attribute}"


def _fitting_text(request: str, claim: ResourceClaim, requests: Sequence[RequestReport]) -> str:
    left = [x.left for x in requests if x.claim == claim_name(claim) and x.request.split("/")[0] == request]
    number = max(left, default=0)
    return f"{number} device{'' if number == 1 else 's'} would fit,"


def _claim_part(claim: ResourceClaim, requests: int, constraints: tuple[DeviceConstraint, ...]) -> ResourceClaim:
    """The claim with its first requests only, and these constraints."""
    devices = claim.spec.devices
    part = replace(devices, requests=devices.requests[:requests], constraints=constraints)
    return replace(claim, spec=replace(claim.spec, devices=part))
