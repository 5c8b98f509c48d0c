"""Pods with claims over time: prepared before the sandbox, unprepared at the end, through every failure."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checkpoint.kubelet_claims import encode
from kubelet import Node, NodeError, Timeouts, Version, container, pod
from kubelet.control import view
from kubelet.devicemanager import Device, DeviceRunContainerOptions
from kubelet.stubs import DevicePluginStub, DRAPluginStub, Gate, PluginFault, answering, claimed, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as device_api
from kubeletapi.dra.v1 import api_pb2 as api
from kubeletapi.dra_health.v1alpha1 import api_pb2 as health_api
from resourceapi.objects import Quantity, to_dict
from resourceapi.objects.core import Pod, ResourceHealth
from tests.dra_scenarios import scenario
from tests.kubelet.dramanager.kit import (
    DRIVER,
    POOL,
    PREPARE,
    PREPARE_RETRY,
    Lab,
    by_claim,
    claim,
    prepared,
    state,
    user,
)
from tests.kubelet.kit import state_details

UNPREPARE = "NodeUnprepareResources"
OTHER = "other.example.com"
HEALTHY, UNHEALTHY = health_api.HealthStatus.HEALTHY, health_api.HealthStatus.UNHEALTHY


@scenario(196, 164, 117)
async def test_claim_is_prepared_injected_and_unprepared(lab: Lab) -> None:
    stub = await lab.driver()
    assert stub.notified == [(True, "")]
    lab.put(claim("c1"))
    status = await lab.node.admit(user("p", "c1"))
    assert status.phase == "Running"
    assert lab.node.claimed_devices("p", "c") == ("vendor.test/up=uid-c1-g0",)
    await lab.node.remove("p")
    assert lab.node.pods() == []
    assert (stub.claims(PREPARE), stub.claims(UNPREPARE)) == ([["c1"]], [["c1"]])


async def test_cdi_devices_of_plugin_and_claim_are_combined(lab: Lab) -> None:
    await lab.driver()
    lab.put(claim("c1"))
    socket = lab.node.device_plugins / "p.sock"
    async with DevicePluginStub(socket, "example.com/device", [Device("a")]) as plugin:
        answer = device_api.ContainerAllocateResponse(cdi_devices=[device_api.CDIDevice(name="x.test/d=a")])
        plugin.behaviours["Allocate"] = answering(device_api.AllocateResponse(container_responses=[answer]))
        await plugin.register(lab.node.kubelet_socket)
        await lab.node.until(lambda: lab.node.capacity().get("example.com/device") == 1)
        both = container("c", {"example.com/device": 1}, claims=["c1"])
        await lab.node.admit(pod("p", both, container("other"), uid="p", claims={"c1": "c1"}))
        options = await lab.node.run_container_options("p", "c")
        assert [each.name for each in options.cdi_devices] == ["vendor.test/up=uid-c1-g0", "x.test/d=a"]
        assert await lab.node.run_container_options("p", "other") == DeviceRunContainerOptions()


@scenario(164, 197)
async def test_failed_prepare_is_retried_after_80_seconds(lab: Lab) -> None:
    stub = await lab.driver()
    stub.behaviours[PREPARE] = failing("prepare broke")
    lab.put(claim("c1"))
    asking = user("p", "c1")
    await lab.node.admit(asking)
    assert state(lab, "p") == ("Pending", "waiting", "ContainerCreating")
    text = "prepare dynamic resources: NodePrepareResources: rpc error: code = Internal desc = prepare broke"
    assert await lab.failures(1) == [f"Failed to prepare dynamic resources: {text}"]
    del stub.behaviours[PREPARE]
    await lab.clock.advance(PREPARE_RETRY - 1)
    assert len(stub.called(PREPARE)) == 1, "nothing is tried earlier"
    await lab.clock.advance(1)
    await lab.phase("p", "Running")
    assert state(lab, "p") == ("Running", "running", "")
    assert len(stub.called(PREPARE)) == 2


async def test_pod_with_two_names_for_one_claim_never_starts(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("c1"))
    twice = pod("p", container("c", claims=["a", "b"]), uid="p", claims={"a": "c1", "b": "c1"})
    await lab.node.admit(twice)
    text = "prepare dynamic resources: NodePrepareResources skipped 1 ResourceClaims"
    assert await lab.failures(1) == [f"Failed to prepare dynamic resources: {text}"]
    assert stub.claims(PREPARE) == [["c1", "c1"]]
    await lab.clock.advance(PREPARE_RETRY)
    await lab.failures(2)
    assert stub.claims(PREPARE) == [["c1", "c1"]] * 2
    assert state(lab, "p") == ("Pending", "waiting", "ContainerCreating")
    await lab.node.remove("p")
    assert lab.node.pods() == []


@scenario(213)
async def test_pod_admitted_before_driver_registers_is_prepared_later(lab: Lab) -> None:
    lab.put(claim("c1"))
    status = await lab.node.admit(
        pod("p", container("c", claims=["c1"]), init=(container("i"),), uid="p", claims={"c1": "c1"})
    )
    assert await lab.failures(1) == [
        f"Failed to prepare dynamic resources: prepare dynamic resources: DRA driver {DRIVER} is not registered"
    ]
    assert {state_details(each) for each in status.all_containers} == {("PodInitializing", "")}
    stub = await lab.driver()
    await prepared(lab, stub, user("p", "c1"))


@scenario(198)
async def test_pod_waits_until_claim_is_reserved_for_it(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("c1", pods=()))
    await lab.node.admit(user("p", "c1"))
    await lab.clock.advance(20)
    assert (state(lab, "p")[0], stub.called(PREPARE)) == ("Pending", [])
    lab.put(claim("c1"))
    await prepared(lab, stub, user("p", "c1"))


@scenario(163)
async def test_prepare_timeout_is_retried(folder: Path) -> None:
    async with Lab(folder, timeouts=Timeouts(claims=0.2)) as lab:
        stub = await lab.driver()
        stub.behaviours[PREPARE] = Gate(api.NodePrepareResourcesResponse())  # never opened
        lab.put(claim("c1"))
        await lab.node.admit(user("p", "c1"))
        assert state(lab, "p")[0] == "Pending"
        (text,) = await lab.failures(1)
        assert text.endswith("rpc error: code = DeadlineExceeded desc = context deadline exceeded")
        await lab.clock.advance(PREPARE_RETRY)
        await stub.until(lambda: len(stub.called(PREPARE)) == 2)


@scenario(165, 168)
async def test_failed_unprepare_is_retried_until_it_succeeds(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("c1"))
    await lab.node.admit(user("p", "c1"))
    stub.behaviours[UNPREPARE] = failing("unprepare broke")
    await lab.node.remove("p")
    assert state(lab, "p") == ("Running", "terminated", "Error")
    await lab.clock.advance(1)
    await lab.unprepare_failed(2)
    await lab.clock.advance(11)
    assert len(stub.called(UNPREPARE)) == 2
    del stub.behaviours[UNPREPARE]
    await lab.clock.advance(1)
    await lab.gone("p")
    assert len(stub.called(UNPREPARE)) == 3
    assert await lab.failures(0) == [], "pods do not hear of it"


async def test_completed_pod_succeeds_after_unprepare(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("c1"), claim("c2", pods=["q"]))
    once = msgspec.structs.replace(user("p", "c1").spec, restart_policy="Never")
    await lab.node.admit(msgspec.structs.replace(user("p", "c1"), spec=once))
    gate = stub.behaviours[UNPREPARE] = Gate(
        api.NodeUnprepareResourcesResponse(claims={"uid-c1": api.NodeUnprepareResourceResponse()})
    )
    ending = asyncio.create_task(lab.node.exit_container("p", "c"))
    await stub.until(lambda: stub.claims(UNPREPARE) == [["c1"]])
    assert lab.node.status("p").phase == "Running"
    gate.open()
    assert (await ending).phase == "Succeeded"
    del stub.behaviours[UNPREPARE]
    await lab.node.admit(user("q", "c2"))
    assert lab.node.finish("q").phase == "Running"
    await lab.phase("q", "Succeeded")
    assert stub.claims(UNPREPARE) == [["c1"], ["c2"]]


@scenario(166)
async def test_kubelet_restart_during_failing_prepare_retries_it(lab: Lab) -> None:
    stub = await lab.driver()
    stub.behaviours[PREPARE] = failing("x")
    lab.put(claim("c1"))
    await lab.node.admit(user("p", "c1"))
    await lab.node.stop()
    del stub.behaviours[PREPARE]
    await lab.node.start()
    await lab.until_registered(stub)
    await prepared(lab, stub, user("p", "c1"))
    assert len(stub.called(PREPARE)) == 2


@scenario(167, 169)
async def test_kubelet_restart_during_failing_unprepare_retries_it(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("c1"))
    await lab.node.admit(user("p", "c1"))
    stub.behaviours[UNPREPARE] = failing("x")
    await lab.node.remove("p")
    await lab.node.restart()
    assert [each.metadata.name for each, _ in lab.node.pods()] == ["p"]
    await lab.until_registered(stub)
    del stub.behaviours[UNPREPARE]
    await lab.advance_until(1, lambda: lab.node.pods() == [])


@scenario(170, 199)
async def test_forced_deletion_unprepares_claim_later(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("c1"))
    await lab.node.admit(user("p", "c1"))
    stub.behaviours[UNPREPARE] = failing("x")
    await lab.node.remove("p", force=True)
    assert lab.node.pods() == []
    assert stub.claims(UNPREPARE) == [["c1"]]
    del stub.behaviours[UNPREPARE]
    await lab.clock.advance(1)
    await lab.node.until(lambda: lab.node.dra_manager.cache.claims() == [])


@scenario(170)
async def test_forced_deletion_while_kubelet_is_down_is_reconciled(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("c1"))
    await lab.node.admit(user("p", "c1"))
    await lab.node.stop()
    await lab.node.remove("p", force=True)
    assert lab.node.pods() == []
    reconciled = lab.clock.now() + 60
    await lab.node.start()
    await lab.until_registered(stub)
    await lab.clock.advance(reconciled - 1 - lab.clock.now())
    assert stub.called(UNPREPARE) == []
    await lab.clock.advance(1)
    await lab.node.until(lambda: lab.node.dra_manager.cache.claims() == [])
    assert stub.claims(UNPREPARE) == [["c1"]]


@scenario(171)
async def test_pod_deleted_before_prepare_causes_no_driver_call(lab: Lab) -> None:
    lab.put(claim("c1"))
    await lab.node.admit(user("p", "c1"))
    await lab.node.stop()
    await lab.node.remove("p")
    stub = DRAPluginStub(lab.node.plugins_registry, DRIVER)
    async with stub:
        await lab.node.start()
        await lab.until_registered(stub)
        await lab.gone("p")
        await lab.clock.advance(300)
        assert [method for method, _ in stub.calls if method in (PREPARE, UNPREPARE)] == []


async def test_pod_deleted_while_kubelet_is_down_is_unprepared_at_start(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("c1"))
    await lab.node.admit(user("p", "c1"))
    await lab.node.stop()
    await lab.node.remove("p")
    assert len(lab.node.pods()) == 1, "its claims have to be unprepared first"
    await lab.node.start()
    await lab.until_registered(stub)
    await lab.advance_until(1, lambda: lab.node.pods() == [])
    assert stub.claims(UNPREPARE) == [["c1"]]


async def test_removal_waits_for_running_prepare(lab: Lab) -> None:
    stub = await lab.driver()
    answer = api.NodePrepareResourcesResponse(claims={"uid-c1": api.NodePrepareResourceResponse()})
    gate = stub.behaviours[PREPARE] = Gate(answer)
    lab.put(claim("c1"))
    admitting = asyncio.create_task(lab.node.admit(user("p", "c1")))
    await stub.until(lambda: len(stub.called(PREPARE)) == 1)
    removing = asyncio.create_task(lab.node.remove("p"))
    await asyncio.sleep(0)  # the removal has started
    assert stub.called(UNPREPARE) == [], "the driver is left to finish"
    gate.open()
    await removing
    assert (await admitting).phase == "Failed"
    assert stub.claims(UNPREPARE) == [["c1"]]
    assert lab.node.pods() == []
    assert await lab.failures(0) == []


async def test_removal_during_failing_prepare_unprepares_claim(lab: Lab) -> None:
    stub = await lab.driver()
    called, fails = asyncio.Event(), asyncio.Event()

    async def fail(_: object) -> api.NodePrepareResourcesResponse:
        called.set()
        await fails.wait()
        raise PluginFault("too late")

    stub.behaviours[PREPARE] = fail
    lab.put(claim("c1"))
    admitting = asyncio.create_task(lab.node.admit(user("p", "c1")))
    await called.wait()
    removing = asyncio.create_task(lab.node.remove("p", force=True))
    await asyncio.sleep(0)  # the removal has started
    assert lab.node.pods() == []
    fails.set()
    await asyncio.gather(removing, admitting)
    assert stub.claims(UNPREPARE) == [["c1"]]
    assert lab.node.dra_manager.cache.claims() == []
    await lab.clock.advance(2 * PREPARE_RETRY)
    assert len(stub.called(PREPARE)) == 1


async def test_claim_is_unprepared_after_failed_prepare(lab: Lab) -> None:
    stub = await lab.driver()
    stub.behaviours[PREPARE] = failing("x")
    lab.put(claim("c1"), claim("c2", ("r", OTHER, "g0"), pods=["q"]))
    await lab.node.admit(user("p", "c1"))
    await lab.node.admit(user("q", "c2"))
    await lab.node.remove("p")
    await lab.node.remove("q")
    assert stub.claims(UNPREPARE) == [["c1"]]
    assert lab.node.pods() == []


@scenario(220)
async def test_shared_claim_is_unprepared_with_its_last_pod(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("c1", pods=["p", "q"]))
    for name in ("p", "q"):
        await lab.node.admit(user(name, "c1"))
    assert stub.claims(PREPARE) == [["c1"]]
    await lab.node.remove("p")
    assert stub.claims(UNPREPARE) == []
    assert lab.node.claimed_devices("q", "c") == ("vendor.test/up=uid-c1-g0",)
    await lab.node.remove("q")
    assert stub.claims(UNPREPARE) == [["c1"]]


@scenario(202, 119)
async def test_claim_waits_until_old_claim_of_same_name_is_unprepared(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("fd"))
    await lab.node.admit(user("p", "fd"))
    stub.behaviours[UNPREPARE] = failing("x")
    await lab.node.remove("p", force=True)
    lab.put(claim("fd", uid="uid-new", pods=["q"]))
    await lab.node.admit(user("q", "fd"))
    assert await lab.failures(1) == [
        "Failed to prepare dynamic resources: prepare dynamic resources: old ResourceClaim with same name fd"
        " and different UID uid-fd still exists (previous pod force-deleted?!)"
    ]
    del stub.behaviours[UNPREPARE]
    await lab.advance_until(1, lambda: lab.node.status("q").phase == "Running")
    assert lab.node.claimed_devices("q", "c") == ("vendor.test/up=uid-new-g0",)


@scenario(159)
async def test_running_pod_keeps_claim_after_kubelet_restart(lab: Lab) -> None:
    stub = await lab.driver()
    lab.put(claim("c1"))
    await lab.node.admit(user("p", "c1"))
    await lab.node.restart()
    assert lab.node.claimed_devices("p", "c") == ("vendor.test/up=uid-c1-g0",), "they come from the file"
    status = await lab.node.exit_container("p", "c", code=1)
    assert (status.phase, status.container_statuses[0].restart_count) == ("Running", 1)
    await lab.until_registered(stub)
    assert stub.notified == [(True, "")] * 2
    await lab.node.sync("p")
    assert len(stub.called(PREPARE)) == 1


@pytest.mark.parametrize("kubernetes", ["1.36", "1.37"])
async def test_new_sandbox_prepares_claim_again_only_after_restart(lab: Lab, kubernetes: Version) -> None:
    stub = await lab.driver()
    lab.put(claim("c1"))
    await lab.node.admit(user("p", "c1"))
    status = await lab.node.lose_sandbox("p")
    assert (status.phase, status.container_statuses[0].restart_count) == ("Running", 1)
    assert len(stub.called(PREPARE)) == 1
    await lab.node.stop()
    await lab.node.lose_sandbox("p")
    await lab.node.start()
    assert state(lab, "p")[1] == "waiting"
    await lab.until_registered(stub)
    await prepared(lab, stub, user("p", "c1"))
    assert len(stub.called(PREPARE)) == 2
    times = 2 if kubernetes == "1.36" else 1
    assert lab.node.claimed_devices("p", "c") == ("vendor.test/up=uid-c1-g0",) * times


def shown(lab: Lab, name: str) -> list[tuple[str, str, str]]:
    """Entry, health and message of the first container's devices."""
    first = lab.node.status(name).container_statuses[0]
    return [
        (each.name, it.health, it.message or "") for each in first.allocated_resources_status for it in each.resources
    ]


