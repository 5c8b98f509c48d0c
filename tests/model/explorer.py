"""Every reachable state, and traces that contain every possible step of the daemon.

A remaining bound only adds possibilities: a state with more crashes, restarts or changes left can do everything that
the same state with fewer can. So states are explored in the order of their bounds, the widest first, and each once.

The daemon's behaviour depends only on its knowledge (`node.daemon_view`), which `Graph` asserts for the model.
Therefore traces that contain each action in each state of the daemon's knowledge are as good as all traces.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from itertools import product

from tests.model.node import Action, State, bounds, daemon_view, is_daemon_step, steps, unbound, violation

Trace = tuple[Action, ...]
Step = tuple[int, Action]
"""The daemon's knowledge, as a hash, and its action."""

_BOUNDS = sorted(product((0, 1), repeat=3), key=sum, reverse=True)


class Graph:
    """The states that are reachable from one, in the order of their discovery, with the actions to them."""

    def __init__(self, start: State) -> None:
        """Explore all states. Raises `AssertionError` with a trace to a wrong state."""
        self.start = start
        self.states: list[State] = []
        self._before: list[tuple[int, Action]] = []  # for each state: the number of the previous one, and the action
        self._values: dict[Hashable, Hashable] = {}
        self._outcomes: dict[Step, int] = {}
        found = {x: set[int]() for x in _BOUNDS}
        waiting: dict[tuple[int, ...], deque[tuple[State, int, Action]]] = {x: deque() for x in _BOUNDS}
        waiting[bounds(start)].append((start, -1, ()))
        for bound in _BOUNDS:
            wider = [found[x] for x in _BOUNDS if x != bound and all(a >= b for a, b in zip(x, bound, strict=True))]
            while waiting[bound]:
                state, before, action = waiting[bound].popleft()
                if any(hash(unbound(state)) in x for x in wider):
                    continue
                self._add(state, before, action)
                for action, after in self._steps(state):
                    if (number := hash(unbound(after))) not in (known := found[bounds(after)]):
                        known.add(number)
                        waiting[bounds(after)].append((after, len(self.states) - 1, action))

    @property
    def steps(self) -> int:
        """The number of the daemon's steps."""
        return len(self._outcomes)

    def covering(self, covered: set[Step]) -> Iterator[Trace]:
        """Yield traces that contain all steps of the daemon that are not `covered` yet, and add these to `covered`."""
        for number in range(len(self.states)):
            while _way(self.states[number], covered):
                walk = _Walk(self.start, covered)
                walk.go(self._trace(number))
                while way := _way(walk.state, covered):
                    walk.go(way)
                yield tuple(walk.trace)

    def _trace(self, number: int) -> Trace:
        found: list[Action] = []
        while (before := self._before[number])[0] >= 0:
            number = before[0]
            found.append(before[1])
        return tuple(reversed(found))

    def _add(self, state: State, before: int, action: Action) -> None:
        """Store a state; equal values are shared, so that millions of states fit into memory."""
        self.states.append(State(*(x if isinstance(x, int) else self._values.setdefault(x, x) for x in state)))  # type: ignore[arg-type]
        self._before.append((before, action))
        if wrong := violation(state):
            raise AssertionError("\n".join(map(str, (*self._trace(len(self.states) - 1), wrong, state))))

    def _steps(self, state: State) -> Iterator[tuple[Action, State]]:
        known = hash(daemon_view(state))
        for action, after in steps(state):
            yield action, after
            if is_daemon_step(action):
                outcome = hash(daemon_view(after))
                assert self._outcomes.setdefault((known, action), outcome) == outcome, (action, state)


class _Walk:
    """A trace that is being built; its steps are covered."""

    def __init__(self, state: State, covered: set[Step]) -> None:
        self.state = state
        self.trace: list[Action] = []
        self._covered = covered

    def go(self, way: Trace) -> None:
        for action, after in follow(self.state, way):
            if is_daemon_step(action):
                self._covered.add((hash(daemon_view(self.state)), action))
            self.trace.append(action)
            self.state = after


def follow(state: State, trace: Trace) -> Iterator[tuple[Action, State]]:
    """Yield the actions of a trace from a state on, each with the next state."""
    for action in trace:
        state = _options(state)[action]
        yield action, state


@lru_cache(1 << 14)  # a walk comes by the same states again and again
def _options(state: State) -> dict[Action, State]:
    """What can happen, first that after which most can still happen."""
    return dict(sorted(steps(state), key=lambda x: sum(bounds(x[1])), reverse=True))


def _way(state: State, covered: set[Step]) -> Trace:
    """What leads to a step that is not covered, at once or after something else; empty where nothing does."""
    for action in _missing(state, covered, _options(state)):
        return (action,)
    for first, after in _options(state).items():
        for second in _missing(after, covered, _options(after)):
            return first, second
    return ()


def _missing(state: State, covered: set[Step], actions: Iterable[Action]) -> Iterator[Action]:
    known = hash(daemon_view(state))
    return (x for x in actions if is_daemon_step(x) and (known, x) not in covered)
