"""`nodeplug run` as a process that offers devices through DRA: a claim's whole life, both APIs at once, faults."""

import asyncio
import json
import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controlplane.apiserver import write_kubeconfig
from nodeplug import probe
from nodeplug.control.client import ask
from nodeplug.control.metrics import Answer, Question
from tests.controlplane.scheduler.kit import Json, claim, request
from tests.dra_scenarios import scenario
from tests.nodeplug.cluster import using
from tests.nodeplug.machine import Machine

FUSE, KVM = "fuse.example.com", "kvm.example.com"


@scenario(117, 128, 217)
async def test_claim_has_spec_and_lease_until_its_pod_is_deleted(machine: Machine) -> None:
    cluster = machine.cluster
    await machine.classes()
    await machine.start()
    await machine.until_published()
    await cluster.create(claim("c", request(deviceClassName=KVM)), using("p", ["mine"], claims={"mine": "c"}))
    await cluster.until_phase("p", "Running")
    (spec,) = machine.specs()
    nodes = [node for device in spec["devices"] for node in device["containerEdits"].get("deviceNodes", [])]
    assert [(node["path"], node["uid"]) for node in nodes] == [("/dev/kvm", 1000)]
    uid = (await cluster.get("ResourceClaim", "c"))["metadata"]["uid"]
    assert machine.leases() == [("dra", "misc-kvm", f"claim/default/c/{uid}")]
    await cluster.delete("Pod", "p")
    await cluster.until_gone("Pod", "p")
    await machine.until(lambda: (list(machine.cdi.glob("nodeplug-dra~*")), machine.leases()) == ([], []))


async def test_specs_are_restored_after_the_daemon_is_killed(machine: Machine) -> None:
    cluster = machine.cluster
    await machine.classes()
    first = await machine.start()
    await machine.until_published()
    await cluster.create(claim("c", request(deviceClassName=KVM)), using("p", ["mine"], claims={"mine": "c"}))
    await cluster.until_phase("p", "Running")
    before = machine.specs()
    first.kill()
    await first.wait()
    for path in machine.cdi.iterdir():
        path.unlink()  # as after a reboot
    await machine.start()
    await machine.until(lambda: machine.specs() == before)


async def test_device_removed_while_stopped_is_published_unhealthy_until_unused(
    machine: Machine,
) -> None:
    cluster = machine.cluster
    resources: list[Json] = [
        {"name": "example.com/fuse", "select": "fuse", "api": "dra"},
        {"name": "example.com/kvm", "select": "kvm", "api": "dra", "dra": {"taint": "NoExecute"}},
    ]
    await machine.classes()
    first = await machine.start(resources=resources)
    await machine.until_published()
    await cluster.create(claim("c", request(deviceClassName=KVM)), using("p", ["mine"], claims={"mine": "c"}))
    await cluster.until_phase("p", "Running")
    first.kill()
    await first.wait()
    machine.host.unplug("kvm")
    await machine.start(resources=resources)

    async def is_tainted() -> bool:
        kvm = (await machine.published()).get("misc-kvm", {})
        return [(x["key"], x["effect"]) for x in kvm.get("taints", [])] == [("nodeplug.dev/unhealthy", "NoExecute")]

    await cluster.until(is_tainted)
    await cluster.delete("Pod", "p")
    await cluster.until_gone("Pod", "p")

    async def is_gone() -> bool:
        return "misc-kvm" not in await machine.published()

    await cluster.until(is_gone)


async def test_claimed_device_is_tainted_no_schedule_when_no_longer_offered(machine: Machine) -> None:
    cluster = machine.cluster
    fuse: Json = {"name": "example.com/fuse", "select": "fuse", "api": "dra"}
    kvm: Json = {"name": "example.com/kvm", "select": "kvm", "api": "dra", "dra": {"taint": "NoExecute"}}
    await machine.classes()
    process = await machine.start(resources=[fuse, kvm])
    await machine.until_published()
    await cluster.create(claim("c", request(deviceClassName=KVM)), using("p", ["mine"], claims={"mine": "c"}))
    await cluster.until_phase("p", "Running")
    path = machine.state.with_name("config0.yaml")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"resources": [fuse]}))
    process.send_signal(signal.SIGHUP)

    async def taints() -> list[tuple[str, str]]:
        return [(x["key"], x["effect"]) for x in (await machine.published())["misc-kvm"].get("taints", [])]

    async def has_taint() -> bool:
        return bool(await taints())

    await cluster.until(has_taint)
    assert await taints() == [("nodeplug.dev/unavailable", "NoSchedule")]


async def counted(machine: Machine) -> dict[str, float]:
    """The metrics of the resource's units, by health."""
    text = (await asyncio.to_thread(ask, machine.state, Question(), Answer)).text
    samples = [
        x for family in text_string_to_metric_families(text) for x in family.samples if x.name == "nodeplug_devices"
    ]
    return {x.labels["health"]: x.value for x in samples if x.labels["resource"] == "example.com/fuse"}