def report(device: str, health: health_api.HealthStatus, message: str = "") -> health_api.DeviceHealth:
    identifier = health_api.DeviceIdentifier(pool_name=POOL, device_name=device)
    return health_api.DeviceHealth(device=identifier, health=health, message=message)


@scenario(188, 190, 191, 192, 249)
async def test_health_report_updates_status_of_affected_pods(lab: Lab) -> None:
    devices = {f"c{n}": [claimed(["r1"], POOL, f"g{n}", f"x.test/y=g{n}")] for n in range(3)}
    services = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
    stub = await lab.driver(prepare=by_claim(devices), services=services, versions=services)
    await stub.until(lambda: stub.streams == 1)
    names = [f"p{number}" for number in range(3)]
    lab.put(*(claim(f"c{number}", pods=[f"p{number}"]) for number in range(3)))
    await asyncio.gather(*(lab.node.admit(user(f"p{number}", f"c{number}")) for number in range(3)))
    assert [shown(lab, name)[0][1] for name in names] == ["Unknown"] * 3
    stub.report(*(report(f"g{number}", HEALTHY) for number in range(3)))
    await lab.node.until(lambda: [shown(lab, name)[0][1] for name in names] == ["Healthy"] * 3)
    stub.report(report("g1", UNHEALTHY, "x" * 2000))
    await lab.node.until(lambda: shown(lab, "p1") == [("claim:c1", "Unhealthy", "x" * 1021 + "...")])
    stub.report(report("g1", HEALTHY))
    await lab.node.until(lambda: shown(lab, "p1") == [("claim:c1", "Healthy", "")])
    assert shown(lab, "p0") == [("claim:c0", "Healthy", "")]
    stub.end_streams()
    await lab.advance_until(5, lambda: stub.streams_opened == 2)
    assert shown(lab, "p0") == [("claim:c0", "Healthy", "")], "the kubelet does not look at the pods then"
    await lab.node.sync("p0")
    assert shown(lab, "p0") == [("claim:c0", "Unknown", "")]
    stub.report(report("g0", HEALTHY))
    await lab.node.until(lambda: shown(lab, "p0") == [("claim:c0", "Healthy", "")])


