"""Drivers over time: registered, refused, restarted, replaced; and the slices of drivers that ended."""

import asyncio

import pytest

from kubelet.stubs import DRAPluginStub, Gate, failing
from kubeletapi.dra.v1 import api_pb2 as api
from tests.dra_scenarios import scenario
from tests.kubelet.dramanager.kit import DRIVER, PREPARE, Lab, claim, prepared, preparing, state, user

UNPREPARE = "NodeUnprepareResources"
OTHER = "other.example.com"


@scenario(160, 174)
async def test_restarted_driver_is_registered_again(lab: Lab) -> None:
    stub = await lab.driver()
    await stub.stop()
    await lab.until_disconnected(DRIVER)
    await lab.until_deregistered(DRIVER)
    await stub.start()
    await lab.until_registered(stub)
    assert stub.notified == [(True, "")] * 2
    lab.put(claim("c1"))
    assert (await lab.node.admit(user("p", "c1"))).phase == "Running"


@scenario(161)
async def test_failed_get_info_is_retried(lab: Lab) -> None:
    stub = DRAPluginStub(lab.node.plugins_registry, DRIVER)
    stub.behaviours["GetInfo"] = failing("not yet")
    async with stub:
        await lab.advance_until(1, lambda: len(stub.called("GetInfo")) == 2)
        assert stub.notified == []
        del stub.behaviours["GetInfo"]
        await lab.advance_until(1, lambda: lab.node.dra_manager.plugins.is_usable(DRIVER))


