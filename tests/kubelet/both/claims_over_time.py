"""Claims over time: pods end, unpreparing fails, the kubelet restarts."""

import asyncio

from kubelet.pods import container, pod
from kubelet.stubs import Gate, StubReply, failing
from kubeletapi.dra.v1 import api_pb2 as dra
from resourceapi.objects import v1
from tests.dra_scenarios import scenario
from tests.kubelet.both.claims_fixture import ACTION_TIMEOUT, PREPARE, UNPREPARE, ClaimsFixture, Listed
from tests.kubelet.both.scenario import both, is_last


def unprepared(claim: v1.ResourceClaim) -> dra.NodeUnprepareResourcesResponse:
    return dra.NodeUnprepareResourcesResponse(claims={claim.metadata.uid: dra.NodeUnprepareResourceResponse()})


@both
@scenario(165, 168)
async def unprepare_is_retried(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    await fixture.run(fixture.user("", await fixture.claim()))
    driver.behaviours[UNPREPARE] = failing("unprepare broke")
    removing = asyncio.create_task(fixture.world.last_view(fixture.name))
    await driver.until(lambda: bool(driver.called(UNPREPARE)), ACTION_TIMEOUT)
    view = await fixture.world.view(fixture.name)
    assert (view.phase, view.reason, view.message) == ("Running", "", "")
    assert fixture.name in fixture.stored()
    del driver.behaviours[UNPREPARE]
    assert is_last(await removing)
    assert fixture.stored() == {}
    assert set(map(tuple, driver.claims(UNPREPARE))) == {(fixture.name,)}
    assert len(driver.called(UNPREPARE)) >= 2


@both
async def pod_deleted_during_prepare(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim()
    finished = []
    gate = Gate(dra.NodePrepareResourcesResponse(claims={claim.metadata.uid: dra.NodePrepareResourceResponse()}))

    async def prepare(request: dra.NodePrepareResourcesRequest) -> StubReply:
        response = await gate(request)
        finished.append(PREPARE)
        return response

    async def unprepare(_: dra.NodeUnprepareResourcesRequest) -> StubReply:
        finished.append(UNPREPARE)
        return unprepared(claim)

    driver.behaviours |= {PREPARE: prepare, UNPREPARE: unprepare}
    running = asyncio.create_task(fixture.run(fixture.user("", claim), "ContainerCreating"))
    await driver.until(lambda: bool(driver.called(PREPARE)), ACTION_TIMEOUT)
    removing = asyncio.create_task(fixture.world.remove(fixture.name))
    await fixture.world.until_ending(fixture.name)
    gate.open()
    await removing
    assert finished == [PREPARE, UNPREPARE], "the driver is left to finish"
    assert fixture.stored() == {}
    await asyncio.gather(running, return_exceptions=True)  # the pod can be deleted before this wait sees it


@both
async def completed_pod_is_unprepared(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim()
    await fixture.run(fixture.user("", claim, restart_policy="Never"))
    gate = driver.behaviours[UNPREPARE] = Gate(unprepared(claim))
    ending = asyncio.create_task(fixture.world.end_container(fixture.name, "c", "Succeeded"))
    await driver.until(lambda: bool(driver.called(UNPREPARE)), ACTION_TIMEOUT)
    assert (await fixture.world.view(fixture.name)).phase == "Running"
    gate.open()
    await ending
    assert fixture.stored() == {}


@both
@scenario(119, 202)
async def new_claim_with_name_of_old_one(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    old = await fixture.claim()
    await fixture.run(fixture.user("x", old))
    gate = driver.behaviours[UNPREPARE] = Gate(unprepared(old))
    removing = asyncio.create_task(fixture.world.remove(f"{fixture.name}x", force=True))
    await driver.until(lambda: bool(driver.called(UNPREPARE)), ACTION_TIMEOUT)
    await fixture.world.remove_claim(fixture.name)
    new = await fixture.claim()
    assert new.metadata.uid != old.metadata.uid
    assert await fixture.refused(fixture.user("y", new)) == (
        f"old ResourceClaim with same name {fixture.name} and different UID {old.metadata.uid} still exists"
        " (previous pod force-deleted?!)"
    )
    gate.open()
    await removing
    await fixture.world.remove(f"{fixture.name}y")
    assert driver.claims(PREPARE) == [[fixture.name]]


@both
@scenario(159)
async def kubelet_restart_keeps_claim(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim()
    id_ = fixture.cdi(claim, "g0")
    before = await fixture.run(fixture.user("", claim))
    stored = fixture.stored()
    await fixture.world.restart_kubelet()
    await driver.until(lambda: driver.notified == [(True, "")] * 2, ACTION_TIMEOUT)
    assert await fixture.listed(fixture.name) == {"c": [Listed(fixture.name, "g0", (id_,))]}
    view = await fixture.world.end_container(fixture.name, "c", "restarted")
    assert (view.uid, view.phase) == (before.uid, "Running")
    assert await fixture.world.injected(fixture.name, "c") == [id_]
    assert fixture.stored() == stored
    assert len(driver.called(PREPARE)) == 1, "its sandbox lives"
    await fixture.world.remove(fixture.name)
    assert driver.claims(UNPREPARE) == [[fixture.name]]


@both
async def second_pod_after_kubelet_restart(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim()
    id_ = fixture.cdi(claim, "g0")
    await fixture.run(fixture.user("x", claim))
    await fixture.world.restart_kubelet()
    await driver.until(lambda: driver.notified == [(True, "")] * 2, ACTION_TIMEOUT)
    await fixture.run(fixture.user("y", claim))
    assert driver.claims(PREPARE) == [[fixture.name]] * 2, "a restarted kubelet does not know that it is prepared"
    state = (fixture.stored()[fixture.name].driver_state or {})[fixture.driver_name]
    times = 1 if fixture.release.replaces_prepared_devices else 2
    assert [device.device_name for device in state.devices or ()] == ["g0"] * times
    listed = [Listed(fixture.name, "g0", (id_,) * number) for number in range(1, times + 1)]
    assert await fixture.listed(f"{fixture.name}x") == await fixture.listed(f"{fixture.name}y") == {"c": listed}


@both
async def lost_sandbox(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim()
    await fixture.run(fixture.user("", claim))
    view = await fixture.world.lose_sandbox(fixture.name)
    assert (view.phase, view.containers["c"].restarts) == ("Running", 1)
    assert len(driver.called(PREPARE)) == 1
    await fixture.world.restart_kubelet()
    await driver.until(lambda: driver.notified == [(True, "")] * 2, ACTION_TIMEOUT)
    await fixture.world.lose_sandbox(fixture.name)
    assert len(driver.called(PREPARE)) == 2, "a kubelet that restarted does not know that it is prepared"
    assert await fixture.world.injected(fixture.name, "c") == [fixture.cdi(claim, "g0")]


@both
async def second_pod_during_unprepare(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim()
    await fixture.run(fixture.user("x", claim))
    gate = driver.behaviours[UNPREPARE] = Gate(unprepared(claim))
    removing = asyncio.create_task(fixture.world.remove(f"{fixture.name}x"))
    await driver.until(lambda: bool(driver.called(UNPREPARE)), ACTION_TIMEOUT)
    if fixture.release.refuses_unpreparing_claims:
        text = await fixture.refused(fixture.user("y", claim))
        assert text == f"ResourceClaim {fixture.name} is being unprepared"
    else:  # the pod runs with devices that are not prepared
        await fixture.run(fixture.user("y", claim))
    assert len(driver.called(PREPARE)) == 1
    gate.open()
    await removing
    assert fixture.stored() == {}


@both
async def state_written_for_pod_without_claims(fixture: ClaimsFixture) -> None:
    path = fixture.world.kubelet_folder / "dra_manager_state"

    def written() -> int:
        return path.stat().st_mtime_ns

    before = written()
    await fixture.run(pod(fixture.name, container("c"), restart_policy="Never"))
    started = written()
    assert started != before
    await fixture.world.end_container(fixture.name, "c", "Succeeded")
    assert written() != started
