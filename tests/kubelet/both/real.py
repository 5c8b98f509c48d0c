"""A real Kubernetes node as a `World`. Pods are created in the API server and bound without the scheduler."""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kubelet.pods import stays
from resourceapi.client import Credentials, Refused
from resourceapi.client.blocking import Client
from resourceapi.client.connections import Connections
from resourceapi.objects import core, to_dict, v1
from resourceapi.objects.core import Container, Pod, PodStatus, Taint
from resourceapi.objects.pod_requests import units
from tests.e2e.realnode import BUSYBOX, FOLDER, NODE, RELEASE, STATIC_PODS, RealNode
from tests.kubelet.both.world import (
    INJECTED,
    ConcurrentAction,
    PodView,
    ShownHealth,
    claim_names,
    nothing,
    pod_view,
    reserved,
)

_SCHEDULER = "nobody"  # the tests bind the pods
_MAX_METRICS_BYTES = 16 * 1024 * 1024  # bytes
_RUN_UNTIL_SIGTERM = "trap 'exit 0' TERM; sleep 1000 & wait"


class Real:
    """A node with Kubernetes."""

    def __init__(self, node: RealNode, client: Client, kubelet: Credentials) -> None:
        """`client` is an administrator of the API server, `kubelet` has the credentials for the kubelet's own API."""
        self._node = node
        self._client = client
        self._kubelet = kubelet
        self._pods = client.raw("v1", "pods", namespaced=True)
        self._events = client.raw("v1", "events", namespaced=True)
        self._claims = client.resource(v1.ResourceClaim)
        self._labels: set[str] = set()  # that scenarios set on the node
        self.release = RELEASE
        self.node_name = NODE
        self.kubelet_folder = node.kubelet_dir
        self.cdi_folder = node.cdi_dir

    async def until_offered(self, resource: str, capacity: int, allocatable: int) -> None:
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

    async def allocatable(self) -> Mapping[str, int]:
        found = await asyncio.to_thread(self._client.resource(core.Node).get, NODE)
        return units(found.status.allocatable)

    async def set_node(self, labels: Mapping[str, str], taints: Sequence[Taint] = ()) -> None:
        """The kubelet's copy cannot be observed. A pod takes longer to reach the kubelet."""
        changed = dict.fromkeys(self._labels) | dict(labels)
        self._labels = set(labels)
        made = {"metadata": {"labels": changed}, "spec": {"taints": [to_dict(each) for each in taints] or None}}
        await asyncio.to_thread(self._node.kubectl, "patch", "node", NODE, "--type=merge", "-p", json.dumps(made))

    async def run_static(self, pod: Pod) -> None:
        (STATIC_PODS / f"{pod.metadata.name}.json").write_text(json.dumps(_manifest(pod)))

    async def remove_static(self, name: str) -> None:
        (STATIC_PODS / f"{name}.json").unlink()
        mirror = f"{name}-{NODE}"

        def is_gone() -> bool:
            return all(each["metadata"]["name"] != mirror for each in self._pods.list("default").items)

        await asyncio.to_thread(self._node.until, is_gone, f"{mirror} is gone")

    async def warned(self, pod: str) -> tuple[str, str]:
        def first() -> tuple[str, str] | None:
            found = self._events.list("default", field_selector=f"involvedObject.name={pod},type=Warning").items
            by_kubelet = [each for each in found if each["source"].get("component") == "kubelet"]
            return next(((x["reason"], x["message"]) for x in by_kubelet if x["reason"] != "MissingClusterDNS"), None)

        found = await asyncio.to_thread(self._node.until, first, f"a warning about {pod}")
        assert found is not None
        return found

    async def run(self, pod: Pod, until: str = "Running") -> PodView:
        await asyncio.to_thread(self._bind, pod)
        path = (
            ".status.phase" if until in ("Running", "Failed") else ".status.containerStatuses[0].state.waiting.reason"
        )
        await self._wait(pod.metadata.name, path, until)
        return await self.view(pod.metadata.name)

    async def bind(self, pod: Pod) -> None:
        await asyncio.to_thread(self._bind, pod)

    async def until_phase(self, name: str, phase: str) -> PodView:
        await self._wait(name, ".status.phase", phase)
        return await self.view(name)

    async def view(self, name: str) -> PodView:
        found = await asyncio.to_thread(self._node.get, "pod", name)
        return pod_view(found["metadata"]["uid"], found["status"])

    async def until_device_health(self, name: str, health: str) -> None:
        await self._wait(name, ".status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health", health)

    async def end_container(self, name: str, container: str, until: str) -> PodView:
        statuses = await self._containers(name)
        await asyncio.to_thread(_ctr, "task", "kill", "-s", "SIGTERM", _id(statuses[container]))
        if until == "restarted":
            count = statuses[container]["restartCount"] + 1
            place = list(statuses).index(container)
            await self._wait(name, f".status.containerStatuses[{place}].restartCount", str(count))
        else:
            await self._wait(name, ".status.phase", until)
        return await self.view(name)

    async def lose_sandbox(self, name: str) -> PodView:
        before = await self.view(name)
        labels = {"io.kubernetes.pod.uid": before.uid, "io.cri-containerd.kind": "sandbox"}
        wanted = ",".join(f'labels."{label}"=={value}' for label, value in labels.items())
        sandboxes = (await asyncio.to_thread(_ctr, "containers", "ls", "-q", wanted)).split()
        tasks = (await asyncio.to_thread(_ctr, "task", "ls")).splitlines()
        (id_,) = [each for each in sandboxes for task in tasks if task.startswith(each) and "RUNNING" in task]
        await asyncio.to_thread(_ctr, "task", "kill", "-s", "SIGKILL", id_)
        restarts = next(iter(before.containers.values())).restarts + 1
        await self._wait(name, ".status.containerStatuses[0].restartCount", str(restarts))
        return await self.view(name)

    async def until_ended(self, name: str) -> None:
        # our containers exit with 0 on SIGTERM, so that the rejected pod's phase becomes Succeeded
        await self._wait(name, ".status.phase", "Succeeded")

    async def remove(self, name: str, *, force: bool = False) -> None:
        if force:
            await asyncio.to_thread(self._node.kubectl, "delete", "pod", name, "--force", "--grace-period=0")
        else:
            await asyncio.to_thread(self._node.delete_pod, name)

    async def last_view(self, name: str) -> PodView:
        def followed() -> PodView:
            with self._pods.watch("default", field_selector=f"metadata.name={name}") as events:
                for event in events:
                    if event.type == "LISTED":
                        self._node.kubectl("delete", "pod", name, "--wait=false")
                    elif event.type == "DELETED":
                        return pod_view(event.object["metadata"]["uid"], event.object["status"])
            raise AssertionError("a watch does not end by itself")

        return await asyncio.to_thread(followed)

    async def until_ending(self, name: str) -> None:
        log = self.kubelet_folder.parent / "logs" / "kubelet.log"
        line = f'"SyncLoop DELETE" source="api" pods=["default/{name}"]'
        await asyncio.to_thread(self._node.until, lambda: line in log.read_text(), line)

    async def restart_kubelet(self, meanwhile: ConcurrentAction = nothing, refused: str = "") -> None:
        serves_again = self._serves_again()
        restarting = asyncio.create_task(asyncio.to_thread(self._node.restart_kubelet, f"default/{refused}"))
        if meanwhile is not nothing:  # a kubelet needs a second from serving its socket to knowing its pods
            await self.until(serves_again)
            await meanwhile()
        await restarting

    @contextlib.asynccontextmanager
    async def without_api_server(self) -> AsyncIterator[None]:
        serves_again = self._serves_again()
        with self._node.without_api_server() as back:
            await self.until(serves_again)
            yield
            await asyncio.to_thread(back)

    def _serves_again(self) -> Callable[[], bool]:
        """Return a predicate that is true when a new kubelet serves device plugins."""
        path = self.kubelet_folder / "device-plugins" / "kubelet.sock"
        before = path.stat().st_ctime_ns

        def serves_again() -> bool:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                if path.stat().st_ctime_ns != before:
                    connection.connect(str(path))
                    return True
            return False

        return serves_again

    async def until(self, predicate: Callable[[], bool]) -> None:
        await asyncio.to_thread(self._node.until, predicate, "the kubelet's files", period=0.01)

    async def until_cgroup(self, uid: str, is_there: bool) -> None:
        await asyncio.to_thread(self._node.until, lambda: self._node.has_cgroup(uid) == is_there, f"cgroup of {uid}")

    async def until_state(self, pod: str, container: str, state: str) -> None:
        def shown() -> bool:
            try:
                status = self._pods.get(pod, "default").get("status", {})
            except Refused:  # the mirror of a static pod, which the kubelet creates later
                return False
            known = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
            return [list(each["state"]) for each in known if each["name"] == container] == [[state]]

        await asyncio.to_thread(self._node.until, shown, f"{container} of {pod} {state}")

    async def put_claim(self, claim: v1.ResourceClaim) -> v1.ResourceClaim:
        def put() -> v1.ResourceClaim:
            created = self._claims.create(claim)
            return self._claims.update_status(msgspec.structs.replace(created, status=claim.status))

        return await asyncio.to_thread(put)

    async def remove_claim(self, name: str) -> None:
        with contextlib.suppress(Refused):  # deleted already
            await asyncio.to_thread(self._claims.delete, name, "default")

    async def until_connected(self, endpoint: Path) -> None:
        """The connection cannot be observed. A pod takes longer to reach the driver."""

    async def prepare_failure(self, pod: str) -> str:
        fields = f"involvedObject.name={pod},reason=FailedPrepareDynamicResources"

        def first() -> str:
            found = self._events.list("default", field_selector=fields).items
            return str(found[0]["message"]) if found else ""

        return await asyncio.to_thread(self._node.until, first, fields)

    async def metrics(self) -> str:
        connections = Connections(self._kubelet)
        try:
            token = {"Authorization": f"Bearer {self._kubelet.token}"}
            answer = await connections.send("GET", "/metrics", token, None)
            body = await answer.read(_MAX_METRICS_BYTES)
            assert answer.status == 200, body
        finally:
            connections.abort()
        return body.decode()

    async def injected(self, pod: str, container: str) -> list[str]:
        statuses = await self._containers(pod)
        info = await asyncio.to_thread(_ctr, "containers", "info", _id(statuses[container]))
        variables = json.loads(info)["Spec"]["process"]["env"]
        return [each.partition("=")[2] for each in variables if each.startswith(INJECTED)]

    async def until_health(self, pod: str, shown: Sequence[ShownHealth]) -> None:
        def now() -> list[ShownHealth]:
            entries = self._pods.get(pod, "default")["status"]["containerStatuses"][0].get(
                "allocatedResourcesStatus", ()
            )
            return sorted(
                ShownHealth(entry["name"], each["resourceID"], each["health"], each.get("message", ""))
                for entry in entries
                for each in entry["resources"]
            )

        await asyncio.to_thread(self._node.until, lambda: now() == sorted(shown), f"{shown}")

    def _bind(self, pod: Pod) -> None:
        name = pod.metadata.name
        uid = self._pods.create(_manifest(pod))["metadata"]["uid"]
        if pod.status != PodStatus():
            self._pods.patch(name, {"status": to_dict(pod.status)}, "default", subresource="status")
        for each in claim_names(pod):
            try:
                claim = reserved(self._claims.get(each, "default"), name, uid)
            except Refused as error:
                if not error.is_missing:
                    raise
            else:
                if claim is not None:
                    self._claims.update_status(claim)
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
        self._client.request("POST", f"{self._pods.path('default', name)}/binding", binding)

    async def _containers(self, pod: str) -> dict[str, Any]:
        found = await asyncio.to_thread(self._pods.get, pod, "default")
        status = found["status"]
        return {each["name"]: each for each in [*status["containerStatuses"], *status.get("initContainerStatuses", ())]}

    async def _wait(self, name: str, path: str, value: str) -> None:
        await asyncio.to_thread(self._node.wait, f"pod/{name}", path, value, 60)


def _id(status: dict[str, Any]) -> str:
    return str(status["containerID"]).removeprefix("containerd://")


def _ctr(*arguments: str) -> str:
    command = [str(FOLDER / "ctr"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def _manifest(pod: Pod) -> dict[str, Any]:
    made = to_dict(pod)
    spec = made["spec"]
    for kind, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        spec[kind] = [_container(each, is_init=kind == "initContainers") for each in containers]
    spec |= {"schedulerName": _SCHEDULER, "terminationGracePeriodSeconds": 1}
    made.pop("status", None)
    return made | {"apiVersion": "v1", "kind": "Pod"}


def _container(container: Container, *, is_init: bool) -> dict[str, Any]:
    ends = is_init and not container.is_sidecar and not stays(container)
    made = to_dict(container)
    made.pop("stays", None)
    return made | {
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "true" if ends else _RUN_UNTIL_SIGTERM],
    }
