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


def api_status(node: Node, owner: Pod, before: dict[str, Any] | None = None) -> dict[str, Any]:
    return pod_status(owner, node.status(owner), node.release, before or {}, NOW if before is None else LATER)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {
        each["type"]: (each["status"], each.get("reason") or "", each.get("message") or "")
        for each in status["conditions"]
    }


async def test_succeeded_init_container_is_ready(folder: Path) -> None:
    owner = pod("p", container("c"), init=(container("i"),), uid="u")
    async with Node(folder) as node:
        await node.admit(owner)
        (init,) = api_status(node, owner)["initContainerStatuses"]
        assert (init["state"]["terminated"]["exitCode"], init["ready"]) == (0, True)


async def test_pod_stays_initialized_after_init_containers_succeeded(folder: Path) -> None:
    owner = pod("p", container("c"), init=(container("i", stays=True), container("s", sidecar=True)), uid="u")
    async with Node(folder) as node:
        await node.admit(owner)
        before = api_status(node, owner)
        missing = ("False", "ContainersNotInitialized", "containers with incomplete status: [i s]")
        unready = ("False", "ContainersNotReady", "containers with unready status: [s c]")
        assert conditions(before) == {
            "PodReadyToStartContainers": ("True", "", ""),
            "Initialized": missing,
            "PodScheduled": ("True", "", ""),
        } | dict.fromkeys(READY, unready)
        await node.exit_container(owner, "i")
        running = api_status(node, owner, before)
        assert conditions(running) == dict.fromkeys(conditions(before), ("True", "", ""))
        await node.lose_sandbox(owner)
        again = api_status(node, owner, running)
        assert "running" in again["initContainerStatuses"][0]["state"]
        assert (conditions(again)["Initialized"], conditions(again)["Ready"][1]) == (
            ("True", "", ""),
            "ContainersNotReady",
        )


async def test_failed_init_container_makes_pod_uninitialized(folder: Path) -> None:
    owner = pod("p", container("c"), init=(container("i", stays=True),), uid="u", restart_policy="Never")
    async with Node(folder) as node:
        await node.admit(owner)
        await node.exit_container(owner, "i", 1)
        await node.until(lambda: node.status(owner).phase == "Failed")
        found = conditions(api_status(node, owner))
        assert found["Initialized"][:2] == ("False", "ContainersNotInitialized")
        assert {found[each] for each in READY} == {("False", "PodFailed", "")}


async def test_succeeded_pod_has_completed_conditions(folder: Path) -> None:
    owner = pod("p", container("c"), init=(container("i"),), uid="u", restart_policy="Never")
    async with Node(folder) as node:
        await node.admit(owner)
        await node.exit_container(owner, "c")
        await node.until(lambda: node.status(owner).phase == "Succeeded")
        found = conditions(api_status(node, owner))
        assert found["Initialized"] == ("True", "PodCompleted", "")
        assert {found[each] for each in READY} == {("False", "PodCompleted", "")}


@pytest.mark.parametrize(
    ("kubernetes", "reason_and_message"),
    [("1.36", ("", "")), ("1.37", ("PodSandboxNotReady", "pod sandbox is not ready"))],
)
async def test_sandbox_condition_of_ended_pod_has_reason_since_1_37(
    folder: Path, kubernetes: Version, reason_and_message: tuple[str, str]
) -> None:
    owner = pod("p", container("c"), uid="u", restart_policy="Never")
    async with Node(folder, kubernetes=kubernetes) as node:
        await node.admit(owner)
        assert conditions(api_status(node, owner))["PodReadyToStartContainers"] == ("True", "", "")
        await node.exit_container(owner, "c")
        await node.until(lambda: node.status(owner).phase == "Succeeded")
        assert conditions(api_status(node, owner))["PodReadyToStartContainers"] == ("False", *reason_and_message)


async def test_unstarted_pod_has_no_sandbox_condition(folder: Path) -> None:
    owner = pod("p", container("c"), uid="u", claims={"g": "missing"})
    async with Node(folder) as node:
        await node.admit(owner)
        found = api_status(node, owner)
        assert conditions(found)["PodReadyToStartContainers"] == (
            "False",
            "PodSandboxNotReady",
            "no pod sandbox exists",
        )
        assert "resources" not in found["containerStatuses"][0]


async def test_deleted_pod_reports_lost_sandbox_after_containers_end(folder: Path) -> None:
    owner = pod("p", container("c"), uid="u")
    async with Node(folder) as node:
        await node.admit(owner)
        meta = msgspec.structs.replace(owner.metadata, deletion_timestamp=datetime.now(UTC), generation=2)
        deleted = msgspec.structs.replace(owner, metadata=meta)
        assert conditions(api_status(node, deleted))["PodReadyToStartContainers"][0] == "True", "it runs on meanwhile"
        assert api_status(node, deleted)["observedGeneration"] == 2
        assert {each["observedGeneration"] for each in api_status(node, deleted)["conditions"]} == {2}
        ended = msgspec.structs.replace(node.status(owner), container_statuses=())
        found = pod_status(deleted, ended, node.release, {}, NOW)
        assert conditions(found)["PodReadyToStartContainers"][0] == "False"


