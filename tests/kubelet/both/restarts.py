"""A kubelet that has started and does not know its pods yet."""

from kubelet.pods import container, pod
from kubelet.stubs import Gate
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.kubelet.both.claims_stage import PREPARE, SECONDS, ClaimsStage, Listed
from tests.kubelet.both.scenario import NO_HEALTHY, both, healthy
from tests.kubelet.both.world import Stage


@both
async def kubelet_starts_without_api_server(stage: ClaimsStage) -> None:
    plugin = await stage.offering(healthy("a", "b"))
    driver = await stage.driver()
    claim = await stage.claim()
    using = container("c", {stage.resource: 1}, claims=["a"])
    before = await stage.run(stage.user("", claim, containers=[using]))
    held, entries, stored = await stage.held(stage.name), stage.entries(), stage.stored()
    listed = {"c": [Listed(stage.name, "g0", (stage.cdi(claim, "g0"),))]}
    written = stage.file.stat().st_mtime_ns
    async with stage.world.without_api_server():
        assert await stage.all_listed() == []
        assert stage.file.stat().st_mtime_ns == written
        await plugin.start()
        await plugin.register(stage.socket)
        await stage.world.until(lambda: stage.file.stat().st_mtime_ns != written)
        await driver.until(lambda: driver.notified == [(True, "")] * 2, SECONDS)
        assert (stage.entries(), stage.stored()) == (entries, stored), "nothing is forgotten"
        assert await stage.all_listed() == []
        await stage.world.until_cgroup(before.uid, True)
    assert await stage.held(stage.name) == held
    assert await stage.listed(stage.name) == listed
    assert await stage.world.injected(stage.name, "c") == [stage.cdi(claim, "g0")]
    after = await stage.world.view(stage.name)
    assert (after.uid, after.phase, after.containers["c"].restarts) == (before.uid, "Running", 0)
    assert (len(plugin.called("Allocate")), len(driver.called(PREPARE))) == (1, 1)
    await stage.world.until_cgroup(before.uid, True)


@both
async def kubelet_restart_during_allocate(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b"))
    plugin.behaviours["Allocate"] = Gate(api.AllocateResponse())  # never opened
    asking = pod(stage.name, container("c", {stage.resource: 1}))
    await stage.bind(asking)
    await plugin.until(lambda: len(plugin.called("Allocate")) == 1, SECONDS)
    assert await stage.held(stage.name) == {"c": []}
    await stage.bind(pod(f"{stage.name}2", container("c")))

    written = stage.file.stat().st_mtime_ns

    async def comes_back() -> None:
        del plugin.behaviours["Allocate"]
        await plugin.start()
        await plugin.register(stage.socket)
        await stage.world.until(lambda: stage.file.stat().st_mtime_ns != written)

    await stage.world.restart_kubelet(comes_back)
    for name in (stage.name, f"{stage.name}2"):
        await stage.world.until_state(name, "c", "running")
    assert len(plugin.called("Allocate")) == 2, "it is admitted once more"
    ids = list(plugin.called("Allocate")[1].container_requests[0].devices_ids)
    assert await stage.held(stage.name) == {"c": ids}


@both
async def kubelet_restart_without_plugin(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    plugin.behaviours["Allocate"] = Gate(api.AllocateResponse())
    await stage.bind(pod(stage.name, container("c", {stage.resource: 1})))
    await plugin.until(lambda: len(plugin.called("Allocate")) == 1, SECONDS)
    await stage.world.restart_kubelet(refused=stage.name)
    view = await stage.world.until_phase(stage.name, "Failed")
    assert view.reason == "UnexpectedAdmissionError"
    assert NO_HEALTHY.format(stage.resource) in view.message
    await stage.world.until_cgroup(view.uid, False)


@both
async def pods_wait_during_allocate(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    answer = api.AllocateResponse(container_responses=[api.ContainerAllocateResponse()])
    gate = plugin.behaviours["Allocate"] = Gate(answer)
    await stage.bind(pod(stage.name, container("c", {stage.resource: 1})))
    await plugin.until(lambda: len(plugin.called("Allocate")) == 1, SECONDS)
    await stage.bind(pod(f"{stage.name}2", container("c")))
    plugin.update(healthy("a", "b"))
    await stage.until_offered(2, 2)
    listed = await stage.all_listed()
    assert stage.name in listed
    assert f"{stage.name}2" not in listed, "its turn has not come"
    gate.open()
    for name in (stage.name, f"{stage.name}2"):
        await stage.world.until_state(name, "c", "running")
