"""Constraints of a claim: devices that agree, or differ, in an attribute.

Rules: a device without the attribute is refused. Values of different types are different. A list attribute is a set of
values: all devices share one of them (match), or no two devices share any (distinct). A refusal is final: adding
devices never lifts it. A constraint in use is the set of devices that it would still accept, and a stack for undo.
"""

from controlplane.structured.layout import Attribute


class _InUse:
    """A constraint that a search works with."""

    __slots__ = ("_stack", "accepts", "attribute")

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self.accepts = attribute.present
        self._stack: list[tuple[int, frozenset[int] | None]] = [(attribute.present, None)]

    @property
    def state(self) -> frozenset[int] | None:
        """The values that all devices have (match), or that are used (distinct); None before the first device."""
        return self._stack[-1][1]

    def undo(self) -> None:
        """Remove the device that was added last."""
        self._stack.pop()
        self.accepts = self._stack[-1][0]


class Match(_InUse):
    """All devices have a value in common."""

    __slots__ = ()

    def add(self, position: int) -> None:
        """Add a device that is accepted."""
        values = frozenset(self.attribute.values[position])
        accepts, common = self._stack[-1]
        if common is None or not common <= values:
            common = values if common is None else common & values
            accepts = 0
            for value in common:
                accepts |= self.attribute.with_value[value]
        self._stack.append((accepts, common))
        self.accepts = accepts


class Distinct(_InUse):
    """No two devices have a value in common."""

    __slots__ = ()

    def add(self, position: int) -> None:
        """Add a device that is accepted."""
        values = self.attribute.values[position]
        accepts, used = self._stack[-1]
        accepts &= self.attribute.valued  # only the value of the first device can have an unknown type
        for value in values:
            accepts &= ~self.attribute.with_value[value]
        self._stack.append((accepts, (used or frozenset()).union(values)))
        self.accepts = accepts


Constraint = Match | Distinct
