"""The stand-in as a world."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from kubelet import Node, NodeError, Timeouts
from kubelet.pods import Pod
from tests.kubelet.both.world import ContainerView, PodView


class StandIn:
    """A node without Kubernetes."""

    def __init__(self, folder: Path) -> None:
        self.kubelet_folder = folder
        self.node = Node(folder, timeouts=Timeouts(dial=0.5), reconcile_period=0.05)

    async def offers(self, resource: str, capacity: int, allocatable: int) -> None:
        wanted = (capacity, allocatable)
        await self.node.until(
            lambda: (self.node.capacity().get(resource), self.node.allocatable().get(resource)) == wanted
        )

    async def resources(self) -> Mapping[str, tuple[int, int]]:
        allocatable = self.node.allocatable()
        return {name: (count, allocatable[name]) for name, count in self.node.capacity().items()}

    async def run(self, pod: Pod, until: str = "Running") -> PodView:
        await self.node.admit(pod)
        view = await self.view(pod.metadata.name)
        assert until in (view.phase, *(each.reason for each in view.containers.values())), view
        return view

    async def view(self, name: str) -> PodView:
        status = self.node.status(name)
        (uid,) = [pod.uid for pod, _ in self.node.pods() if pod.metadata.name == name]
        containers = {
            each.name: ContainerView(each.state, each.reason, each.message, each.restart_count)
            for each in (*status.init_container_statuses, *status.container_statuses)
        }
        return PodView(uid, status.phase, status.reason, status.message, containers)

    async def has_health(self, name: str, health: str) -> None:
        def shown() -> str:
            (resource,) = self.node.status(name).container_statuses[0].allocated_resources_status
            return resource.resources[0].health

        await self.node.until(lambda: shown() == health)

    async def end_container(self, name: str, container: str, until: str) -> PodView:
        before = (await self.view(name)).containers[container].restarts
        await self.node.exit_container(name, container)
        view = await self.view(name)
        if until == "restarted":
            assert view.containers[container].restarts == before + 1
        else:
            assert view.phase == until
        return view

    async def was_ended(self, name: str) -> None:
        status = self.node.status(name)
        assert status.is_terminal
        assert status.container_statuses[0].state == "terminated"

    async def remove(self, name: str) -> None:
        with contextlib.suppress(NodeError):  # gone already
            await self.node.remove(name)

    async def restart_kubelet(self) -> None:
        await self.node.restart()