async def test_device_used_by_one_api_is_unavailable_in_the_other(machine: Machine) -> None:
    cluster = machine.cluster
    await machine.classes()
    await machine.start()
    await machine.until_published()
    await cluster.node.until(lambda: cluster.node.allocatable().get("example.com/fuse") == 1, 30)
    await cluster.create(claim("c", request(deviceClassName=FUSE)), using("claims", ["mine"], claims={"mine": "c"}))
    await cluster.until_phase("claims", "Running")
    await cluster.node.until(lambda: cluster.node.allocatable().get("example.com/fuse") == 0, 30)
    assert await counted(machine) == {"healthy": 0, "unhealthy": 0, "in-use": 1, "withheld": 0, "unlisted": 0}
    await cluster.delete("Pod", "claims")
    await cluster.node.until(lambda: cluster.node.allocatable().get("example.com/fuse") == 1, 30)
    assert await counted(machine) == {"healthy": 1, "unhealthy": 0, "in-use": 0, "withheld": 0, "unlisted": 0}

    plugin_pod = using("plugin")
    plugin_pod["spec"]["containers"][0]["resources"] = {"limits": {"example.com/fuse": "1"}}
    await cluster.create(plugin_pod)
    await cluster.until_phase("plugin", "Running")

    async def tainted() -> bool:
        return bool((await machine.published())["misc-fuse"].get("taints"))

    await cluster.until(tainted)
    await cluster.create(claim("late", request(deviceClassName=FUSE)), using("late", ["mine"], claims={"mine": "late"}))
    await cluster.until_refused("late", "cannot allocate all claims")


async def test_missing_api_server_exits_with_1_and_names_the_setting(machine: Machine) -> None:
    process = await machine.start(environment={"KUBERNETES_SERVICE_HOST": ""}, kubeconfig="")
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"example.com/fuse, example.com/kvm: DRA needs the API server: not in a cluster" in errors
    assert b"settings.kubeconfig" in errors
    assert b"Traceback" not in errors


async def test_second_daemon_exits_with_3_and_the_first_continues(machine: Machine) -> None:
    cluster = machine.cluster
    await machine.classes()
    await machine.start()
    await machine.until_published()
    second = await machine.start(lockWaitSeconds=0)
    assert await second.wait() == 3
    await cluster.create(claim("c", request(deviceClassName=KVM)), using("p", ["mine"], claims={"mine": "c"}))
    await cluster.until_phase("p", "Running")
    assert len(machine.leases()) == 1


async def test_device_plugin_api_works_while_the_api_server_is_down(machine: Machine) -> None:
    write_kubeconfig(machine.kubeconfig, "http://127.0.0.1:9", "t")
    status = machine.state.with_name("status.sock")
    process = await machine.start(statusSocket=str(status))
    cluster = machine.cluster
    await cluster.node.until(lambda: cluster.node.allocatable().get("example.com/fuse") == 1, 30)

    async def is_not_ready() -> bool:
        """An update stops if a node publishes nothing."""
        await cluster.clock.advance(1.0)
        (is_ready, words) = await asyncio.to_thread(probe.ask, str(status), "/readyz")
        assert not is_ready
        return "the ResourceSlices of this node are not stored yet" in words

    async with asyncio.timeout(30):
        while not await is_not_ready():  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.05)  # the daemon is another process
        assert process.stderr is not None
        line = b""
        while b"ResourceSlice" not in line:
            line = await process.stderr.readline()
    assert b'"message":"watching ResourceSlices: GET http://127.0.0.1:9' in line
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert not status.exists()


@scenario(214, 215, 216)
@pytest.mark.parametrize("driver", ["nodeplug.dev", f"{'long-' * 11}name.dev"])
async def test_claims_are_prepared_during_an_update(machine: Machine, driver: str) -> None:
    cluster = machine.cluster
    await machine.classes(driver)
    first = await machine.start(environment={"POD_UID": "one"}, driverName=driver)
    await machine.until_published()
    status = machine.state.with_name("status.sock")
    await machine.start(environment={"POD_UID": "two"}, driverName=driver, statusSocket=str(status))
    registry = cluster.node.plugins_registry
    await machine.until(lambda: len(list(registry.glob("*.sock"))) == 2)
    await cluster.clock.advance(2.0)  # the kubelet finds the new instance, which does not own the state yet
    async with asyncio.timeout(30):
        while not (await asyncio.to_thread(probe.ask, str(status), "/readyz"))[0]:  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.05)  # the daemon is another process; an update ends the first one only after this
    await cluster.create(claim("c", request(deviceClassName=KVM)), using("p", ["mine"], claims={"mine": "c"}))
    first.send_signal(signal.SIGTERM)
    assert await first.wait() == 0
    await cluster.until_phase("p", "Running")
    assert len(list(registry.glob("*.sock"))) == 1
