"""Room on Python's stack for expressions that are nested deeply.

The parser allows 250 levels; the tree of closures that runs them is deeper than Python's default recursion limit.
Pure Python frames live on the heap, so raising the limit for as long as such an expression is worked on is safe.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from resourceapi.cel.ast import Node

_SPARE = 400  # frames that are enough for everything that is not nested


@contextmanager
def headroom(frames: int) -> Iterator[None]:
    """Allow `frames` more calls than are in progress now; shallow work does not touch the limit."""
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
    """The process's recursion limit: what most is asked for by those who work now, in whatever thread."""

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
    """How deeply the nodes of a tree are nested."""
    deepest = 0
    pending = [(root, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending.extend((child, depth + 1) for child in node.children())
    return deepest
