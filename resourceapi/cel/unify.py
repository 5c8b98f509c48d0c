"""Assignability of types, with type variables.

Bindings of type variables are kept in a plain dict that is copied before each attempt, so that a failed attempt changes
nothing. Error types and dynamic types are assignable to and from all types. Source: the type checker of cel-go.
"""

from __future__ import annotations

import operator
from typing import TypeAlias

from resourceapi.cel.types import DYN, Kind, Type, is_dyn, is_dyn_or_error

Bindings: TypeAlias = dict[str, Type]

_NULLABLE = frozenset({Kind.OPAQUE, Kind.STRUCT, Kind.ANY, Kind.DURATION, Kind.TIMESTAMP, Kind.DYN, Kind.NULL})
_PARAMETRIC = frozenset({Kind.OPAQUE, Kind.LIST, Kind.MAP})


def assign(bindings: Bindings, left: Type, right: Type) -> Bindings | None:
    """Return the bindings under which `left` can be used as `right`, or None."""
    return assign_all(bindings, (left,), (right,))


def assign_all(bindings: Bindings, left: tuple[Type, ...], right: tuple[Type, ...]) -> Bindings | None:
    """Like `assign`, for several pairs at once."""
    attempt = bindings.copy()
    return attempt if _all_assignable(attempt, left, right) else None


def _all_assignable(bindings: Bindings, left: tuple[Type, ...], right: tuple[Type, ...]) -> bool:
    if len(left) != len(right):
        return False
    return all(_assignable(bindings, one, other) for one, other in zip(left, right, strict=True))


def _assignable(bindings: Bindings, left: Type, right: Type) -> bool:
    if right.kind is Kind.PARAM:
        valid, has_substitution = _substitutes(bindings, left, right)
        if valid:
            return True
        if has_substitution:
            return False
    if left.kind is Kind.PARAM:
        return _substitutes(bindings, right, left)[0]
    if is_dyn_or_error(left) or is_dyn_or_error(right):
        return True
    if left.kind is Kind.NULL:
        return right.is_wrapper or right.kind in _NULLABLE
    if right.kind is Kind.NULL:
        return left.is_wrapper or left.kind in _NULLABLE
    if left.kind is Kind.TYPE:
        return right.kind is Kind.TYPE
    if left.kind in _PARAMETRIC:
        return (
            left.kind is right.kind and left.name == right.name and _all_assignable(bindings, left.params, right.params)
        )
    return left.kind is right.kind and left.name == right.name


def _substitutes(bindings: Bindings, value: Type, variable: Type) -> tuple[bool, bool]:
    """Return whether `variable` can be bound to `value`, and whether it was bound before."""
    if value == variable:
        return True, True
    bound = bindings.get(str(variable))
    if bound is not None:
        if _is_exact(value, bound):
            return True, True
        if _assignable(bindings, value, bound):
            general = most_general(value, bound)
            if _absent_from(bindings, variable, general):
                bindings[str(variable)] = general
            return True, True
        return False, True
    if _absent_from(bindings, variable, value):
        bindings[str(variable)] = value
        return True, False
    return False, False


def _absent_from(bindings: Bindings, variable: Type, within: Type) -> bool:
    if variable == within:
        return False
    if within.kind is Kind.PARAM:
        bound = bindings.get(str(within))
        return bound is None or _absent_from(bindings, variable, bound)
    return all(_absent_from(bindings, variable, each) for each in within.params)


def most_general(left: Type, right: Type) -> Type:
    """Return the less specific of two compatible types."""
    return left if _at_most_as_specific(left, right) else right


def _at_most_as_specific(left: Type, right: Type) -> bool:
    if is_dyn(left) or left.kind is Kind.PARAM:
        return True
    if is_dyn(right) or right.kind is Kind.PARAM or left.kind is not right.kind:
        return False
    if left.kind is Kind.TYPE:
        return True
    if left.kind in _PARAMETRIC:
        return (
            left.name == right.name
            and len(left.params) == len(right.params)
            and all(map(_at_most_as_specific, left.params, right.params))
        )
    return _is_exact(left, right)


def _is_exact(left: Type, right: Type) -> bool:
    """Return whether two types are equal except for the nullability of wrappers."""
    return left == right or (
        left.kind is right.kind
        and left.name == right.name
        and len(left.params) == len(right.params)
        and all(map(_is_exact, left.params, right.params))
    )


def substitute(bindings: Bindings, value: Type, to_dyn: bool = False) -> Type:
    """Replace bound type variables; with `to_dyn`, unbound ones become dyn."""
    if not value.params and value.kind is not Kind.PARAM:
        return value
    bound = bindings.get(str(value))
    if bound is not None:
        return substitute(bindings, bound, to_dyn)
    if value.kind is Kind.PARAM:
        return DYN if to_dyn else value
    params = tuple([substitute(bindings, each, to_dyn) for each in value.params])
    if all(map(operator.is_, params, value.params)):
        return value
    return Type(value.kind, value.name, params)
