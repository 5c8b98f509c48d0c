"""Rules for a device's capacities and how they can be requested (allocator.md 4.5, "requestPolicy")."""

from collections.abc import Sequence

from resourceapi.objects import v1
from resourceapi.objects.errors import ErrorList
from resourceapi.objects.field_rules import check_items
from resourceapi.objects.quantity import Quantity, QuantityError
from resourceapi.objects.release import LATEST, Release

MAX_VALID_VALUES = 10
_MAX_BOUND = Quantity.of(2**63 - 1)


def capacity_of_shared_device(
    errors: ErrorList, path: str, capacity: v1.DeviceCapacity, release: Release = LATEST
) -> None:
    """Check a capacity of a device that can be allocated several times; its policy limits what a request can take."""
    policy = capacity.request_policy
    if policy is None:
        return
    here = f"{path}.requestPolicy"
    if policy.valid_values and policy.valid_range is not None:
        text = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        errors.forbidden(here, text)
    elif policy.valid_values:
        if policy.default is None:
            errors.required(f"{here}.default", "required when validValues is defined")
        else:
            _valid_values(errors, f"{here}.validValues", policy.default, capacity.value, policy.valid_values)
    elif policy.valid_range is not None:
        if policy.default is None:
            errors.required(f"{here}.default", "required when validRange is defined")
        else:
            _valid_range(errors, f"{here}.validRange", policy.default, capacity.value, policy.valid_range, release)


def capacity_of_exclusive_device(errors: ErrorList, path: str, capacity: v1.DeviceCapacity) -> None:
    """Check a capacity of a device that is allocated as a whole: a request policy is not allowed."""
    if capacity.request_policy is not None:
        errors.forbidden(f"{path}.requestPolicy", "allowMultipleAllocations must be true")


def _valid_values(
    errors: ErrorList, path: str, default: Quantity, capacity: Quantity, values: Sequence[Quantity]
) -> None:
    for index in range(1, len(values)):
        if values[index - 1] > values[index]:
            errors.invalid(f"{path}[{index}]", values[index], "values must be sorted in ascending order")

    def rule(errors: ErrorList, path: str, value: Quantity) -> None:
        if value > capacity:
            errors.invalid(path, value, f"option is larger than capacity value: {capacity}")

    check_items(errors, path, values, MAX_VALID_VALUES, rule, lambda value: str(value.value()))
    if len(values) > MAX_VALID_VALUES or default not in values:
        errors.invalid(path, default, "default value is not valid according to the requestPolicy")


def _valid_range(
    errors: ErrorList,
    path: str,
    default: Quantity,
    capacity: Quantity,
    valid: v1.CapacityRequestPolicyRange,
    release: Release,
) -> None:
    low, high = valid.min, valid.max
    if low is None:
        errors.required(f"{path}.min", "required when validRange is defined")
        return
    if low > capacity:
        errors.invalid(f"{path}.min", low, f"min is larger than capacity value: {capacity}")
    if default < low:
        where = "default" if release.limits_capacity_steps else "min"
        errors.invalid(f"{path}.{where}", default, f"default is less than min: {low}")
    if high is not None:
        if low > high:
            errors.invalid(f"{path}.max", low, f"min is larger than max: {high}")
        if high > capacity:
            errors.invalid(f"{path}.max", high, f"max is larger than capacity value: {capacity}")
        if default > high:
            where = "default" if release.limits_capacity_steps else "max"
            errors.invalid(f"{path}.{where}", default, f"default is more than max: {high}")
    if valid.step is not None:
        _step(errors, path, default, low, high, valid.step, capacity, release)


def _step(
    errors: ErrorList,
    path: str,
    default: Quantity,
    low: Quantity,
    high: Quantity | None,
    step: Quantity,
    capacity: Quantity,
    release: Release,
) -> None:
    here = f"{path}.step"
    # 1.36 fails on a step of 0 and accepts a negative one
    if step.sign == 0 or (step.sign < 0 and release.limits_capacity_steps):
        errors.invalid(here, step, "must be greater than zero")
        return
    try:
        first = low + step
    except QuantityError as error:
        errors.invalid(here, step, str(error))
        return
    if first > capacity:
        errors.invalid(here, step, f"one step {first} is larger than capacity value: {capacity}")
    if release.limits_capacity_steps and not _are_bounded(errors, path, default, low, high, step):
        return
    for value in [default] if high is None else [default, high]:
        # In whole units and 64 bits, like the reference; nothing is a multiple of a step that wraps to 0.
        size = step.value()
        if size == 0 or (value.value() - low.value()) % size != 0:
            errors.invalid(here, value, f"value is not a multiple of a given step ({step}) from ({low})")


def _are_bounded(
    errors: ErrorList, path: str, default: Quantity, low: Quantity, high: Quantity | None, step: Quantity
) -> bool:
    """Check that each value fits 64 bits, which counting in steps requires; return whether all do."""
    before = len(errors)
    for name, bound in (("default", default), ("min", low), ("max", high), ("step", step)):
        if bound is not None and bound.sign < 0:
            errors.invalid(f"{path}.{name}", bound, "must be greater than or equal to 0")
        elif bound is not None and bound > _MAX_BOUND:
            errors.invalid(f"{path}.{name}", bound, f"must not be larger than {_MAX_BOUND}")
    return len(errors) == before
