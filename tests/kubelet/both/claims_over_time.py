"""Claims over time: pods end, unpreparing fails, the kubelet restarts."""

import asyncio

from kubelet.pods import container, pod
from kubelet.stubs import Gate, StubReply, failing
from kubeletapi.dra.v1 import api_pb2 as dra
from resourceapi.objects import v1
from tests.dra_scenarios import scenario
from tests.kubelet.both.claims_stage import PREPARE, SECONDS, UNPREPARE, ClaimsStage, Listed
from tests.kubelet.both.scenario import both, is_last


def unprepared(claim: v1.ResourceClaim) -> dra.NodeUnprepareResourcesResponse:
    return dra.NodeUnprepareResourcesResponse(claims={claim.metadata.uid: dra.NodeUnprepareResourceResponse()})


@both
@scenario(165, 168)
async def unprepare_is_retried(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    await stage.run(stage.user("", await stage.claim()))
    driver.behaviours[UNPREPARE] = failing("unprepare broke")
    removing = asyncio.create_task(stage.world.last_view(stage.name))
    await driver.until(lambda: bool(driver.called(UNPREPARE)), SECONDS)
    view = await stage.world.view(stage.name)
    assert (view.phase, view.reason, view.message) == ("Running", "", "")
    assert stage.name in stage.stored()
    del driver.behaviours[UNPREPARE]
    assert is_last(await removing)
    assert stage.stored() == {}
    assert set(map(tuple, driver.claims(UNPREPARE))) == {(stage.name,)}
    assert len(driver.called(UNPREPARE)) >= 2


@both
async def pod_deleted_during_prepare(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim()
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
    running = asyncio.create_task(stage.run(stage.user("", claim), "ContainerCreating"))
    await driver.until(lambda: bool(driver.called(PREPARE)), SECONDS)
    removing = asyncio.create_task(stage.world.remove(stage.name))
    await stage.world.until_ending(stage.name)
    gate.open()
    await removing
    assert finished == [PREPARE, UNPREPARE], "the driver is left to finish"
    assert stage.stored() == {}
    await asyncio.gather(running, return_exceptions=True)  # the pod can be deleted before this wait sees it


@both
async def completed_pod_is_unprepared(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim()
    await stage.run(stage.user("", claim, restart_policy="Never"))
    gate = driver.behaviours[UNPREPARE] = Gate(unprepared(claim))
    ending = asyncio.create_task(stage.world.end_container(stage.name, "c", "Succeeded"))
    await driver.until(lambda: bool(driver.called(UNPREPARE)), SECONDS)
    assert (await stage.world.view(stage.name)).phase == "Running"
    gate.open()
    await ending
    assert stage.stored() == {}


@both
@scenario(119, 202)
async def new_claim_with_name_of_old_one(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    old = await stage.claim()
    await stage.run(stage.user("x", old))
    gate = driver.behaviours[UNPREPARE] = Gate(unprepared(old))
    removing = asyncio.create_task(stage.world.remove(f"{stage.name}x", force=True))
    await driver.until(lambda: bool(driver.called(UNPREPARE)), SECONDS)
    await stage.world.remove_claim(stage.name)
    new = await stage.claim()
    assert new.metadata.uid != old.metadata.uid
    assert await stage.refused(stage.user("y", new)) == (
        f"old ResourceClaim with same name {stage.name} and different UID {old.metadata.uid} still exists"
        " (previous pod force-deleted?!)"
    )
    gate.open()
    await removing
    await stage.world.remove(f"{stage.name}y")
    assert driver.claims(PREPARE) == [[stage.name]]


@both
@scenario(159)
async def kubelet_restart_keeps_claim(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim()
    id_ = stage.cdi(claim, "g0")
    before = await stage.run(stage.user("", claim))
    stored = stage.stored()
    await stage.world.restart_kubelet()
    await driver.until(lambda: driver.notified == [(True, "")] * 2, SECONDS)
    assert await stage.listed(stage.name) == {"c": [Listed(stage.name, "g0", (id_,))]}
    view = await stage.world.end_container(stage.name, "c", "restarted")
    assert (view.uid, view.phase) == (before.uid, "Running")
    assert await stage.world.injected(stage.name, "c") == [id_]
    assert stage.stored() == stored
    assert len(driver.called(PREPARE)) == 1, "its sandbox lives"
    await stage.world.remove(stage.name)
    assert driver.claims(UNPREPARE) == [[stage.name]]


@both
async def second_pod_after_kubelet_restart(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim()
    id_ = stage.cdi(claim, "g0")
    await stage.run(stage.user("x", claim))
    await stage.world.restart_kubelet()
    await driver.until(lambda: driver.notified == [(True, "")] * 2, SECONDS)
    await stage.run(stage.user("y", claim))
    assert driver.claims(PREPARE) == [[stage.name]] * 2, "a restarted kubelet does not know that it is prepared"
    state = (stage.stored()[stage.name].driver_state or {})[stage.driver_name]
    times = 1 if stage.release.replaces_prepared_devices else 2
    assert [device.device_name for device in state.devices or ()] == ["g0"] * times
    listed = [Listed(stage.name, "g0", (id_,) * number) for number in range(1, times + 1)]
    assert await stage.listed(f"{stage.name}x") == await stage.listed(f"{stage.name}y") == {"c": listed}


@both
async def lost_sandbox(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim()
    await stage.run(stage.user("", claim))
    view = await stage.world.lose_sandbox(stage.name)
    assert (view.phase, view.containers["c"].restarts) == ("Running", 1)
    assert len(driver.called(PREPARE)) == 1
    await stage.world.restart_kubelet()
    await driver.until(lambda: driver.notified == [(True, "")] * 2, SECONDS)
    await stage.world.lose_sandbox(stage.name)
    assert len(driver.called(PREPARE)) == 2, "a kubelet that restarted does not know that it is prepared"
    assert await stage.world.injected(stage.name, "c") == [stage.cdi(claim, "g0")]


@both
async def second_pod_during_unprepare(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim()
    await stage.run(stage.user("x", claim))
    gate = driver.behaviours[UNPREPARE] = Gate(unprepared(claim))
    removing = asyncio.create_task(stage.world.remove(f"{stage.name}x"))
    await driver.until(lambda: bool(driver.called(UNPREPARE)), SECONDS)
    if stage.release.refuses_unpreparing_claims:
        text = await stage.refused(stage.user("y", claim))
        assert text == f"ResourceClaim {stage.name} is being unprepared"
    else:  # the pod runs with devices that are not prepared
        await stage.run(stage.user("y", claim))
    assert len(driver.called(PREPARE)) == 1
    gate.open()
    await removing
    assert stage.stored() == {}


@both
async def state_written_for_pod_without_claims(stage: ClaimsStage) -> None:
    path = stage.world.kubelet_folder / "dra_manager_state"

    def written() -> int:
        return path.stat().st_mtime_ns

    before = written()
    await stage.run(pod(stage.name, container("c"), restart_policy="Never"))
    started = written()
    assert started != before
    await stage.world.end_container(stage.name, "c", "Succeeded")
    assert written() != started
