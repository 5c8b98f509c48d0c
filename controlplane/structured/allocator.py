"""The allocator: allocations for claims on one node.

`Allocator` has upstream's current interface. `new_allocator`, and `allocate` without claims, have that of 0.31.8.
Both find what the incubating and experimental implementations of Kubernetes 1.37.2 find.
"""

import time
from collections.abc import Callable, Sequence
from operator import is_
from weakref import WeakKeyDictionary

from msgspec import Struct

from controlplane.structured.errors import AllocationAborted, AllocationError, Cancelled, NodeError
from controlplane.structured.features import Features
from controlplane.structured.holdings import Holdings
from controlplane.structured.index import SliceIndex
from controlplane.structured.layout import Layout
from controlplane.structured.listers import ClaimLister, ClassLister, DeviceClasses, SliceLister
from controlplane.structured.pools import Pool
from controlplane.structured.problem import Task, build_problem
from controlplane.structured.prune import DEFAULT_FAILURES_BEFORE_PRUNING, Pruner
from controlplane.structured.requests import PlannedClaim, plan
from controlplane.structured.results import allocation
from controlplane.structured.search import Pick, Search
from controlplane.structured.state import AllocatedState
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import AllocationResult, ResourceClaim, ResourceSlice


class Stats(Struct, frozen=True):
    """The work that an allocator has done since it was created."""

    num_allocate_one_invocations: int = 0  # search steps; with prune=False the same number as upstream


