"""Every state that can be reached, and traces through all that can happen."""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from itertools import pairwise

from tests.model.node import Action, State, complaint, steps

Trace = tuple[Action, ...]


def visit(start: State) -> int:
    """Visit every state that can be reached; return how many there are. Raises `AssertionError` for a wrong one.

    Millions of them have room, for states are known by their hashes alone: no trace says how one is reached.
    """
    seen, waiting = {hash(start)}, deque([start])
    while waiting:
        for _, after in steps(waiting.popleft()):
            if (number := hash(after)) not in seen:
                seen.add(number)
                waiting.append(after)
                if wrong := complaint(after):
                    raise AssertionError(f"{wrong}\n{after}")
    return len(seen)


class Graph:
    """The states that can be reached from one, each with how it was reached first, in the fewest steps."""

    def __init__(self, start: State) -> None:
        """Explore all of it. Raises `AssertionError` with the shortest trace to a state with something wrong."""
        self.start = start
        self.next: dict[State, list[tuple[Action, State]]] = {}
        self._before: dict[State, tuple[State, Action] | None] = {start: None}
        waiting = deque([start])
        while waiting:
            state = waiting.popleft()
            self.next[state] = list(steps(state))
            for action, after in self.next[state]:
                if after in self._before:
                    continue
                self._before[after] = (state, action)
                waiting.append(after)
                if wrong := complaint(after):
                    raise AssertionError("\n".join(map(str, (*self.trace(after), wrong))))

    def trace(self, state: State) -> Trace:
        """How a state is reached."""
        found: list[Action] = []
        while (before := self._before[state]) is not None:
            state, action = before
            found.append(action)
        return tuple(reversed(found))

    def follow(self, trace: Trace) -> Iterator[tuple[Action, State]]:
        """Yield what happens, each with the state after it."""
        state = self.start
        for action in trace:
            state = dict(self.next[state])[action]
            yield action, state

    def covering(self, kind: Callable[[Action], Hashable]) -> Iterator[Trace]:
        """Yield traces that together have every kind of action, and every two that can follow each other."""
        seen: set[Hashable] = set()
        wanted: list[Trace] = []
        for state, found in self.next.items():
            for action, after in found:
                for second, _ in self.next[after]:
                    if (pair := (kind(action), kind(second))) not in seen:
                        seen.add(pair)
                        wanted.append((*self.trace(state), action, second))
        covered: set[Hashable] = set()
        for trace in reversed(wanted):  # the longest, which have others in them, before
            kinds = list(map(kind, trace))
            if (kinds[-2], kinds[-1]) not in covered:
                covered.update(pairwise(kinds))
                yield trace
