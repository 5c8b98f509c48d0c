"""Kubernetes Events, written to the stand-in API server."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.apiserver import Server, write_kubeconfig
from nodeplug.config import loads
from nodeplug.events.cluster import BURST, MAX_WAITING, REFILL, REWRITE, SERIES, ClusterEvents
from nodeplug.events.devices import DeviceChange
from nodeplug.logs import LASTING
from nodeplug.parts import cluster_events
from resourceapi.client import AsyncClient, Credentials
from telemetry import Telemetry
from tests.checkpoint.build import claimed, lease
from tests.controlplane.scheduler.kit import Json, claim, request
from tests.nodeplug.cluster import NODE, using
from tests.nodeplug.conftest import StartDaemon, until_logged
from tests.nodeplug.machine import Machine
from tests.running import running, until

POD = lease("gpu-0", holder="pod/default/train/main", pods="uid-of-train")


class Written:
    """A writer of Events and its server. Only `pass_time` moves the clock."""

    def __init__(self, server: Server, client: AsyncClient) -> None:
        self.telemetry = Telemetry()
        self.now = 1000.0
        self.events = ClusterEvents(client, NODE, self.telemetry, lambda: self.now)
        self.client = client
        self._server = server
        self._outcomes = 0

    async def all(self) -> list[Json]:
        found = await self.client.raw("events.k8s.io/v1", "events", namespaced=True).list()
        return sorted(found.items, key=lambda each: str(each["eventTime"]))

    async def outcomes(self, **wanted: int) -> None:
        """Wait until so many Events had these outcomes, and no others."""
        await until(lambda: sum(self.telemetry.cluster_events.values()) >= sum(wanted.values()))
        assert self.telemetry.cluster_events == wanted

    def unplug(self, device: str = "gpu-0", *leases: Any) -> None:
        self.events.devices_changed([DeviceChange("unplugged", "example.com/gpu", device, "", leases or (POD,))])

    def refuse(self, message: str) -> None:
        self.telemetry.record_refusal("device-plugin", "not-ready", message, resource="example.com/gpu", device="gpu-1")


@asynccontextmanager
async def writing(url: str = "", token: str = "t") -> AsyncIterator[Written]:
    async with Server(token="t") as server:
        at = Credentials(server=url or server.url, token=token)
        written = Written(server, AsyncClient(lambda: at, attempts=1, timeout=5.0))
        async with running(written.events.run()):
            await asyncio.sleep(0)
            yield written


async def test_unplugged_device_has_events_for_its_pod_and_node() -> None:
    async with writing() as written:
        written.unplug()
        await written.outcomes(written=2)
        pod, node = await written.all()
    assert pod["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "train",
        "namespace": "default",
        "uid": "uid-of-train",
    }
    assert (pod["type"], pod["reason"], pod["action"]) == ("Warning", "DeviceUnplugged", "Watch")
    words = "Device gpu-0 of example.com/gpu, which pod default/train, container main has, is gone"
    assert (pod["note"], pod["metadata"]["namespace"]) == (words, "default")
    assert (pod["reportingController"], pod["reportingInstance"]) == ("nodeplug.dev/nodeplug", NODE)
    assert node["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": NODE}
    assert node["note"] == "Device gpu-0 of example.com/gpu is gone; with pod default/train, container main"


async def of_a_claim(written: Written) -> DeviceChange:
    """Create a claim that two pods use, and return a change: its device became unhealthy."""
    users = [{"resource": "pods", "name": name, "uid": f"uid-of-{name}"} for name in ("a", "b")]
    claims = written.client.raw("resource.k8s.io/v1", "resourceclaims", namespaced=True)
    stored = await claims.create({**claim("c"), "metadata": {"name": "c", "namespace": "default"}})
    await claims.update_status({**stored, "status": {"allocation": {}, "reservedFor": users}})
    held = claimed("gpu-0", stored["metadata"]["uid"], name="c")
    return DeviceChange("unhealthy", "example.com/gpu", "gpu-0", "fell off the bus", (held,))


async def test_unhealthy_device_has_events_for_all_pods_of_its_claim() -> None:
    async with writing() as written:
        written.events.devices_changed([await of_a_claim(written)])
        await written.outcomes(written=3)
        found = {each["regarding"]["name"]: each for each in await written.all()}
    assert found.keys() == {"a", "b", NODE}
    assert found["a"]["regarding"]["uid"] == "uid-of-a"
    assert found["a"]["reason"] == "DeviceUnhealthy"
    assert found["a"]["note"].endswith("which claim default/c has, is unhealthy: fell off the bus")


async def test_pods_of_a_recreated_claim_get_no_event_of_the_previous_claim() -> None:
    async with writing() as written:
        change = await of_a_claim(written)
        gone = (claimed("gpu-0", "the uid of before", name="c"),)
        written.events.devices_changed([DeviceChange(change.kind, change.resource, change.device, change.reason, gone)])
        await written.outcomes(written=1)
        (of_the_node,) = await written.all()
    assert of_the_node["regarding"]["name"] == NODE


async def test_only_refusals_and_invalid_files_have_events_for_the_node() -> None:
    async with writing() as written:
        written.refuse("it is held")
        written.telemetry.events.record("reload-refused", "the configuration stays as it was: x")
        written.telemetry.events.record("allocated", "handed out")
        written.events.devices_changed([DeviceChange("unplugged", "example.com/gpu", "free", "")])
        written.events.devices_changed([DeviceChange("healthy", "example.com/gpu", "gpu-0", "", (POD,))])
        await written.outcomes(written=2)
        found = [(each["reason"], each["note"], each["regarding"]["kind"]) for each in await written.all()]
    assert found == [
        ("DeviceRefused", "example.com/gpu gpu-1: it is held", "Node"),
        ("ConfigurationRefused", "the configuration stays as it was: x", "Node"),
    ]


async def test_repeated_event_is_counted_in_one_series() -> None:
    async with writing() as written:
        for _ in range(5):
            written.refuse("it is held")
        await written.outcomes(written=1)
        written.now += REWRITE
        written.refuse("it is held")
        await written.outcomes(written=2)
        (only,) = await written.all()
        assert only["series"]["count"] == 6
        written.now += SERIES
        written.refuse("it is held")
        await written.outcomes(written=3)
        assert len(await written.all()) == 2


async def test_events_are_rate_limited() -> None:
    async with writing() as written:
        for number in range(BURST + 5):
            written.refuse(str(number))
        await written.outcomes(written=BURST, limited=5)
        written.now += REFILL
        written.refuse("a")
        written.refuse("b")
        await written.outcomes(written=BURST + 1, limited=6)


async def test_waiting_events_are_limited() -> None:
    telemetry = Telemetry()
    events = ClusterEvents(AsyncClient(lambda: Credentials(server="http://127.0.0.1:9")), NODE, telemetry)
    events.devices_changed([DeviceChange("unplugged", "a/b", str(number), "", (POD,)) for number in range(MAX_WAITING)])
    assert telemetry.cluster_events == {"limited": MAX_WAITING}


@pytest.mark.parametrize(("url", "token"), [("http://127.0.0.1:9", "t"), ("", "wrong")])
async def test_failed_write_is_logged_once_and_counted(url: str, token: str, caplog: pytest.LogCaptureFixture) -> None:
    async with writing(url, token) as written:
        with caplog.at_level(logging.WARNING, "nodeplug"):
            written.unplug()
            await written.outcomes(failed=2)
    assert [x.startswith("Events are not written: ") for x in caplog.messages] == [True]


async def test_deleted_event_is_created_again() -> None:
    async with writing() as written:
        written.refuse("it is held")
        await written.outcomes(written=1)
        (only,) = await written.all()
        events = written.client.raw("events.k8s.io/v1", "events", namespaced=True)
        await events.delete(only["metadata"]["name"], only["metadata"]["namespace"])
        written.now += REWRITE
        written.refuse("it is held")
        await written.outcomes(written=1, failed=1)
        written.refuse("it is held")
        await written.outcomes(written=2, failed=1)
        assert len(await written.all()) == 1


async def test_daemon_writes_events_when_configured(machine: Machine) -> None:
    cluster = machine.cluster
    await machine.classes()
    await machine.start(clusterEvents=True, rescanSeconds=1)
    await machine.until_published()
    made = claim("c", request(deviceClassName="kvm.example.com"))
    await cluster.create(made, using("p", ["mine"], claims={"mine": "c"}))
    await cluster.until_phase("p", "Running")
    machine.host.remove_node("kvm")
    await cluster.until_event(
        "DeviceUnplugged", "Device misc-kvm of example.com/kvm, which claim default/c has, is gone"
    )
    found = [each for each in await cluster.all("Event") if each["reason"] == "DeviceUnplugged"]
    about = {(each["involvedObject"]["kind"], each["involvedObject"]["name"]) for each in found}
    assert about >= {("Pod", "p")}


async def test_daemon_works_without_an_api_server(start: StartDaemon) -> None:
    process = await start(clusterEvents=True, environment={"KUBERNETES_SERVICE_HOST": ""})
    await until_logged(process, "settings.clusterEvents: no Event is written: not in a cluster")
    await until_logged(process, "offering resources: 1")


def test_missing_cluster_is_reported_as_long_as_the_daemon_runs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials that a pod gets later are not used, so they must not end the warning."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert cluster_events(loads(b"settings: {clusterEvents: true}\nresources: []\n"), Telemetry()) is None
    (warning,) = caplog.records
    assert warning.__dict__["is_current"] is LASTING["is_current"]


async def test_kubeconfig_that_appears_later_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kubeconfig, telemetry = tmp_path / "kubeconfig", Telemetry()
    config = loads(f"settings: {{clusterEvents: true, kubeconfig: {kubeconfig}}}\nresources: []\n".encode())
    events = cluster_events(config, telemetry)
    assert events is not None
    assert f"settings.clusterEvents: no Event is written: {kubeconfig}: No such file" in caplog.text
    async with Server(token="t") as server, running(events.run()):
        write_kubeconfig(kubeconfig, server.url, server.token)
        await asyncio.sleep(0)
        telemetry.record_refusal("device-plugin", "not-ready", "held", resource="example.com/gpu", device="gpu-1")
        await until(lambda: telemetry.cluster_events["written"] == 1)


async def test_deleted_event_of_one_pod_does_not_affect_the_other_pod() -> None:
    async with writing() as written:
        change = await of_a_claim(written)
        written.events.devices_changed([change])
        await written.outcomes(written=3)
        events = written.client.raw("events.k8s.io/v1", "events", namespaced=True)
        (of_a,) = (x for x in await written.all() if x["regarding"]["name"] == "a")
        await events.delete(of_a["metadata"]["name"], "default")
        written.now += REWRITE
        written.events.devices_changed([change])
        await written.outcomes(written=5, failed=1)
        written.events.devices_changed([change])
        await written.outcomes(written=6, failed=1)
        assert {x["regarding"]["name"] for x in await written.all()} == {"a", "b", NODE}
