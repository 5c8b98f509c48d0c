"""The conditions of a pod that the stand-in tells an API server, as the kubelet's `status/generate.go` has them."""

from pathlib import Path
from typing import Any

from kubelet import Node, Pod, container, pod
from nodeplug.commands.kubelet_status import pod_status

NOW, LATER = "2026-11-27T03:00:00Z", "2026-11-27T03:00:01Z"
READY = ("Ready", "ContainersReady")


def told(node: Node, of: Pod, before: dict[str, Any] | None = None) -> dict[str, Any]:
    return pod_status(of, node.status(of), before or {}, NOW if before is None else LATER)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {
        each["type"]: (each["status"], each.get("reason") or "", each.get("message") or "")
        for each in status["conditions"]
    }


async def test_init_containers_that_succeeded_are_ready(folder: Path) -> None:
    led = pod("p", container("c"), init=(container("i"),), uid="u")
    async with Node(folder) as node:
        await node.admit(led)
        (init,) = told(node, led)["initContainerStatuses"]
        assert (init["state"]["terminated"]["exitCode"], init["ready"]) == (0, True)


async def test_a_pod_is_initialized_when_its_init_containers_succeeded_and_stays_so(folder: Path) -> None:
    led = pod("p", container("c"), init=(container("i", stays=True), container("s", sidecar=True)), uid="u")
    async with Node(folder) as node:
        await node.admit(led)
        before = told(node, led)
        missing = ("False", "ContainersNotInitialized", "containers with incomplete status: [i s]")
        unready = ("False", "ContainersNotReady", "containers with unready status: [s c]")
        assert conditions(before) == {
            "PodReadyToStartContainers": ("True", "", ""),
            "Initialized": missing,
            "PodScheduled": ("True", "", ""),
        } | dict.fromkeys(READY, unready)
        await node.exit_container(led, "i")
        running = told(node, led, before)
        assert conditions(running) == dict.fromkeys(conditions(before), ("True", "", ""))
        await node.lose_sandbox(led)
        again = told(node, led, running)
        assert "running" in again["initContainerStatuses"][0]["state"]
        assert (conditions(again)["Initialized"], conditions(again)["Ready"][1]) == (
            ("True", "", ""),
            "ContainersNotReady",
        )


async def test_an_init_container_that_fails_for_good(folder: Path) -> None:
    led = pod("p", container("c"), init=(container("i", stays=True),), uid="u", restart_policy="Never")
    async with Node(folder) as node:
        await node.admit(led)
        await node.exit_container(led, "i", 1)
        await node.until(lambda: node.status(led).phase == "Failed")
        found = conditions(told(node, led))
        assert found["Initialized"][:2] == ("False", "ContainersNotInitialized")
        assert {found[each] for each in READY} == {("False", "PodFailed", "")}


async def test_a_pod_that_succeeded_says_so_of_itself(folder: Path) -> None:
    led = pod("p", container("c"), init=(container("i"),), uid="u", restart_policy="Never")
    async with Node(folder) as node:
        await node.admit(led)
        await node.exit_container(led, "c")
        await node.until(lambda: node.status(led).phase == "Succeeded")
        found = conditions(told(node, led))
        assert found["Initialized"] == ("True", "PodCompleted", "")
        assert {found[each] for each in READY} == {("False", "PodCompleted", "")}