@scenario(104, 149)
async def test_kubelet_does_not_start_with_corrupt_state_file(folder: Path) -> None:
    good = encode(None)
    for content, text in (
        (good[:-1] + b"1}", "checkpoint is corrupted"),
        (b"{", "unexpected end of JSON input"),
    ):
        (folder / "dra_manager_state").write_bytes(content)
        node = Node(folder)
        with pytest.raises(NodeError) as error:
            await node.start()
        assert str(error.value) == (
            "failed to run Kubelet: create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to get"
            f" checkpoint dra_manager_state: {text}"
        )
        assert not node.is_running
    (folder / "dra_manager_state").unlink()
    async with Node(folder):
        assert (folder / "dra_manager_state").read_bytes() == good


async def test_claim_of_rejected_pod_is_unprepared_by_reconciler(lab: Lab) -> None:
    """The pod's device is missing after a restart. Only the reconciliation every minute unprepares the claim."""
    stub = await lab.driver()
    lab.put(claim("c1"))
    socket = lab.node.device_plugins / "p.sock"
    async with DevicePluginStub(socket, "example.com/device", [Device("a")]) as plugin:
        await plugin.register(lab.node.kubelet_socket)
        await lab.node.until(lambda: lab.node.capacity().get("example.com/device") == 1)
        both = container("c", {"example.com/device": 1}, claims=["c1"])
        await lab.node.admit(pod("p", both, uid="p", claims={"c1": "c1"}))
        await lab.node.stop()
    await lab.node.exit_container("p", "c")
    await lab.node.start()
    assert lab.node.status("p").reason == "UnexpectedAdmissionError"
    assert stub.called(UNPREPARE) == []
    await lab.until_registered(stub)
    await lab.advance_until(10, lambda: stub.claims(UNPREPARE) == [["c1"]])


