"""Assigns devices to the slices of the pool, so that each stays in its slice while others come and go.

Updating one slice in place is one request; moving a device to another slice rewrites the pool.
"""

from collections.abc import Iterable


class SliceLayout:
    """Slices of at most `size` names each. A name keeps its slice until it goes; new names fill the free places."""

    def __init__(self, size: int) -> None:
        """Start without names."""
        self._size = size
        self._slices: list[set[str]] = []
        self._slice_of: dict[str, set[str]] = {}

    def assign(self, names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """Store which names there are; return the names of each slice, sorted.

        A slice in the middle can be empty: without it the slices behind it would be rewritten.
        """
        wanted = set(names)
        for name in self._slice_of.keys() - wanted:
            self._slice_of.pop(name).remove(name)
        while self._slices and not self._slices[-1]:
            self._slices.pop()
        first_with_room = 0
        for name in sorted(wanted - self._slice_of.keys()):
            while first_with_room < len(self._slices) and len(self._slices[first_with_room]) >= self._size:
                first_with_room += 1
            if first_with_room == len(self._slices):
                self._slices.append(set())
            self._slices[first_with_room].add(name)
            self._slice_of[name] = self._slices[first_with_room]
        return tuple(tuple(sorted(names)) for names in self._slices)
