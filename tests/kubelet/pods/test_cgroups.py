"""The path of a pod's cgroup, and pods whose cgroup cannot be created."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubelet import FakeClock, Node, NodeError, Pod, container, decode_pod, pod
from kubelet.events import Event
from kubelet.pods.cgroups import CgroupDriver, PodCgroups, qos_level
from kubelet.pods.worker import RETRY_PERIOD
from tests.small_disk import mounted

UID = "d37f6d4b-5c0a-437a-bbf6-467696514850"


def asking(
    *containers: tuple[dict[str, str], dict[str, str]], init: tuple[dict[str, str], dict[str, str]] | None
) -> Pod:
    """A pod whose containers have these limits and requests."""
    made = [container(f"c{number}", limits, requests=asked) for number, (limits, asked) in enumerate(containers)]
    before = (container("i", init[0], requests=init[1]),) if init else ()
    return pod("p", *made, init=before, uid=UID)


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "init", "expected"),
    [
        ([({}, {})], None, "besteffort"),
        ([({"example.com/gpu": "1"}, {})], None, "besteffort"),
        ([({"cpu": "0"}, {"memory": "0"})], None, "besteffort"),
        ([(BOTH, {})], None, ""),
        ([(BOTH, BOTH)], None, ""),
        ([(BOTH, {"cpu": "1000m", "memory": "1024Mi"})], None, ""),
        ([(BOTH, {"cpu": "500m"})], None, "burstable"),
        ([({"cpu": "1"}, {})], None, "burstable"),
        ([({}, {"cpu": "1"})], None, "burstable"),
        ([(BOTH, {}), ({}, {})], None, "burstable"),
        ([(BOTH, {})], ({}, {}), "burstable"),
        ([(BOTH, {})], (BOTH, {}), ""),
    ],
)
def test_qos_class_follows_requests_and_limits(
    containers: list[tuple[dict[str, str], dict[str, str]]],
    init: tuple[dict[str, str], dict[str, str]] | None,
    expected: str,
) -> None:
    assert qos_level(asking(*containers, init=init)) == expected


def test_qos_class_follows_resources_of_the_pod_as_a_whole() -> None:
    app = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    for whole, expected in (({"limits": BOTH}, ""), ({"requests": BOTH}, "burstable"), ({}, "burstable")):
        spec = {"containers": [app], "resources": whole}
        assert qos_level(decode_pod({"metadata": {"name": "p"}, "spec": spec}, "p")) == expected


@pytest.mark.parametrize(
    ("driver", "limits", "expected"),
    [
        ("cgroupfs", {}, f"kubepods/besteffort/pod{UID}"),
        ("cgroupfs", {"cpu": "1"}, f"kubepods/burstable/pod{UID}"),
        ("cgroupfs", BOTH, f"kubepods/pod{UID}"),
        (
            "systemd",
            {},
            f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice",
        ),
        (
            "systemd",
            {"cpu": "1"},
            f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice",
        ),
        ("systemd", BOTH, f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"),
    ],
)
def test_cgroup_path_follows_driver_and_qos_class(
    tmp_path: Path, driver: CgroupDriver, limits: dict[str, str], expected: str
) -> None:
    cgroups = PodCgroups(tmp_path, driver)
    owner = asking((limits, {}), init=None)
    cgroups.begin()
    before = sorted(tmp_path.rglob("*"))
    assert len(before) == 3, "kubepods and two classes"
    assert cgroups.path(owner) == tmp_path / expected
    for _ in range(2):
        cgroups.create(owner)
    (tmp_path / expected / "cgroup.procs").write_text("")
    for _ in range(2):
        cgroups.remove(owner)
    assert sorted(tmp_path.rglob("*")) == before
    cgroups.create(owner)
    for _ in range(2):
        cgroups.clear()
    assert list(tmp_path.iterdir()) == []


def test_pod_cgroups_without_root_do_nothing() -> None:
    cgroups = PodCgroups(None)
    owner = pod("p", uid=UID)
    cgroups.begin()
    cgroups.create(owner)
    cgroups.remove(owner)
    cgroups.clear()
    assert cgroups.path(owner) is None


async def until_refused(events: AsyncIterator[Event]) -> str:
    async for event in events:
        if event.kind == "FailedCreatePodContainer":
            return event.text
    raise AssertionError("events have no end")


async def test_pod_waits_until_its_cgroup_can_be_created(folder: Path) -> None:
    clock = FakeClock()
    async with Node(folder / "node", clock=clock, cgroups=folder / "cgroups", cgroup_driver="cgroupfs") as node:
        in_the_way = folder / "cgroups/kubepods/besteffort/podu"
        in_the_way.write_text("")
        refused = asyncio.create_task(until_refused(node.events()))
        await asyncio.sleep(0)
        assert (await node.admit(pod("p", container("c"), uid="u"))).phase == "Pending"
        assert (await refused).startswith("unable to ensure pod container exists: ")
        assert (await node.admit(pod("q", container("c")))).phase == "Running"
        in_the_way.unlink()
        await clock.advance(RETRY_PERIOD)
        await node.until(lambda: node.status("p").phase == "Running")


@pytest.mark.parametrize("uid", ["../../x", "/x", "x\0"])
async def test_pod_uid_with_path_separator_is_refused(folder: Path, uid: str) -> None:
    async with Node(folder, cgroups=folder / "cgroups", cgroup_driver="cgroupfs") as node:
        with pytest.raises(NodeError, match=r"metadata\.uid"):
            await node.admit(pod("p", container("c"), uid=uid))


async def test_pod_ends_if_its_cgroup_cannot_be_removed(folder: Path) -> None:
    async with Node(folder / "node", cgroups=folder / "cgroups", cgroup_driver="cgroupfs") as node:
        await node.admit(pod("p", container("c"), uid="u"))
        with mounted(folder / "cgroups/kubepods/besteffort/podu", "size=1m") as busy:
            await node.remove("p")
            assert (node.pods(), busy.is_dir()) == ([], True)
            assert (await node.admit(pod("q", container("c")))).phase == "Running"