class Allocator:
    """Allocates claims with the devices that are free in the cluster at the moment.

    Inputs are never changed. An allocator can serve any number of nodes. With an `index` that all allocators of a
    cluster share, it reuses what earlier ones learned about slices that still exist. Several threads can call it; the
    calls run one after the other. Listers, and a `state` that is a function, are called at each allocation.
    """

    def __init__(
        self,
        features: Features,
        state: AllocatedState | Callable[[], AllocatedState],
        classes: ClassLister,
        slices: Sequence[ResourceSlice] | SliceLister,
        *,
        index: SliceIndex | None = None,
        claims_to_allocate: Sequence[ResourceClaim] = (),
        prune: bool = True,
        failures_before_pruning: int = DEFAULT_FAILURES_BEFORE_PRUNING,
    ) -> None:
        """`prune=False` searches exactly as upstream. Pruning starts after `failures_before_pruning` failures."""
        self._features = features
        self._state = state
        self._classes = classes
        self._slices = slices
        self._index = SliceIndex() if index is None else index
        self._claims = claims_to_allocate
        self._prune = prune
        self._failures_before_pruning = failures_before_pruning
        self._plan: tuple[Sequence[ResourceClaim], list[PlannedClaim]] | None = None
        self._holdings = WeakKeyDictionary[Layout, Holdings]()  # an entry lives as long as the index keeps the layout
        self._steps = 0

    @property
    def stats(self) -> Stats:
        """The work done so far."""
        return Stats(self._steps)

    def claims_to_allocate(self) -> Sequence[ResourceClaim]:
        """The claims that were passed to the constructor."""
        return self._claims

    def allocate(
        self,
        node: Node,
        claims: Sequence[ResourceClaim] | None = None,
        *,
        timeout: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[AllocationResult] | None:
        """Return allocations for the claims on the node, one per claim in their order, or None if it has none.

        `timeout` is in seconds. Raises AllocationError for faults in the input, which are the same on every node;
        NodeError for faults of this node; AllocationAborted if the search is stopped.
        """
        claims = self._claims if claims is None else claims
        with self._index.lock:
            check = _stop_check(timeout, is_cancelled)
            self._index.update(_listed(self._slices))
            layout = self._index.layout(node, self._features)
            problem = build_problem(self._planned(claims), layout, self._features, check)
            pruning = (lambda search: Pruner(search, self._failures_before_pruning)) if self._prune else None
            search = Search(layout, problem, self._held(layout), self._features, check, pruning)
            try:
                is_solved = search.run()
            finally:
                self._steps += search.steps
        if is_solved:
            return self._allocations(search, node)
        if layout.is_any_invalid:
            raise NodeError("invalid resource pools were encountered")
        return None

    def _allocations(self, search: Search, node: Node) -> list[AllocationResult]:
        picks: list[list[Pick]] = [[] for _ in search.claims]
        for pick in search.picks:
            picks[pick.claim].append(pick)
        return [
            allocation(claim, _chosen(search, number), picks[number], search.layout, node, self._features)
            for number, claim in enumerate(search.claims)
        ]

    def _planned(self, claims: Sequence[ResourceClaim]) -> list[PlannedClaim]:
        known = self._plan if isinstance(self._classes, DeviceClasses) else None  # a lister's classes can change
        if known is None or len(known[0]) != len(claims) or not all(map(is_, known[0], claims)):
            planned = plan(claims, self._classes, self._index.selectors, self._features)
            known = self._plan = (tuple(claims), planned)
        return known[1]

    def _held(self, layout: Layout) -> Holdings:
        if not isinstance(self._state, AllocatedState):
            return Holdings(self._state(), layout, self._features)
        known = self._holdings.get(layout)
        if known is None:
            known = self._holdings[layout] = Holdings(self._state, layout, self._features)
        return known


def new_allocator(
    claims_to_allocate: Sequence[ResourceClaim],
    claim_lister: ClaimLister,
    class_lister: ClassLister,
    slice_lister: SliceLister,
    *,
    features: Features | None = None,
    index: SliceIndex | None = None,
) -> Allocator:
    """Return an allocator for fixed claims, as in 0.31.8: `allocate(node)` needs no claims.

    Listers are called when an allocation needs them. Any exception of a lister becomes an AllocationError.
    """

    def allocated() -> AllocatedState:
        try:
            return AllocatedState.from_claims(claim_lister.list_all_allocated())
        except Exception as error:  # any exception of a lister means that nothing can be allocated
            raise AllocationError(f"list allocated claims: {error}") from error

    return Allocator(
        features or Features(),
        allocated,
        class_lister,
        slice_lister,
        index=index,
        claims_to_allocate=claims_to_allocate,
    )


def gather_pools(
    slices: Sequence[ResourceSlice] | SliceLister, node: Node, features: Features | None = None
) -> list[Pool]:
    """Return the pools with devices that are accessible from the node, in the order of the search.

    Outdated slices are ignored. Pools can be incomplete or invalid, which is recorded in them. Raises AllocationError
    for node selectors that cannot be parsed, and if a lister fails.
    """
    index = SliceIndex()
    index.update(_listed(slices))
    return list(index.layout(node, features or Features()).pools)


def _listed(slices: Sequence[ResourceSlice] | SliceLister) -> Sequence[ResourceSlice]:
    if isinstance(slices, Sequence):
        return slices
    try:
        return slices.list()
    except Exception as error:  # any exception of a lister means that nothing can be allocated
        raise AllocationError(f"gather pool information: list resource slices: {error}") from error


def _chosen(search: Search, number: int) -> list[Task]:
    """The task that the search chose for each request of a claim."""
    alternatives = {
        frame.request: frame.alternative for frame in search.frames if frame.task is None and frame.claim == number
    }
    return [request.tasks[alternatives.get(index, 0)] for index, request in enumerate(search.claims[number].requests)]


def _stop_check(timeout: float | None, is_cancelled: Callable[[], bool] | None) -> Callable[[], None] | None:
    if timeout is None and is_cancelled is None:
        return None
    deadline = None if timeout is None else time.monotonic() + timeout

    def check() -> None:
        if is_cancelled is not None and is_cancelled():
            raise AllocationAborted("filter operation aborted: context canceled") from Cancelled("context canceled")
        if deadline is not None and time.monotonic() >= deadline:
            cause = TimeoutError("context deadline exceeded")
            raise AllocationAborted(f"filter operation aborted: {cause}") from cause

    return check
