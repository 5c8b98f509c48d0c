"""The rules of amounts. Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go."""

from typing import Any

from controlplane.apiserver.rules.resource_rules import quantity
from resourceapi.objects import ErrorList, Quantity

ZERO = Quantity.parse("0")


def not_below_zero(errors: ErrorList, path: str, amount: Any) -> None:
    """Check that an amount is at least 0."""
    if amount is not None and quantity(amount) < ZERO:
        errors.invalid(path, str(quantity(amount)), "must be greater than or equal to 0")


def positive(errors: ErrorList, path: str, amount: Any, why: str = "must be greater than zero") -> None:
    """Check that an amount is greater than 0."""
    if amount is not None and not quantity(amount) > ZERO:
        errors.invalid(path, str(quantity(amount)), why)
