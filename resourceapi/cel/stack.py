"""Raises Python's recursion limit for deeply nested expressions.

The parser allows 250 levels; the closures of such an expression need more calls than Python's default recursion limit
allows. Pure Python frames are on the heap, so it is safe to raise the limit while such an expression is processed.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from resourceapi.cel.ast import Node

_SPARE = 400  # frames that suffice for everything that is not nested


@contextmanager
def headroom(frames: int) -> Iterator[None]:
    """Allow `frames` more nested calls than the current depth; a small number does not change the limit."""
    if frames <= _SPARE:
        yield
        return
    in_progress = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        in_progress += 1
        frame = frame.f_back
    wanted = in_progress + frames + _SPARE
    _limit.raise_to(wanted)
    try:
        yield
    finally:
        _limit.lower_from(wanted)


class _Limit:
    """The process's recursion limit: the largest one that any running `headroom` of any thread needs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usual = 0
        self._wanted: list[int] = []

    def raise_to(self, wanted: int) -> None:
        with self._lock:
            if not self._wanted:
                self._usual = sys.getrecursionlimit()
            self._wanted.append(wanted)
            sys.setrecursionlimit(max(self._usual, *self._wanted))

    def lower_from(self, wanted: int) -> None:
        with self._lock:
            self._wanted.remove(wanted)
            sys.setrecursionlimit(max(self._usual, *self._wanted, 0))


_limit = _Limit()


def depth_of(root: Node) -> int:
    """Return the depth of a tree."""
    deepest = 0
    pending = [(root, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending.extend((child, depth + 1) for child in node.children())
    return deepest
