"""Consumable capacity: how much of each capacity a request takes from a device.

Rules: a request can only name capacities that the device has, by their literal names. A capacity that is not requested
costs the policy's default, or all of it without a default. A requested amount is rounded up to what the policy allows.
If the policy still forbids an amount, or it exceeds the device's value, the device is unsuitable. Amounts that cannot
be computed with (negative, or beyond 64 bits if the policy has steps) are errors of the claim, not of the device.
"""

from collections.abc import Mapping

from resourceapi.objects.quantity import Quantity
from resourceapi.objects.v1 import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity

Amounts = Mapping[str, Quantity]

_UNREPRESENTABLE_NANOS = 10**1020
_MAX_INT64 = 2**63 - 1
_NOT_COMPUTABLE = "capacity request cannot be represented in the device's range arithmetic: "


class CapacityError(ValueError):
    """A requested amount that no device can satisfy, because it cannot be computed with."""


def consumption(capacity: Mapping[str, DeviceCapacity], requests: Amounts) -> dict[str, Quantity] | None:
    """Return what a request takes of every capacity of a device, or None if the device can never provide it.

    What others hold of the device is ignored here. Raises CapacityError.
    """
    if any(name not in capacity for name in requests):
        return None
    amounts = {}
    for name in sorted(capacity):
        try:
            amounts[name] = amount = _amount(capacity[name], requests.get(name))
        except CapacityError as error:
            raise CapacityError(f'capacity "{name}": {error}') from None
        if amount.sign < 0:
            raise CapacityError(f'capacity "{name}": capacity value is negative')
    for name, amount in amounts.items():
        if not _is_allowed(amount, capacity[name].request_policy) or amount > capacity[name].value:
            return None
    return amounts


def fits(capacity: Mapping[str, DeviceCapacity], amounts: Amounts, *held: Amounts) -> bool:
    """Return whether the amounts fit into what is not held yet."""
    for name, amount in amounts.items():
        total = billionths(amount) + sum([billionths(other[name]) for other in held if name in other])
        if total > billionths(capacity[name].value):
            return False
    return True


def billionths(quantity: Quantity) -> int:
    """The exact amount as an integer, which is fast to add up. Amounts beyond its range become a very large number."""
    nanos = quantity.nanos
    return quantity.sign * _UNREPRESENTABLE_NANOS if nanos is None else nanos


def _amount(capacity: DeviceCapacity, requested: Quantity | None) -> Quantity:
    policy = capacity.request_policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _round_to_range(requested, policy.valid_range, policy.valid_range.min)
    return next((value for value in policy.valid_values if value >= requested), requested)


def _round_to_range(requested: Quantity, allowed: CapacityRequestPolicyRange, minimum: Quantity) -> Quantity:
    """The next step at or above the request. Steps are whole numbers; fractions are rounded up first."""
    if requested < minimum:
        return minimum
    if allowed.step is None:
        return requested
    if requested > Quantity.of(_MAX_INT64):
        raise CapacityError(f"{_NOT_COMPUTABLE}request {requested} exceeds MaxInt64")
    wanted, low, step = requested.value(), minimum.value(), allowed.step.value()
    if step <= 0:
        raise CapacityError(f"{_NOT_COMPUTABLE}step {allowed.step} is not positive")
    rounded = low + -(-(wanted - low) // step) * step
    if rounded > _MAX_INT64:
        raise CapacityError(f"{_NOT_COMPUTABLE}rounding request {requested} up to the next step passes MaxInt64")
    return Quantity.of(rounded, allowed.step.format)


def _is_allowed(amount: Quantity, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None:
        return True
    # Upstream compares the two structs: an equal amount in another notation has to pass the other rules.
    if policy.default is not None and amount.is_identical(policy.default):
        return True
    if policy.valid_range is not None:
        return _is_in_range(amount, policy.valid_range)
    return not policy.valid_values or any(amount == value for value in policy.valid_values)


def _is_in_range(amount: Quantity, allowed: CapacityRequestPolicyRange) -> bool:
    if allowed.max is not None and amount > allowed.max:
        return False
    if allowed.step is None or allowed.min is None:
        return True
    # Upstream computes in 64 bits. Amounts that were not requested, such as a default, can exceed them and wrap.
    step = allowed.step.value()
    return step > 0 and _wrapped(amount.value() - allowed.min.value()) % step == 0


def _wrapped(value: int) -> int:
    return (value + _MAX_INT64 + 1) % 2**64 - _MAX_INT64 - 1
