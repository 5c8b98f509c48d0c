"""Quantity and Semver in expressions. Source: k8s.io/apiserver/pkg/cel/library (quantity, semver)."""

from __future__ import annotations

import operator

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.library.standard import checked_int
from resourceapi.cel.semver import Semver, SemverError
from resourceapi.cel.values import MAX_INT, register_type
from resourceapi.objects.quantity import Quantity, QuantityError

register_type(Quantity, "kubernetes.Quantity", "cel.Quantity", operator.eq)


class ComputedQuantity(Quantity):
    """The result of add() and sub().

    Upstream holds these values by reference, with two effects: error messages show another type name, and they never
    equal anything as the right-hand operand.
    """

    __slots__ = ()

    @classmethod
    def of_value(cls, value: Quantity) -> ComputedQuantity:
        """Return the same amount as a ComputedQuantity."""
        made = cls.__new__(cls)
        for slot in Quantity.__slots__:
            setattr(made, slot, getattr(value, slot))
        return made


register_type(ComputedQuantity, "kubernetes.Quantity", "*cel.Quantity", operator.eq, comparable=Quantity)
register_type(Semver, "kubernetes.Semver", "cel.Semver", operator.eq)


def _quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise CelEvalError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _sum(left: Quantity, right: Quantity | int, negative: bool = False) -> Quantity:
    other = right if isinstance(right, Quantity) else Quantity.of(int(right), "DecimalExponent")
    try:
        return ComputedQuantity.of_value(left - other if negative else left + other)
    except QuantityError as error:
        raise CelEvalError(str(error)) from None


def _difference(left: Quantity, right: Quantity | int) -> Quantity:
    return _sum(left, right, negative=True)


def _as_integer(value: Quantity) -> int:
    found = value.as_int64()
    if found is None:
        raise CelEvalError("cannot convert value to integer")
    return found


def quantities() -> list[Function]:
    """quantity() and the functions of Quantity."""
    return group(
        [
            Overload("string_to_quantity", "quantity(string) -> Quantity", _quantity),
            Overload("is_quantity_string", "isQuantity(string) -> bool", _is_quantity),
            Overload("quantity_sign", "sign(Quantity) -> int", lambda value: value.sign),
            Overload("quantity_is_greater_than", "Quantity.isGreaterThan(Quantity) -> bool", operator.gt),
            Overload("quantity_is_less_than", "Quantity.isLessThan(Quantity) -> bool", operator.lt),
            Overload("quantity_compare_to", "Quantity.compareTo(Quantity) -> int", Quantity.compare),
            Overload("quantity_get_float", "Quantity.asApproximateFloat() -> double", Quantity.as_float),
            Overload("quantity_get_int", "Quantity.asInteger() -> int", _as_integer),
            Overload("quantity_is_integer", "Quantity.isInteger() -> bool", lambda value: value.as_int64() is not None),
            Overload("quantity_add", "Quantity.add(Quantity) -> Quantity", _sum),
            Overload("quantity_add_int", "Quantity.add(int) -> Quantity", _sum),
            Overload("quantity_sub", "Quantity.sub(Quantity) -> Quantity", _difference),
            Overload("quantity_sub_int", "Quantity.sub(int) -> Quantity", _difference),
        ]
    )


def _semver(text: str, tolerant: bool = False) -> Semver:
    try:
        return Semver.parse_tolerant(text) if tolerant else Semver.parse(text)
    except SemverError as error:
        raise CelEvalError(str(error)) from None


def _is_semver(text: str, tolerant: bool = False) -> bool:
    try:
        _semver(text, tolerant)
    except CelEvalError:
        return False
    return True


def _part(name: str) -> Overload:
    def run(value: Semver) -> int:
        number = int(getattr(value, name))
        return checked_int(number if number <= MAX_INT else number - 2**64)

    return Overload(f"semver_{name}", f"Semver.{name}() -> int", run)


def versions(tolerant: bool) -> list[Function]:
    """semver() and the functions of Semver; `tolerant` adds the forms with a second argument."""
    overloads = [
        Overload("string_to_semver", "semver(string) -> Semver", _semver),
        Overload("is_semver_string", "isSemver(string) -> bool", _is_semver),
        Overload("semver_is_greater_than", "Semver.isGreaterThan(Semver) -> bool", operator.gt),
        Overload("semver_is_less_than", "Semver.isLessThan(Semver) -> bool", operator.lt),
        Overload("semver_compare_to", "Semver.compareTo(Semver) -> int", Semver.compare),
        *map(_part, ("major", "minor", "patch")),
    ]
    if tolerant:
        overloads.append(Overload("string_bool_to_semver", "semver(string, bool) -> Semver", _semver))
        overloads.append(Overload("is_semver_string_bool", "isSemver(string, bool) -> bool", _is_semver))
    return group(overloads)
