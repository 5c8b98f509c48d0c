"""The real node as a world: pods go through the API server, bound past the scheduler."""

import asyncio
import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec

from kubelet.pods import Container, Pod
from tests.e2e.realnode import BUSYBOX, FOLDER, NODE, RealNode
from tests.kubelet.both.world import ContainerView, PodView

_STAY = "trap 'exit 0' TERM; sleep 1000 & wait"


class Real:
    """A node with Kubernetes 1.36."""

    def __init__(self, node: RealNode) -> None:
        self._node = node
        self.kubelet_folder = node.kubelet_dir

    async def offers(self, resource: str, capacity: int, allocatable: int) -> None:
        for table, count in (("capacity", capacity), ("allocatable", allocatable)):
            path = f".status.{table}.{resource.replace('.', chr(92) + '.')}"
            await asyncio.to_thread(self._node.wait, f"node/{NODE}", path, str(count))

    async def resources(self) -> Mapping[str, tuple[int, int]]:
        status = (await asyncio.to_thread(self._node.get, "node", NODE))["status"]
        return {
            name: (int(count), int(status["allocatable"][name]))
            for name, count in status["capacity"].items()
            if "/" in name
        }

    async def run(self, pod: Pod, until: str = "Running") -> PodView:
        await asyncio.to_thread(self._node.apply, _manifest(pod))
        path = (
            ".status.phase" if until in ("Running", "Failed") else ".status.containerStatuses[0].state.waiting.reason"
        )
        await self._wait(pod.metadata.name, path, until)
        return await self.view(pod.metadata.name)

    async def view(self, name: str) -> PodView:
        found = await asyncio.to_thread(self._node.get, "pod", name)
        status = found["status"]
        containers = {
            each["name"]: _container_view(each)
            for each in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        }
        return PodView(
            found["metadata"]["uid"], status["phase"], status.get("reason", ""), status.get("message", ""), containers
        )

    async def has_health(self, name: str, health: str) -> None:
        await self._wait(name, ".status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health", health)

    async def end_container(self, name: str, container: str, until: str) -> PodView:
        found = await asyncio.to_thread(self._node.get, "pod", name)
        statuses = {each["name"]: each for each in found["status"]["containerStatuses"]}
        id_ = statuses[container]["containerID"].removeprefix("containerd://")
        command = [str(FOLDER / "ctr"), "-n", "k8s.io", "task", "kill", "-s", "SIGTERM", id_]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, timeout=30)
        if until == "restarted":
            count = statuses[container]["restartCount"] + 1
            place = list(statuses).index(container)
            await self._wait(name, f".status.containerStatuses[{place}].restartCount", str(count))
        else:
            await self._wait(name, ".status.phase", until)
        return await self.view(name)

    async def was_ended(self, name: str) -> None:
        # our containers end well when they are told to, so that the rejected pod's phase becomes Succeeded
        await self._wait(name, ".status.phase", "Succeeded")

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(self._node.delete_pod, name)

    async def restart_kubelet(self) -> None:
        await asyncio.to_thread(self._node.restart_kubelet)

    async def _wait(self, name: str, path: str, value: str) -> None:
        await asyncio.to_thread(self._node.wait, f"pod/{name}", path, value, 60)


def _container_view(status: dict[str, Any]) -> ContainerView:
    ((state, details),) = status["state"].items()
    details = details or {}
    return ContainerView(state, details.get("reason", ""), details.get("message", ""), status["restartCount"])


def _manifest(pod: Pod) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(pod)
    spec = made["spec"]
    for kind, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        spec[kind] = [_container(each, is_init=kind == "initContainers") for each in containers]
    spec |= {"nodeName": NODE, "terminationGracePeriodSeconds": 1}
    made.pop("status", None)
    return made | {"apiVersion": "v1", "kind": "Pod"}


def _container(container: Container, *, is_init: bool) -> dict[str, Any]:
    ends = is_init and not container.is_sidecar
    made: dict[str, Any] = msgspec.to_builtins(container)
    limits = {name: str(amount) for name, amount in container.resources.limits.items()}
    return made | {
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "true" if ends else _STAY],
        "resources": {"limits": limits},
    }
