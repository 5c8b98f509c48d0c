"""Subscriptions to changes: a change wakes only those watches, out of thousands, that it might concern.

The slices of 5,000 nodes change while each node watches its own slices. If every change woke every watch, the work
would grow with the square of the nodes. So watches that select by name or by node are found by that value, as in the
reference server (its `TriggerFunc` of pods, nodes and ResourceSlices).
"""

import asyncio
from typing import TypeAlias

from controlplane.apiserver.kinds import Plain
from resourceapi.objects.selectors import FieldSelector

Mark: TypeAlias = tuple[str, str]
"""A field and its value, which all objects that a watch selects have."""

_NODE, _NAME = "spec.nodeName", "metadata.name"


def marks_of(*states: Plain | None) -> tuple[Mark, ...]:
    """Return the marks by which watches might select an object in one of these states."""
    marks = set[Mark]()
    for obj in states:
        if obj is not None:
            marks.add((_NAME, obj["metadata"]["name"]))
            spec = obj.get("spec")
            node = spec.get("nodeName") if isinstance(spec, dict) else None
            if node and isinstance(node, str):
                marks.add((_NODE, node))
    return tuple(marks)


def mark_of(selector: FieldSelector) -> Mark | None:
    """Return the narrowest mark that all selected objects have; None if there is none."""
    found = {term.field: term.value for term in selector.terms if term.equal and term.value}
    return next(((field, found[field]) for field in (_NAME, _NODE) if field in found), None)


class Subscription:
    """A watch's subscription. `changed` is set when a change that might concern it was published."""

    def __init__(self, kind_id: str, mark: Mark | None) -> None:
        self.kind_id, self.mark = kind_id, mark
        self.changed = asyncio.Event()
        self._first: int | None = None

    def record_change(self, version: int) -> None:
        """Record a published change; its version is higher than all earlier ones."""
        if self._first is None:
            self._first = version
        self.changed.set()

    def take(self) -> int | None:
        """Return the version of the first change since the last call; None if there was none."""
        first, self._first = self._first, None
        self.changed.clear()
        return first


class Subscriptions:
    """All subscriptions. An empty `kind_id` is for all kinds, the mark None for all marks."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, Mark | None], set[Subscription]] = {}

    def add(self, kind_id: str, mark: Mark | None) -> Subscription:
        """Add a subscription; the caller has to `remove` it."""
        made = Subscription(kind_id, mark)
        self._waiting.setdefault((kind_id, mark), set()).add(made)
        return made

    def remove(self, one: Subscription) -> None:
        """Remove a subscription."""
        place = one.kind_id, one.mark
        self._waiting[place].discard(one)
        if not self._waiting[place]:
            del self._waiting[place]

    def publish(self, version: int, kind_id: str, marks: tuple[Mark, ...]) -> None:
        """Notify the subscriptions that an event with these marks might concern."""
        for place in (("", None), (kind_id, None), *((kind_id, mark) for mark in marks)):
            for one in self._waiting.get(place, ()):
                one.record_change(version)

    def wake(self) -> None:
        """Wake all subscriptions, without a change."""
        for some in self._waiting.values():
            for one in some:
                one.changed.set()
