"""Pods whose device is gone are evicted if the resource says so, on the stand-in API server."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from checkpoint import Lease
from controlplane.apiserver import Server
from hostdevices import Inventory, scan
from hostdevices.inventory import Problem
from hostdevices.presence import Presence
from nodeplug.eviction import BURST, REFILL, RETRY, Evictions
from resourceapi.client import AsyncClient, Credentials, Refused
from telemetry import Event, Telemetry
from tests.checkpoint.build import claimed, lease
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.tree import Tree
from tests.nodeplug.cluster import using
from tests.nodeplug.config.text import errors_with_settings, one
from tests.nodeplug.machine import Machine
from tests.resourceapi.client.peer import Request, client_of, serving
from tests.running import running, until

NODE = "worker-1"
STICK = lease("misc-fuse", "x/y", holder="pod/default/app/c")


class Cluster:
    """A node with two devices, and its pods on an API server. The clock is `now`, which tests set."""

    def __init__(self, folder: Path, url: str, token: str) -> None:
        self.host = MadeUpHost(folder / "host", "fuse", "kvm")
        self.presence = Presence(self.host.host)
        self.telemetry = Telemetry()
        self.now = 1000.0
        self.client = AsyncClient(lambda: Credentials(server=url, token=token), attempts=1, timeout=5.0)
        self.evictions = Evictions(self.client, NODE, self.telemetry, lambda: self.now)
        self.resource = one("select: {kind: misc}\nevictAfterSeconds: 60")
        self.held: list[Lease] = [STICK]
        self.uids: dict[str, str] = {}  # of the first pod of each name
        self.names_pods = True
        administrator = AsyncClient(lambda: Credentials(server=url, token="t"))
        self.pods = administrator.raw("v1", "pods", namespaced=True)

    @property
    def evicted(self) -> list[Event]:
        return [x for x in self.telemetry.events.since(0) if x.kind == "evicted"]

    def leases(self) -> list[Lease]:
        return [self._with_uid(x) for x in self.held] if self.names_pods else self.held

    def _with_uid(self, held: Lease) -> Lease:
        """Add the pod's uid to a lease, as learnt from the kubelet's file."""
        uid = self.uids.get(held.holder.split("/")[2]) if held.holder.startswith("pod/") and not held.pods else None
        return replace(held, pods=frozenset({uid})) if uid else held

    async def pod(self, name: str = "app", node: str = NODE, **status: Any) -> str:
        """Create a pod on a node, with the devices of the first pod of its name; return its uid."""
        value = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        }
        made = await self.pods.create(value)
        if status:
            await self.pods.update_status({**made, "status": status})
        uid = str(made["metadata"]["uid"])
        self.uids.setdefault(name, uid)
        return uid

    async def names(self) -> list[str]:
        return [x["metadata"]["name"] for x in (await self.pods.list()).items]

    def unplug(self, name: str = "fuse") -> None:
        (self.host.root / f"sys/class/misc/{name}").unlink()

    def scan(self, *problems: Problem) -> None:
        """Run a scan, optionally with problems."""
        devices = scan(self.host.host).devices
        self.presence.update(devices, devices.values())
        self.evictions.note_scan(Inventory(devices, problems), self.presence, [self.resource], self)

    async def after(self, seconds: float, *problems: Problem) -> list[str]:
        """Scan, advance the clock, scan and evict; return the remaining pods."""
        self.scan(*problems)
        await self.evictions.evict_due()
        self.now += seconds
        self.scan(*problems)
        await self.evictions.evict_due()
        return await self.names()


@asynccontextmanager
async def running_cluster(folder: Path, token: str = "t") -> AsyncIterator[Cluster]:
    async with Server(token="t") as server:
        yield Cluster(folder, server.url, token)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path) as made:
        yield made


async def test_pod_is_evicted_when_its_device_is_gone_for_the_configured_time(cluster: Cluster) -> None:
    await cluster.pod()
    await cluster.pod("other")
    assert await cluster.after(100) == ["app", "other"]  # the device is present
    cluster.unplug()
    assert await cluster.after(59) == ["app", "other"]
    assert await cluster.after(1) == ["other"]
    (event,) = cluster.evicted
    assert (event.resource, event.device, event.holder) == ("x/y", "misc-fuse", STICK.holder)
    uid = await cluster.pod()  # the next pod of that name has another device, or waits for one
    assert await cluster.after(600) == ["app", "other"]
    cluster.held = [replace(STICK, resource="x/y", pods=frozenset({"of-the-first"}))]
    assert await cluster.after(600) == ["app", "other"]
    assert (await cluster.pods.get("app", "default"))["metadata"]["uid"] == uid


async def test_running_task_evicts_when_the_time_has_passed(cluster: Cluster) -> None:
    await cluster.pod()
    cluster.unplug()
    cluster.scan()
    async with running(cluster.evictions.run()):
        await until(lambda: cluster.evictions._gone)
        cluster.now += 60
        cluster.scan()
        await until(lambda: cluster.evicted)
    assert await cluster.names() == []


async def test_pod_is_evicted_when_its_name_is_reported_after_the_removal(cluster: Cluster) -> None:
    await cluster.pod()
    cluster.unplug()
    cluster.held = [replace(STICK, holder="")]
    assert await cluster.after(60) == ["app"]
    cluster.held = [STICK]
    assert await cluster.after(0) == []


async def test_pod_stays_when_the_device_returns_in_time(cluster: Cluster) -> None:
    await cluster.pod()
    cluster.unplug()
    await cluster.after(50)
    (cluster.host.root / "sys/class/misc/fuse").symlink_to("../../devices/virtual/misc/fuse")
    await cluster.after(50)
    cluster.unplug()
    assert await cluster.after(50) == ["app"]


@pytest.mark.parametrize(
    "leases",
    [
        [],
        [lease("misc-fuse", "another/one", holder="pod/default/app/c")],
        [lease("misc-fuse", "x/y")],  # the kubelet has not reported the holder yet
        [lease("misc-fuse", "x/y", exclusive="misc-fuse misc-kvm", holder="pod/default/app/c")],  # half is present
        [claimed("misc-fuse", "uid", "x/y")],
    ],
)
async def test_pod_stays_when_the_lease_does_not_match(cluster: Cluster, leases: list[Lease]) -> None:
    await cluster.pod()
    cluster.unplug()
    cluster.held = leases
    assert await cluster.after(600) == ["app"]


async def test_scan_that_cannot_see_the_kind_does_not_count(cluster: Cluster) -> None:
    await cluster.pod()
    cluster.unplug()
    assert await cluster.after(600, Problem("reader misc", "OSError", hidden_kind="misc")) == ["app"]
    assert await cluster.after(60) == []


async def test_pod_of_another_node_and_finished_pod_stay(cluster: Cluster) -> None:
    await cluster.pod(node="worker-2")
    await cluster.pod("done", phase="Succeeded")
    cluster.held.append(lease("misc-kvm", "x/y", holder="pod/default/done/c"))
    cluster.unplug()
    cluster.unplug("kvm")
    assert await cluster.after(60) == ["app", "done"]


async def test_pod_of_unknown_uid_is_not_evicted(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """If the kubelet's file is unreadable, a StatefulSet's next pod of that name could be here."""
    cluster.names_pods = False
    await cluster.pod()
    cluster.unplug()
    assert await cluster.after(60) == ["app"]
    assert "is not evicted: the kubelet's file does not say which pod of that name it is" in caplog.text
    cluster.names_pods = True
    assert await cluster.after(60) == []


async def test_evictions_are_limited_to_a_burst(cluster: Cluster) -> None:
    names = [f"app-{i}" for i in range(BURST + 1)]
    for name in names:
        await cluster.pod(name)
    cluster.held = [lease(f"misc-fuse.{i}", "x/y", holder=f"pod/default/{x}/c") for i, x in enumerate(names)]
    cluster.unplug()
    assert len(await cluster.after(60)) == 1
    assert await cluster.after(REFILL) == []


async def test_refused_eviction_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_cluster(tmp_path, token="another") as cluster:
        await cluster.pod()
        cluster.unplug()
        with caplog.at_level(logging.WARNING):
            assert await cluster.after(60) == ["app"]
            assert await cluster.after(RETRY) == ["app"]
    assert caplog.text.count("is not evicted: 401") == 1


async def test_eviction_is_retried_after_proxy_errors_and_a_conflict(cluster: Cluster) -> None:
    """A proxy answers 404 as well or asks to retry after hours, and two writers of a budget get a conflict."""
    uid, posted = await cluster.pod(), 0

    async def answer(request: Request) -> None:
        nonlocal posted
        if request.method == "GET" and len(peer.asked) == 1:
            await request.answer(b"no such page", 404)
        elif request.method == "GET" and len(peer.asked) == 2:
            await request.answer(b"back tomorrow", 503, retry_after="86400")
        elif request.method == "GET":
            await request.answer(await cluster.pods.get("app", "default"))
        else:
            posted += 1
            status = {"kind": "Status", "reason": "Conflict", "message": "the budget was changed meanwhile"}
            await request.answer(status, 409 if posted == 1 else 201)
            assert json.loads(request.body)["deleteOptions"] == {"preconditions": {"uid": uid}}

    cluster.unplug()
    async with serving(answer) as peer:
        with client_of(peer, attempts=1) as client:
            cluster.evictions = Evictions(client, NODE, cluster.telemetry, lambda: cluster.now)
            await cluster.after(60)
            for _ in range(3):
                assert not cluster.evicted
                await cluster.after(RETRY)
    assert posted == 2
    assert len(cluster.evicted) == 1


@pytest.mark.parametrize("odd", [{"spec": [NODE]}, {"status": "Failed"}, {"metadata": {"uid": 7}}], ids=str)
async def test_malformed_pod_is_not_evicted(
    cluster: Cluster, odd: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.pod()

    async def answer(request: Request) -> None:
        found = await cluster.pods.get("app", "default")
        changed = {name: found[name] | x if isinstance(x, dict) else x for name, x in odd.items()}
        await request.answer(found | changed)

    cluster.unplug()
    async with serving(answer) as peer:
        with client_of(peer, attempts=1) as client:
            cluster.evictions = Evictions(client, NODE, cluster.telemetry, lambda: cluster.now)
            assert await cluster.after(60) == ["app"]
    assert "is not evicted: Expected" in caplog.text


@pytest.mark.parametrize(("when", "asked"), [("GET", ["GET"]), ("POST", ["GET", "POST"])])
async def test_no_further_request_is_sent_when_devices_return_during_one(
    cluster: Cluster, when: str, asked: list[str]
) -> None:
    await cluster.pod()
    pod = await cluster.pods.get("app", "default")
    cluster.held.append(lease("misc-kvm", "x/y", holder="pod/default/second/c"))

    async def answer(request: Request) -> None:
        if request.method == when and not cluster.presence.has_device("misc-fuse"):  # power returns to their hub
            for name in ("fuse", "kvm"):
                (cluster.host.root / f"sys/class/misc/{name}").symlink_to(f"../../devices/virtual/misc/{name}")
            cluster.scan()
        await request.answer(pod if request.method == "GET" else {"kind": "Status"}, 200)

    cluster.unplug("fuse")
    cluster.unplug("kvm")
    async with serving(answer) as peer:
        with client_of(peer, attempts=1) as client:
            cluster.evictions = Evictions(client, NODE, cluster.telemetry, lambda: cluster.now)
            await cluster.after(60)
    assert [request.method for request in peer.asked] == asked


async def test_api_server_checks_the_uid_precondition_of_an_eviction(cluster: Cluster) -> None:
    uid = await cluster.pod()
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "app"}}
    path = f"{cluster.pods.path('default', 'app')}/eviction"
    with pytest.raises(Refused, match=r"409 Conflict.*the UID in the precondition \(x\) does not match"):
        await cluster.client.request("POST", path, {**body, "deleteOptions": {"preconditions": {"uid": "x"}}})
    answer = await cluster.client.request("POST", path, {**body, "deleteOptions": {"preconditions": {"uid": uid}}})
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert await cluster.names() == []


def test_setting_is_refused_for_resources_offered_through_dra_only() -> None:
    assert errors_with_settings("select: kvm\napi: dra\nevictAfterSeconds: 5") == [
        "claims have taints for this; set `dra: {taint: NoExecute}`"
    ]
    assert one("select: kvm\napi: both\nevictAfterSeconds: 5").evict_after_seconds == 5


async def test_daemon_evicts_the_pod_of_a_removed_device(machine: Machine) -> None:
    cluster = machine.cluster
    fuse = {"name": "example.com/fuse", "select": "fuse", "evictAfterSeconds": 1}
    await machine.start(resources=[fuse], rescanSeconds=1)
    await cluster.node.until(lambda: cluster.node.allocatable().get("example.com/fuse") == 1, 30)
    made = using("p")
    made["spec"]["containers"][0]["resources"] = {"limits": {"example.com/fuse": "1"}}
    await cluster.create(made)
    await cluster.until_phase("p", "Running")
    machine.host.remove_node("fuse")
    await cluster.until_gone("Pod", "p")


async def test_device_with_a_changed_id_after_a_duplicate_serial_is_not_gone(cluster: Cluster) -> None:
    tree, controller = Tree(cluster.host.root), "/sys/devices/pci0000:00/0000:00:14.0"
    tree.usb(controller, "1-2", serial="A50285BI")
    (stick,) = (x for x in scan(cluster.host.host).devices if x.startswith("usb-"))
    cluster.held = [lease(stick, "x/y", holder=STICK.holder)]
    await cluster.pod()
    tree.usb(controller, "1-3", serial="A50285BI")
    assert stick not in scan(cluster.host.host).devices
    assert await cluster.after(600) == ["app"]
    for name in ("1-2", "1-3"):
        tree.path(f"/sys/bus/usb/devices/{name}").unlink()
    assert await cluster.after(600) == []
