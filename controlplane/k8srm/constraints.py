"""Constraints: CEL over one variable `device`, a map from attribute names to values.

Strings and ints are CEL strings and ints. Quantities and semantic versions have Kubernetes' types Quantity and Semver
with their functions; an invalid semantic version stays a string. Attributes are not declared in advance, so a missing
one, or a comparison of different types, is an evaluation error. It excludes the device and nothing else.
Source: allocator specification 6.4.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from controlplane.k8srm.types import Attribute, Device, DevicePool
from resourceapi.cel import CelCompileError, CelEvalError, Expression, Semver, SemverError, compile_expression
from resourceapi.cel.environment import CURRENT, Environment, build_environment
from resourceapi.cel.macros import BINDINGS
from resourceapi.cel.types import DYN


class ConstraintError(Exception):
    """A constraint that cannot be compiled, or cannot be evaluated on a device."""


def effective_attributes(pool: DevicePool, device: Device) -> dict[str, Attribute]:
    """Return a device's attributes by name. Its own override the pool's."""
    return {attribute.name: attribute for attribute in (*pool.spec.attributes, *device.attributes)}


def values_of(attributes: Mapping[str, Attribute]) -> dict[str, Any]:
    """Return the attributes as CEL values. Those without a value are absent."""
    return {name: _value(*typed) for name, each in attributes.items() if (typed := each.typed_value) is not None}


def holds(constraint: str | None, values: Mapping[str, Any]) -> bool:
    """Return whether a device meets a constraint. All devices meet None or an empty one. Raises ConstraintError."""
    if not constraint or not constraint.strip():
        return True
    expression = _compiled(constraint)
    if isinstance(expression, ConstraintError):
        raise expression.with_traceback(None)
    try:
        result, _ = expression.evaluate({"device": values})
    except CelEvalError as error:
        raise ConstraintError(str(error)) from None
    if not isinstance(result, bool):
        raise ConstraintError(f"must evaluate to bool, not {expression.output_type}: {constraint}")
    return result


def _value(kind: str, value: object) -> object:
    if kind == "semver":
        try:
            return Semver.parse(str(value))
        except SemverError:
            return value
    return value


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return build_environment(CURRENT, more_macros=BINDINGS, variables={"device": DYN})


@lru_cache(maxsize=256)
def _compiled(constraint: str) -> Expression | ConstraintError:
    try:
        return compile_expression(constraint, _environment())
    except CelCompileError as error:
        return ConstraintError(str(error))
