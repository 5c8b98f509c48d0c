"""The admission of a pod: its devices are allocated, then it must fit the node. The first rejection counts.

Source: the kubelet's `canAdmitPod`, with the handlers in the order of `NewMainKubelet`.
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from kubelet.devicemanager import NodeInfo, PodAdmitAttributes
from kubelet.errors import AllocationError, PluginCallError
from kubelet.node_object import NodeObject
from kubelet.pods.node_fit import Rejection, Shortage, is_affinity, misfits, other_system, shortages
from kubelet.pods.preemption import PreemptionError, is_critical, victims
from kubelet.pods.run import PodRun
from kubelet.pods.worker import Managers
from kubelet.release import Release
from kubelet.topology import TopologyAffinityError
from resourceapi.objects.core import Node
from resourceapi.objects.quantity import Quantity

UNEXPECTED = "UnexpectedAdmissionError"

Others = Callable[[PodRun], Sequence[PodRun]]
"""Returns the active pods except one."""


class Admission:
    """Decides whether the node can run a pod."""

    def __init__(
        self, node: NodeObject, release: Release, others: Others, preempt: Callable[[PodRun], Awaitable[None]]
    ) -> None:
        """`preempt` ends a pod to make room, and returns when its containers have ended."""
        self._node = node
        self._release = release
        self._others = others
        self._preempt = preempt

    async def rejection(self, run: PodRun, managers: Managers) -> Rejection | None:
        """Allocate the pod's devices and make room for it; return why it cannot run, or None."""
        try:
            await managers.topology.admit(run.pod, managers.devices.allocate_container)
        except TopologyAffinityError as error:
            return Rejection("TopologyAffinityError", str(error))
        except (AllocationError, PluginCallError) as error:
            return Rejection(UNEXPECTED, f"Allocate failed due to {error}, which is unexpected")
        return other_system(run.pod) or await self._fit(run, managers)

    async def _fit(self, run: PodRun, managers: Managers) -> Rejection | None:
        short, other = self._compare(run, await self._node.read(), managers)
        if not short and is_affinity(other):
            short, other = self._compare(run, await self._node.read(again=True), managers)
        if is_critical(run):
            return other[0] if other else await self._make_room(run, short)
        if short:
            return short[0].rejection
        return other[0] if other else None

    def _compare(self, run: PodRun, node: Node, managers: Managers) -> tuple[list[Shortage], list[Rejection]]:
        node = _with_allocated_devices(node, run, managers)
        others = [each.taken for each in self._others(run)]
        short = shortages(run.pod, node, others, self._release)
        return short, misfits(run.pod, node, others, is_static=run.is_static)

    async def _make_room(self, run: PodRun, short: Sequence[Shortage]) -> Rejection | None:
        """End other pods until there is enough for a critical one; return why that is impossible."""
        try:
            ended = victims(run, self._others(run), short)
        except PreemptionError as error:
            text = f"preemption: error finding a set of pods to preempt: {error}"
            return Rejection(UNEXPECTED, f"Unexpected error while attempting to recover from admission failure: {text}")
        for each in ended:
            await self._preempt(each)
        return None


def _with_allocated_devices(node: Node, run: PodRun, managers: Managers) -> Node:
    """Return the node with at least as many devices as are allocated, which its status may not show yet."""
    before = {name: amount.value() for name, amount in node.status.allocatable.items()}
    info = NodeInfo(before)
    managers.devices.update_plugin_resources(info, PodAdmitAttributes(run.pod))
    raised = {name: Quantity.of(count) for name, count in info.allocatable.items() if before.get(name) != count}
    return replace(node, status=replace(node.status, allocatable={**node.status.allocatable, **raised}))