@scenario(157)
async def test_refused_driver_is_notified_with_the_reason(lab: Lab) -> None:
    stub = DRAPluginStub(lab.node.plugins_registry, DRIVER, versions=["v1alpha3"])
    async with stub:
        await lab.advance_until(1, lambda: len(stub.notified) == 1)
    assert stub.notified == [
        (
            False,
            "RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC versions of DRA driver"
            f" plugin {DRIVER} at endpoint {stub.socket}: none of services supported by the plugin"
            ' (["v1alpha3"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        )
    ]


async def test_second_socket_with_a_registered_endpoint_is_refused(lab: Lab) -> None:
    service = lab.node.directory / "dra.sock"
    first = await lab.driver(socket=service)
    registry, versions = lab.node.plugins_registry, ["v1.DRAPlugin"]
    second = DRAPluginStub(registry, DRIVER, name="second.sock", services=(), versions=versions)
    second.info.endpoint = str(service)
    async with second:
        await lab.advance_until(1, lambda: len(second.notified) == 1)
        text = f"endpoint {service} already registered for DRA driver plugin {DRIVER}"
        assert second.notified == [(False, f"RegisterPlugin error -- plugin registration failed with err: {text}")]
    await lab.clock.advance(5)
    lab.put(claim("c1"))
    assert (await lab.node.admit(user("p", "c1"))).phase == "Running"
    assert first.claims(PREPARE) == [["c1"]]


@scenario(172, 173)
@pytest.mark.parametrize("has_own_socket", [False, True])
async def test_driver_with_one_or_two_sockets_prepares_claims(lab: Lab, has_own_socket: bool) -> None:
    stub = await lab.driver(socket=lab.node.directory / "dra.sock" if has_own_socket else None)
    lab.put(claim("c1"))
    assert (await lab.node.admit(user("p", "c1"))).phase == "Running"
    assert stub.claims(PREPARE) == [["c1"]]


@scenario(214, 216)
async def test_rolling_update_moves_calls_between_instances(lab: Lab) -> None:
    old = await lab.driver(name="old.sock")
    lab.put(*(claim(f"c{number}", pods=[f"p{number}"]) for number in range(3)))
    await lab.node.admit(user("p0", "c0"))
    new = await lab.driver(name="new.sock")
    await lab.node.admit(user("p1", "c1"))
    await lab.node.remove("p0")
    await new.stop()
    await lab.advance_until(1, lambda: len(lab.node.dra_manager.plugins.instances(DRIVER)) == 1)
    await lab.node.admit(user("p2", "c2"))
    await lab.node.remove("p1")
    assert (old.claims(PREPARE), old.claims(UNPREPARE)) == ([["c0"], ["c2"]], [["c1"]])
    assert (new.claims(PREPARE), new.claims(UNPREPARE)) == ([["c1"]], [["c0"]])
    assert lab.cluster.deleted_slices == [("realnode", None)]


@scenario(177, 179, 180)
async def test_claim_of_two_drivers_is_retried_with_each_of_them(lab: Lab) -> None:
    one, two = await lab.driver(), await lab.driver(OTHER, preparing("h0", kind="vendor.test/other"))
    lab.put(claim("c1", ("a", DRIVER, "g0"), ("b", OTHER, "h0")))
    two.behaviours[PREPARE] = failing("x")
    await lab.node.admit(user("p", "c1"))
    assert state(lab, "p")[0] == "Pending"
    del two.behaviours[PREPARE]
    await prepared(lab, two, user("p", "c1"))
    assert set(lab.node.claimed_devices("p", "c")) == {"vendor.test/up=uid-c1-g0", "vendor.test/other=uid-c1-h0"}
    two.behaviours[UNPREPARE] = failing("x")
    await lab.node.remove("p")
    assert [each.metadata.name for each, _ in lab.node.pods()] == ["p"]
    del two.behaviours[UNPREPARE]
    await lab.advance_until(1, lambda: lab.node.pods() == [])
    assert one.claims(UNPREPARE) == two.claims(UNPREPARE) == [["c1"]] * 2


@scenario(181, 182)
async def test_kubelet_restart_during_calls_to_two_drivers_retries_them(lab: Lab) -> None:
    one, two = await lab.driver(), await lab.driver(OTHER, preparing("h0", kind="vendor.test/other"))
    lab.put(claim("c1", ("a", DRIVER, "g0"), ("b", OTHER, "h0")))
    two.behaviours[PREPARE] = Gate(api.NodePrepareResourcesResponse())  # never opened
    admitting = asyncio.create_task(lab.node.admit(user("p", "c1")))
    await two.until(lambda: len(two.called(PREPARE)) == 1)
    await lab.node.stop()
    assert (await admitting).phase == "Pending"
    del two.behaviours[PREPARE]
    await lab.node.start()
    for stub in (one, two):
        await lab.until_registered(stub)
    await lab.advance_until(10, lambda: lab.node.status("p").phase == "Running")
    two.behaviours[UNPREPARE] = Gate(api.NodeUnprepareResourcesResponse())  # never opened
    removing = asyncio.create_task(lab.node.remove("p"))
    await two.until(lambda: len(two.called(UNPREPARE)) == 1)
    await lab.node.stop()
    await removing
    del two.behaviours[UNPREPARE]
    await lab.node.start()
    for stub in (one, two):
        await lab.until_registered(stub)
    await lab.advance_until(1, lambda: lab.node.pods() == [])


@scenario(183, 184, 185, 186, 187, 217)
async def test_slices_are_deleted_at_start_and_after_driver_is_lost(lab: Lab) -> None:
    stub = await lab.driver(socket=lab.node.directory / "dra.sock")
    deleted = lab.cluster.deleted_slices
    assert deleted == [("realnode", None)]
    await stub.stop()
    await lab.until_deregistered(DRIVER)
    await lab.clock.advance(10)
    await stub.start()
    await lab.until_registered(stub)
    await lab.clock.advance(60)
    assert deleted == [("realnode", None)], "it was back in time"
    await stub.stop_service()
    await lab.node.until(lambda: not lab.node.dra_manager.plugins.is_usable(DRIVER))
    await lab.advance_until(5, lambda: len(deleted) == 2)
    assert deleted[1] == ("realnode", DRIVER), "a process that died leaves its registration socket"
    await lab.node.restart()
    await lab.advance_until(0, lambda: len(deleted) == 3)
    assert deleted[2] == ("realnode", None)
