"""Rules for a device's capacities and how they can be requested (allocator.md 4.5, "requestPolicy")."""

from collections.abc import Sequence

from resourceapi.objects import v1
from resourceapi.objects.errors import ErrorList
from resourceapi.objects.field_rules import each
from resourceapi.objects.quantity import Quantity, QuantityError

MAX_VALID_VALUES = 10
_MAX_BOUND = Quantity.of(2**63 - 1)  # since 1.37


def capacity_of_shared_device(errors: ErrorList, path: str, capacity: v1.DeviceCapacity) -> None:
    """The device can be allocated several times: requests may take a part, as the policy says."""
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
            _valid_range(errors, f"{here}.validRange", policy.default, capacity.value, policy.valid_range)


def capacity_of_exclusive_device(errors: ErrorList, path: str, capacity: v1.DeviceCapacity) -> None:
    """The device is allocated as a whole: there is nothing to say about parts."""
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

    each(errors, path, values, MAX_VALID_VALUES, rule, lambda value: str(value.value()))
    if len(values) > MAX_VALID_VALUES or default not in values:
        errors.invalid(path, default, "default value is not valid according to the requestPolicy")


def _valid_range(
    errors: ErrorList, path: str, default: Quantity, capacity: Quantity, valid: v1.CapacityRequestPolicyRange
) -> None:
    low, high, step = valid.min, valid.max, valid.step
    if low is None:
        errors.required(f"{path}.min", "required when validRange is defined")
        return
    for name, bound in (("min", low), ("max", high), ("step", step)):
        if bound is not None and bound > _MAX_BOUND:
            errors.invalid(f"{path}.{name}", bound, f"must not be larger than {_MAX_BOUND}")
    if low > capacity:
        errors.invalid(f"{path}.min", low, f"min is larger than capacity value: {capacity}")
    if default < low:
        errors.invalid(f"{path}.min", default, f"default is less than min: {low}")
    if high is not None:
        if low > high:
            errors.invalid(f"{path}.max", low, f"min is larger than max: {high}")
        if high > capacity:
            errors.invalid(f"{path}.max", high, f"max is larger than capacity value: {capacity}")
        if default > high:
            errors.invalid(f"{path}.max", default, f"default is more than max: {high}")
    if step is not None:
        _step(errors, f"{path}.step", low, step, capacity, [default] if high is None else [default, high])


def _step(
    errors: ErrorList, path: str, low: Quantity, step: Quantity, capacity: Quantity, reached: Sequence[Quantity]
) -> None:
    if step.sign <= 0:
        errors.invalid(path, step, "must be greater than zero")
        return
    try:
        first = low + step
    except QuantityError as error:
        errors.invalid(path, step, str(error))
        return
    if first > capacity:
        errors.invalid(path, step, f"one step {first} is larger than capacity value: {capacity}")
    for value in reached:
        # In whole units and 64 bits, as the reference counts; a step that wraps to nothing fits nothing.
        size = step.value()
        if size == 0 or (value.value() - low.value()) % size != 0:
            errors.invalid(path, value, f"value is not a multiple of a given step ({step}) from ({low})")
