"""The devices that a detail of a claim can have.

Rules: a class selects the devices of its driver; without a driver, those of every driver that is registered for its
device type. A device type selects all classes of that type. A device's effective attributes must meet the constraints
of both class and claim. With admin access, of a class or of a privileged claim, devices are candidates even if they are
allocated. As such access is a privilege, an ordinary claim has to name the class to get it, not just the device type. A
pool without a candidate has one reason, in the prototype's order. Source: allocator specification 6.3, 6.6.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from controlplane.k8srm.amounts import UNIT, Demand, DeviceShape
from controlplane.k8srm.constraints import ConstraintError, effective_attributes, holds, values_of
from controlplane.k8srm.holdings import DeviceName, Holdings, missing_resources
from controlplane.k8srm.load import ClusterObjects
from controlplane.k8srm.types import (
    COUNT,
    Device,
    DeviceClaim,
    DeviceClaimDetail,
    DeviceClass,
    DevicePool,
    DevicePrivilegedClaim,
    details_of,
)
from controlplane.structured.capacity import billionths
from controlplane.structured.requests import MAX_RESULTS

NO_AVAILABLE_DEVICES = "no available devices"
DRIVER_MISMATCH = "claim and pool driver do not match"
CONSTRAINTS_NOT_MET = "constraints not met"


class Candidate(NamedTuple):
    """A device that a detail can have, through which class, and what it can provide of the requested amounts."""

    device_class: str
    shape: DeviceShape | None


class RequirementID(NamedTuple):
    """The position of a detail: claim, instance in the claim, alternative in the instance."""

    claim: int
    instance: int
    alternative: int

    @property
    def mark(self) -> str:
        """A name for the position that is an identifier in CEL."""
        return f"c{self.claim}i{self.instance}a{self.alternative}"


class Requirement(Struct, frozen=True):
    """A detail with its candidates in the cluster. If `fault` is set, there are none."""

    id: RequirementID
    alternatives: int  # the number of alternatives of the instance
    detail: DeviceClaimDetail
    demand: Demand
    is_admin: bool
    candidates: Mapping[str, Mapping[str, Candidate]] = {}  # by pool and device
    refusals: Mapping[str, str] = {}  # by pool
    fault: str = ""

    @property
    def takes_amounts(self) -> bool:
        """Whether the detail takes portions of devices; admin access takes nothing."""
        return bool(self.demand.amounts) and not self.is_admin


def requirements_of(
    claims: Sequence[DeviceClaim], cluster: ClusterObjects, holdings: Holdings
) -> dict[RequirementID, Requirement]:
    """Return all details of the claims, in order."""
    return {
        id_: _requirement(id_, len(details), detail, claim, cluster, holdings)
        for number, claim in enumerate(claims)
        for index, instance in enumerate(claim.spec.claims)
        for details in [details_of(instance)]
        for alternative, detail in enumerate(details)
        for id_ in [RequirementID(number, index, alternative)]
    }


def _requirement(
    id_: RequirementID,
    alternatives: int,
    detail: DeviceClaimDetail,
    claim: DeviceClaim,
    cluster: ClusterObjects,
    holdings: Holdings,
) -> Requirement:
    is_privileged = isinstance(claim, DevicePrivilegedClaim)
    classes, fault = _classes(detail, cluster, is_privileged=is_privileged)
    demand = _demand(detail)
    is_admin = is_privileged or any(each.spec.admin_access for each in classes)
    fault = fault or _demand_fault(demand)
    if fault:
        return Requirement(id_, alternatives, detail, demand, is_admin, fault=fault)
    candidates: dict[str, Mapping[str, Candidate]] = {}
    refusals: dict[str, str] = {}
    drivers = {each.metadata.name: _drivers(each, cluster) for each in classes}
    for pool in cluster.pools.values():
        if not is_admin and not any(_is_available(pool, device, demand, holdings) for device in pool.spec.devices):
            refusals[pool.metadata.name] = NO_AVAILABLE_DEVICES
            continue
        matching = [each for each in classes if pool.spec.driver in drivers[each.metadata.name]]
        found, reason = _candidates_in(pool, matching, detail, demand, None if is_admin else holdings)
        if found:
            candidates[pool.metadata.name] = found
        else:
            refusals[pool.metadata.name] = reason
    return Requirement(id_, alternatives, detail, demand, is_admin, candidates, refusals)


def _classes(
    detail: DeviceClaimDetail, cluster: ClusterObjects, *, is_privileged: bool
) -> tuple[list[DeviceClass], str]:
    """The classes that a detail selects, or why there are none."""
    if detail.device_class:
        named = cluster.classes.get(detail.device_class)
        if named is None:
            return [], f'device class "{detail.device_class}" not found'
        if detail.device_type and named.spec.device_type != detail.device_type:
            return [], f'device class "{detail.device_class}" is not of type "{detail.device_type}"'
        return [named], ""
    of_type = [each for each in cluster.classes.values() if each.spec.device_type == detail.device_type]
    usable = [each for each in of_type if is_privileged or not each.spec.admin_access]
    if usable:
        return usable, ""
    if of_type:
        names = ", ".join(each.metadata.name for each in of_type)
        return [], f'classes of type "{detail.device_type}" give admin access and must be named: {names}'
    return [], f'no device class provides device type "{detail.device_type}"'


def _drivers(device_class: DeviceClass, cluster: ClusterObjects) -> set[str]:
    """The class's driver, or the drivers that are registered for its device type."""
    if device_class.spec.driver:
        return {device_class.spec.driver}
    wanted = device_class.spec.device_type
    return {name for name, driver in cluster.drivers.items() if wanted and wanted in driver.device_types}


