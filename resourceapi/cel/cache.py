"""A cache of compiled selectors.

The least recently used selector is evicted first. Failures are not cached, so each caller gets its own error. Costs are
not estimated, because the evaluation of stored selectors does not need estimates. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from resourceapi.cel.environment import Environment
from resourceapi.cel.selector import Selector, compile_selector


class SelectorCache:
    """Compiled selectors of one environment by their text."""

    def __init__(self, environment: Environment, capacity: int = 10) -> None:
        self._environment = environment
        self._capacity = capacity
        self._selectors: OrderedDict[str, Selector] = OrderedDict()
        self._adding = threading.Lock()

    def __len__(self) -> int:
        return len(self._selectors)

    def __contains__(self, source: str) -> bool:
        return source in self._selectors

    def get(self, source: str) -> Selector:
        """Return the selector for an expression, compiled if necessary. Raises CelCompileError."""
        try:
            found = self._selectors[source]
            self._selectors.move_to_end(source)
        except KeyError:  # not cached, or another thread evicted it between these two statements
            pass
        else:
            return found
        return self._add(source)

    def _add(self, source: str) -> Selector:
        with self._adding:
            selector = self._selectors.get(source)
            if selector is None:
                selector = compile_selector(source, self._environment, estimate_cost=False)
                self._selectors[source] = selector
                if len(self._selectors) > self._capacity:
                    self._selectors.popitem(last=False)
            return selector