def test_empty_health_message_is_omitted() -> None:
    assert to_dict(ResourceHealth(resource_id="i", health="Healthy")) == {
        "resourceID": "i",
        "health": "Healthy",
    }


async def test_control_view_has_claimed_devices(lab: Lab) -> None:
    await lab.driver()
    lab.put(claim("c1"), claim("c2", pods=["q"], allocated=False))
    await lab.node.admit(user("p", "c1"))
    await lab.node.admit(user("q", "c2"))
    assert [each.claimed for each in view(lab.node).pods] == [{"c": ("vendor.test/up=uid-c1-g0",)}, {"c": ()}]


async def test_preemption_goes_on_when_a_pod_has_ended_meanwhile(folder: Path) -> None:
    """Two pods are ended for a critical one. While the first is being unprepared, the second ends by itself."""

    def using(name: str, cpu: int, **spec: Any) -> Pod:
        used = user(name, *(["c1"] if name == "p" else []))
        limits = {"cpu": Quantity.of(cpu)}
        (app,) = used.spec.containers
        app = msgspec.structs.replace(app, resources=msgspec.structs.replace(app.resources, requests=limits))
        return msgspec.structs.replace(used, spec=msgspec.structs.replace(used.spec, containers=(app,), **spec))

    async with Lab(folder, capacity={"cpu": 2}) as lab:
        stub = await lab.driver()
        lab.put(claim("c1"))
        await lab.node.admit(using("second", 1))
        await lab.node.admit(using("p", 1))
        gate = stub.behaviours[UNPREPARE] = Gate(
            api.NodeUnprepareResourcesResponse(claims={"uid-c1": api.NodeUnprepareResourceResponse()})
        )
        admitting = asyncio.create_task(lab.node.admit(using("critical", 2, priority=2_000_000_000)))
        await stub.until(lambda: stub.claims(UNPREPARE) == [["c1"]])
        ending = lab.node.status("p")
        assert (ending.phase, ending.reason, ending.unknown_fields) == ("Running", "", None)
        lab.node.finish("second")
        await lab.phase("second", "Succeeded")
        gate.open()
        async with asyncio.timeout(30):
            assert (await admitting).phase == "Running"
        ended, second = lab.node.status("p"), lab.node.status("second")
    message = "Preempted in order to admit critical pod"
    assert (ended.phase, ended.reason, ended.message) == ("Failed", "Preempting", message)
    assert (second.reason, second.unknown_fields) == ("", None), "it was not ended for the other"