async def test_container_status_has_its_resources(folder: Path) -> None:
    first = container("c", {"example.com/x": 2, "cpu": "100m"}, requests={"cpu": "100m"}, claims=["g/r"])
    owner = pod("p", first, container("d"), uid="u")
    async with Node(folder) as node:
        await node.admit(owner)
        c, d = api_status(node, owner)["containerStatuses"]
        limits = {"example.com/x": "2", "cpu": "100m"}
        claims = [{"name": "g", "request": "r"}]
        assert c["resources"] == {"limits": limits, "requests": {"cpu": "100m"}, "claims": claims}
        assert c["allocatedResources"] == {"cpu": "100m"}
        assert (d["resources"], "allocatedResources" in d) == ({}, False)


async def test_restarted_container_has_last_state(folder: Path) -> None:
    owner = pod("p", container("c"), uid="u")
    async with Node(folder) as node:
        await node.admit(owner)
        before = api_status(node, owner)
        assert "terminated" not in before["containerStatuses"][0].get("lastState", {})
        await node.exit_container(owner, "c", 3)
        after = api_status(node, owner, before)
        (status,) = after["containerStatuses"]
        assert status["state"] == {"running": {"startedAt": LATER}}
        ended = {"exitCode": 3, "reason": "Error", "startedAt": NOW, "finishedAt": LATER}
        assert status["lastState"] == {"terminated": ended}
        later = pod_status(owner, node.status(owner), node.release, after, "2026-11-27T03:00:02Z")
        assert later["containerStatuses"] == after["containerStatuses"], "times stay"
        await node.lose_sandbox(owner)
        (lost,) = api_status(node, owner, after)["containerStatuses"]
        assert (lost["restartCount"], lost["lastState"]["terminated"]["exitCode"]) == (2, 137)


def deleted(owner: Pod) -> Pod:
    metadata = msgspec.structs.replace(owner.metadata, deletion_timestamp=datetime.now(UTC))
    return msgspec.structs.replace(owner, metadata=metadata)


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_deleted_pod_fails_if_containers_were_terminated(folder: Path, policy: str) -> None:
    owner = pod("p", container("c"), init=(container("s", sidecar=True),), restart_policy=policy, uid="u")
    async with Node(folder) as node:
        await node.admit(owner)
        last = pod_status(deleted(owner), await node.remove(owner), node.release, {}, NOW)
    assert last["phase"] == "Failed"
    assert last["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert conditions(last)["Ready"] == ("False", "PodFailed", "")


async def test_deleted_pod_succeeds_if_containers_exited_with_zero(folder: Path) -> None:
    """Without the deletion, the kubelet would restart the containers."""
    owner = pod("p", container("c"), init=(container("s", sidecar=True),), uid="u")
    async with Node(folder) as node:
        await node.admit(owner)
        await node.stop()
        await node.exit_container(owner, "c", 0)
        removing = asyncio.create_task(node.remove(owner, until_gone=True))
        await node.start()
        assert (await removing).phase == "Succeeded"


async def test_waiting_container_of_deleted_pod_becomes_terminated(
    folder: Path,
) -> None:
    owner = pod("p", container("c"), uid="u")
    async with Node(folder) as node:
        await node.admit(owner)
        await node.stop()
        await node.lose_sandbox(owner)
        assert node.status(owner).container_statuses[0].state.waiting is not None
        removing = asyncio.create_task(node.remove(owner, until_gone=True))
        await node.start()
        last = await removing
    (ended,) = last.container_statuses
    assert ended.state.terminated is not None
    assert (last.phase, ended.state.terminated.reason, ended.restart_count) == ("Failed", "Error", 1)


async def test_unstarted_container_of_deleted_pod_has_unknown_status(folder: Path) -> None:
    owner = pod("p", container("c", claims=["x"]), claims={"x": "missing"}, uid="u")
    async with Node(folder) as node:
        await node.admit(owner)
        last = pod_status(deleted(owner), await node.remove(owner), node.release, {}, NOW)
    assert last["phase"] == "Failed"
    assert last["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert conditions(last)["Ready"] == ("False", "ContainersNotReady", "containers with unready status: [c]")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [("Always", "ContainersNotReady"), ("OnFailure", "ContainersNotReady"), ("Never", "PodFailed")],
)
async def test_pod_deleted_before_containers_start_fails(folder: Path, policy: str, reason: str) -> None:
    owner = pod("p", container("c"), init=(container("i", stays=True),), restart_policy=policy, uid="u")
    async with Node(folder) as node:
        await node.admit(owner)
        last = pod_status(deleted(owner), await node.remove(owner), node.release, {}, NOW)
    assert (last["phase"], conditions(last)["Ready"][1]) == ("Failed", reason)
    assert last["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
