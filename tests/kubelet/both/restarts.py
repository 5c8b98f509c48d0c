"""A kubelet that has started and does not know its pods yet."""

from kubelet.pods import container, pod
from kubelet.stubs import Gate
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.kubelet.both.claims_fixture import ACTION_TIMEOUT, PREPARE, ClaimsFixture, Listed
from tests.kubelet.both.scenario import NO_HEALTHY, both, healthy
from tests.kubelet.both.world import ScenarioFixture


@both
async def kubelet_starts_without_api_server(fixture: ClaimsFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b"))
    driver = await fixture.driver()
    claim = await fixture.claim()
    using = container("c", {fixture.resource: 1}, claims=["a"])
    before = await fixture.run(fixture.user("", claim, containers=[using]))
    held, entries, stored = await fixture.held(fixture.name), fixture.entries(), fixture.stored()
    listed = {"c": [Listed(fixture.name, "g0", (fixture.cdi(claim, "g0"),))]}
    written = fixture.file.stat().st_mtime_ns
    async with fixture.world.without_api_server():
        assert await fixture.all_listed() == []
        assert fixture.file.stat().st_mtime_ns == written
        await plugin.start()
        await plugin.register(fixture.socket)
        await fixture.world.until(lambda: fixture.file.stat().st_mtime_ns != written)
        await driver.until(lambda: driver.notified == [(True, "")] * 2, ACTION_TIMEOUT)
        assert (fixture.entries(), fixture.stored()) == (entries, stored), "nothing is forgotten"
        assert await fixture.all_listed() == []
        await fixture.world.until_cgroup(before.uid, True)
    assert await fixture.held(fixture.name) == held
    assert await fixture.listed(fixture.name) == listed
    assert await fixture.world.injected(fixture.name, "c") == [fixture.cdi(claim, "g0")]
    after = await fixture.world.view(fixture.name)
    assert (after.uid, after.phase, after.containers["c"].restarts) == (before.uid, "Running", 0)
    assert (len(plugin.called("Allocate")), len(driver.called(PREPARE))) == (1, 1)
    await fixture.world.until_cgroup(before.uid, True)


@both
async def kubelet_restart_during_allocate(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b"))
    plugin.behaviours["Allocate"] = Gate(api.AllocateResponse())  # never opened
    asking = pod(fixture.name, container("c", {fixture.resource: 1}))
    await fixture.bind(asking)
    await plugin.until(lambda: len(plugin.called("Allocate")) == 1, ACTION_TIMEOUT)
    assert await fixture.held(fixture.name) == {"c": []}
    await fixture.bind(pod(f"{fixture.name}2", container("c")))

    written = fixture.file.stat().st_mtime_ns

    async def restart_plugin() -> None:
        del plugin.behaviours["Allocate"]
        await plugin.start()
        await plugin.register(fixture.socket)
        await fixture.world.until(lambda: fixture.file.stat().st_mtime_ns != written)

    await fixture.world.restart_kubelet(restart_plugin)
    for name in (fixture.name, f"{fixture.name}2"):
        await fixture.world.until_state(name, "c", "running")
    assert len(plugin.called("Allocate")) == 2, "it is admitted once more"
    ids = list(plugin.called("Allocate")[1].container_requests[0].devices_ids)
    assert await fixture.held(fixture.name) == {"c": ids}


@both
async def kubelet_restart_without_plugin(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    plugin.behaviours["Allocate"] = Gate(api.AllocateResponse())
    await fixture.bind(pod(fixture.name, container("c", {fixture.resource: 1})))
    await plugin.until(lambda: len(plugin.called("Allocate")) == 1, ACTION_TIMEOUT)
    await fixture.world.restart_kubelet(refused=fixture.name)
    view = await fixture.world.until_phase(fixture.name, "Failed")
    assert view.reason == "UnexpectedAdmissionError"
    assert NO_HEALTHY.format(fixture.resource) in view.message
    await fixture.world.until_cgroup(view.uid, False)


@both
async def pods_wait_during_allocate(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    answer = api.AllocateResponse(container_responses=[api.ContainerAllocateResponse()])
    gate = plugin.behaviours["Allocate"] = Gate(answer)
    await fixture.bind(pod(fixture.name, container("c", {fixture.resource: 1})))
    await plugin.until(lambda: len(plugin.called("Allocate")) == 1, ACTION_TIMEOUT)
    await fixture.bind(pod(f"{fixture.name}2", container("c")))
    plugin.update(healthy("a", "b"))
    await fixture.until_offered(2, 2)
    listed = await fixture.all_listed()
    assert fixture.name in listed
    assert f"{fixture.name}2" not in listed, "its turn has not come"
    gate.open()
    for name in (fixture.name, f"{fixture.name}2"):
        await fixture.world.until_state(name, "c", "running")