def _demand(detail: DeviceClaimDetail) -> Demand:
    """The demand of a detail. Without a limit, the maximum is the requested count, or as many as the amounts need."""
    limits = {name: billionths(limit) for name, limit in detail.limits.items() if name != COUNT}
    amounts = {name: billionths(amount) for name, amount in detail.requests.items() if name != COUNT}
    # As for containers, a limit without a request counts as a request.
    amounts = {name: amount for name, amount in {**limits, **amounts}.items() if amount > 0}
    requested = detail.requests.get(COUNT)
    minimum = 1 if requested is None else _whole_units(billionths(requested))
    if COUNT in detail.limits:
        maximum = min(billionths(detail.limits[COUNT]) // UNIT, MAX_RESULTS)
    else:
        maximum = MAX_RESULTS if requested is None and amounts else minimum
    return Demand(minimum, maximum, amounts, limits)


def _demand_fault(demand: Demand) -> str:
    if demand.minimum > MAX_RESULTS:
        return f"{demand.minimum} devices are more than the {MAX_RESULTS} that a claim can hold"
    if demand.maximum < demand.minimum:
        return f"the limit of {COUNT} is below the request: {demand.maximum} < {demand.minimum}"
    for name, amount in demand.amounts.items():
        if demand.limits.get(name, amount) < amount:
            return f"the limit of {name} is below the request"
    return ""


def _is_available(pool: DevicePool, device: Device, demand: Demand, holdings: Holdings) -> bool:
    """Return whether no claim holds the device, or, if amounts are requested, none holds it as a whole."""
    if demand.amounts:
        name = DeviceName(pool.metadata.name, device.name)
        return name not in holdings.whole
    return holdings.is_free(pool, device)


def _candidates_in(
    pool: DevicePool,
    classes: Sequence[DeviceClass],
    detail: DeviceClaimDetail,
    demand: Demand,
    holdings: Holdings | None,
) -> tuple[dict[str, Candidate], str]:
    """The pool's candidates, or the first reason why there are none. `holdings` is None for admin access."""
    if not pool.spec.devices:
        return {}, NO_AVAILABLE_DEVICES
    if not classes:
        return {}, DRIVER_MISMATCH
    if duplicate := _duplicate_device_name(pool):
        return {}, f"two devices of the pool are called {duplicate}"
    found: dict[str, Candidate] = {}
    reasons: dict[str, None] = {}
    for device in pool.spec.devices:
        if holdings is not None and not _is_available(pool, device, demand, holdings):
            continue
        values = values_of(effective_attributes(pool, device))
        shape = None
        by_class, reason = _first_admitting_class(classes, detail, values)
        if by_class is None:
            reasons[reason] = None
            continue
        missing = missing_resources(pool, device)
        if missing:
            reasons[f"device {device.name} takes {', '.join(missing)}, which the pool does not have"] = None
            continue
        if demand.amounts and holdings is not None:
            supplies = [holdings.supply(pool, device, name) for name in sorted(demand.amounts)]
            lacking = [name for name, supply in zip(sorted(demand.amounts), supplies, strict=True) if supply is None]
            if lacking:
                reasons[f"no {', '.join(lacking)} available"] = None
                continue
            shape = DeviceShape(tuple(supply for supply in supplies if supply is not None))
        found[device.name] = Candidate(by_class.metadata.name, shape)
    return found, next(iter(reasons), NO_AVAILABLE_DEVICES)


def _first_admitting_class(
    classes: Sequence[DeviceClass], detail: DeviceClaimDetail, values: Mapping[str, Any]
) -> tuple[DeviceClass | None, str]:
    """The first class through which the detail can have a device, or the reason why there is none."""
    reason = ""
    for device_class in classes:
        try:
            if holds(device_class.spec.constraints, values) and holds(detail.constraints, values):
                return device_class, ""
        except ConstraintError as error:
            reason = reason or f"error evaluating constraints: {error}"
    return None, reason or CONSTRAINTS_NOT_MET


def _duplicate_device_name(pool: DevicePool) -> str:
    """A name that two devices of the pool have; empty if there is none."""
    seen: set[str] = set()
    for device in pool.spec.devices:
        if device.name in seen:
            return device.name
        seen.add(device.name)
    return ""


def _whole_units(amount: int) -> int:
    return -(-amount // UNIT)
