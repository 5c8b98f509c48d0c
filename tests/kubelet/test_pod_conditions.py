"""A pod's status apart from its phase, as the stand-in writes it to an API server, after `status/generate.go`."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubelet import Node, Pod, Version, container, pod
from nodeplug.commands.kubelet_status import pod_status

NOW, LATER = "2026-11-27T03:00:00Z", "2026-11-27T03:00:01Z"
READY = ("Ready", "ContainersReady")


def told(node: Node, of: Pod, before: dict[str, Any] | None = None) -> dict[str, Any]:
    return pod_status(of, node.status(of), node.release, before or {}, NOW if before is None else LATER)


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


@pytest.mark.parametrize(
    ("kubernetes", "why"), [("1.36", ("", "")), ("1.37", ("PodSandboxNotReady", "pod sandbox is not ready"))]
)
async def test_why_containers_cannot_start(folder: Path, kubernetes: Version, why: tuple[str, str]) -> None:
    led = pod("p", container("c"), uid="u", restart_policy="Never")
    async with Node(folder, kubernetes=kubernetes) as node:
        await node.admit(led)
        assert conditions(told(node, led))["PodReadyToStartContainers"] == ("True", "", "")
        await node.exit_container(led, "c")
        await node.until(lambda: node.status(led).phase == "Succeeded")
        assert conditions(told(node, led))["PodReadyToStartContainers"] == ("False", *why)


async def test_a_pod_that_was_never_started_has_no_sandbox(folder: Path) -> None:
    led = pod("p", container("c"), uid="u", claims={"g": "missing"})
    async with Node(folder) as node:
        await node.admit(led)
        found = told(node, led)
        assert conditions(found)["PodReadyToStartContainers"] == (
            "False",
            "PodSandboxNotReady",
            "no pod sandbox exists",
        )
        assert "resources" not in found["containerStatuses"][0]


async def test_the_end_of_a_deleted_pod_is_told(folder: Path) -> None:
    led = pod("p", container("c"), uid="u")
    async with Node(folder) as node:
        await node.admit(led)
        meta = msgspec.structs.replace(led.metadata, deletion_timestamp=datetime.now(UTC), generation=2)
        deleted = msgspec.structs.replace(led, metadata=meta)
        assert conditions(told(node, deleted))["PodReadyToStartContainers"][0] == "True", "it runs on meanwhile"
        assert told(node, deleted)["observedGeneration"] == 2
        assert {each["observedGeneration"] for each in told(node, deleted)["conditions"]} == {2}
        ended = msgspec.structs.replace(node.status(led), container_statuses=())
        found = pod_status(deleted, ended, node.release, {}, NOW)
        assert conditions(found)["PodReadyToStartContainers"][0] == "False"


async def test_a_container_shows_what_it_was_given(folder: Path) -> None:
    first = container("c", {"example.com/x": 2, "cpu": "100m"}, requests={"cpu": "100m"}, claims=["g/r"])
    led = pod("p", first, container("d"), uid="u")
    async with Node(folder) as node:
        await node.admit(led)
        c, d = told(node, led)["containerStatuses"]
        limits = {"example.com/x": "2", "cpu": "100m"}
        claims = [{"name": "g", "request": "r"}]
        assert c["resources"] == {"limits": limits, "requests": {"cpu": "100m"}, "claims": claims}
        assert c["allocatedResources"] == {"cpu": "100m"}
        assert (d["resources"], "allocatedResources" in d) == ({}, False)


async def test_a_container_that_was_started_again_shows_how_it_ended(folder: Path) -> None:
    led = pod("p", container("c"), uid="u")
    async with Node(folder) as node:
        await node.admit(led)
        before = told(node, led)
        assert "terminated" not in before["containerStatuses"][0].get("lastState", {})
        await node.exit_container(led, "c", 3)
        after = told(node, led, before)
        (status,) = after["containerStatuses"]
        assert status["state"] == {"running": {"startedAt": LATER}}
        ended = {"exitCode": 3, "reason": "Error", "startedAt": NOW, "finishedAt": LATER}
        assert status["lastState"] == {"terminated": ended}
        later = pod_status(led, node.status(led), node.release, after, "2026-11-27T03:00:02Z")
        assert later["containerStatuses"] == after["containerStatuses"], "times stay"
        await node.lose_sandbox(led)
        (lost,) = told(node, led, after)["containerStatuses"]
        assert (lost["restartCount"], lost["lastState"]["terminated"]["exitCode"]) == (2, 137)


def deleted(of: Pod) -> Pod:
    metadata = msgspec.structs.replace(of.metadata, deletion_timestamp=datetime.now(UTC))
    return msgspec.structs.replace(of, metadata=metadata)


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_the_last_phase_of_a_deleted_pod_is_of_how_its_containers_ended(folder: Path, policy: str) -> None:
    led = pod("p", container("c"), init=(container("s", sidecar=True),), restart_policy=policy, uid="u")
    async with Node(folder) as node:
        await node.admit(led)
        last = pod_status(deleted(led), await node.remove(led), node.release, {}, NOW)
    assert last["phase"] == "Failed"
    assert last["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert conditions(last)["Ready"] == ("False", "PodFailed", "")


async def test_a_deleted_pod_whose_containers_ended_well_has_succeeded(folder: Path) -> None:
    """Without the deletion, the kubelet would restart the containers."""
    led = pod("p", container("c"), init=(container("s", sidecar=True),), uid="u")
    async with Node(folder) as node:
        await node.admit(led)
        await node.stop()
        await node.exit_container(led, "c", 0)
        removing = asyncio.create_task(node.remove(led, until_gone=True))
        await node.start()
        assert (await removing).phase == "Succeeded"


async def test_a_container_of_a_deleted_pod_that_waits_for_its_next_start_shows_how_it_ended(
    folder: Path,
) -> None:
    led = pod("p", container("c"), uid="u")
    async with Node(folder) as node:
        await node.admit(led)
        await node.stop()
        await node.lose_sandbox(led)
        assert node.status(led).container_statuses[0].state.waiting is not None
        removing = asyncio.create_task(node.remove(led, until_gone=True))
        await node.start()
        last = await removing
    (ended,) = last.container_statuses
    assert ended.state.terminated is not None
    assert (last.phase, ended.state.terminated.reason, ended.restart_count) == ("Failed", "Error", 1)


async def test_a_container_that_a_deleted_pod_could_not_start_is_lost(folder: Path) -> None:
    led = pod("p", container("c", claims=["x"]), claims={"x": "missing"}, uid="u")
    async with Node(folder) as node:
        await node.admit(led)
        last = pod_status(deleted(led), await node.remove(led), node.release, {}, NOW)
    assert last["phase"] == "Failed"
    assert last["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert conditions(last)["Ready"] == ("False", "ContainersNotReady", "containers with unready status: [c]")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [("Always", "ContainersNotReady"), ("OnFailure", "ContainersNotReady"), ("Never", "PodFailed")],
)
async def test_a_pod_that_is_deleted_before_its_containers_can_start(folder: Path, policy: str, reason: str) -> None:
    led = pod("p", container("c"), init=(container("i", stays=True),), restart_policy=policy, uid="u")
    async with Node(folder) as node:
        await node.admit(led)
        last = pod_status(deleted(led), await node.remove(led), node.release, {}, NOW)
    assert (last["phase"], conditions(last)["Ready"][1]) == ("Failed", reason)
    assert last["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
