"""Containers over time, and the kubelet."""

import os
import socket
import stat

from kubelet.pods import container, pod
from kubelet.stubs import failing
from tests.kubelet.both.scenario import NO_HEALTHY, both, both_with, healthy, is_last, unhealthy
from tests.kubelet.both.world import ScenarioFixture


@both
async def pre_start_before_every_start(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b"), pre_start_required=True)
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 2})))
    assert [sorted(call.devices_ids) for call in plugin.called("PreStartContainer")] == [["a", "b"]]
    await fixture.world.end_container(fixture.name, "c", "restarted")
    assert [sorted(call.devices_ids) for call in plugin.called("PreStartContainer")] == [["a", "b"]] * 2
    assert len(plugin.called("Allocate")) == 1


@both
async def pre_start_fails(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"), pre_start_required=True)
    plugin.behaviours["PreStartContainer"] = failing("not ready")
    view = await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})), "CreateContainerConfigError")
    assert view.phase == "Pending"
    assert view.containers["c"].message == (
        "device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = not ready"
    )


@both
async def failed_pre_start_keeps_other_container(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"), pre_start_required=True)
    plugin.behaviours["PreStartContainer"] = failing("not ready")
    waiting = pod(fixture.name, container("c", {fixture.resource: 1}), container("d"))
    await fixture.run(waiting, "CreateContainerConfigError")
    await fixture.world.until_state(fixture.name, "d", "running")
    assert (await fixture.world.view(fixture.name)).phase == "Pending"


@both
async def succeeded_pod_frees_device(fixture: ScenarioFixture) -> None:
    await fixture.offering(healthy("a"))
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1}), restart_policy="Never"))
    await fixture.world.end_container(fixture.name, "c", "Succeeded")
    assert await fixture.held(fixture.name) is None
    await fixture.run(pod(f"{fixture.name}2", container("c", {fixture.resource: 1})))
    assert await fixture.held(f"{fixture.name}2") == {"c": ["a"]}


@both_with("ResourceHealthStatus")
async def device_unhealthy_while_pod_runs(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    await fixture.world.until_device_health(fixture.name, "Healthy")
    plugin.update(unhealthy("a"))
    await fixture.world.until_device_health(fixture.name, "Unhealthy")
    await fixture.until_offered(1, 0)
    view = await fixture.world.end_container(fixture.name, "c", "restarted")
    assert view.phase == "Running"
    assert await fixture.held(fixture.name) == {"c": ["a"]}
    assert len(plugin.called("Allocate")) == 1
    plugin.update(healthy("a"))
    await fixture.world.until_device_health(fixture.name, "Healthy")


@both
async def removed_pod_frees_device(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    await fixture.world.remove(fixture.name)
    assert len(fixture.entries()) == 1, "the file is not written for a removal"
    assert await fixture.held(fixture.name) is None
    await fixture.run(pod(f"{fixture.name}2", container("c", {fixture.resource: 1})))
    assert [entry.device_ids for entry in fixture.entries()] == [["a"]]
    assert len(plugin.called("Allocate")) == 2


@both
async def last_phase_of_deleted_pod(fixture: ScenarioFixture) -> None:
    await fixture.run(pod(fixture.name, container("c")))
    assert is_last(await fixture.world.last_view(fixture.name))


@both
async def last_phase_of_unstarted_pod(fixture: ScenarioFixture) -> None:
    await fixture.run(pod(fixture.name, container("c"), init=(container("i", stays=True),)), "PodInitializing")
    await fixture.world.until_state(fixture.name, "i", "running")
    view = await fixture.world.last_view(fixture.name)
    assert (view.phase, view.containers["c"].state) == ("Failed", "waiting")


@both
async def checkpoint_entries_of_removed_pods(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b"))
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    await fixture.run(pod(f"{fixture.name}2", container("c", {fixture.resource: 1}), restart_policy="Never"))
    await fixture.world.end_container(f"{fixture.name}2", "c", "Succeeded")
    await fixture.world.remove(fixture.name)
    plugin.update(healthy("a", "b", "c"))
    await fixture.until_written(["a", "b", "c"])
    assert len(fixture.entries()) == 2, "written again, before the recount that drops removed pods"
    assert await fixture.held(fixture.name) is await fixture.held(f"{fixture.name}2") is None
    assert len(fixture.entries()) == 2, "a recount is no reason to write"
    plugin.update(healthy("a", "b"))
    await fixture.until_written(["a", "b"])
    assert fixture.entries() == []


@both
async def running_init_container(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b", "c"))
    r = fixture.resource
    waiting = pod(
        fixture.name,
        container("c", {r: 1}),
        init=(container("i", {r: 2}, stays=True), container("side", {r: 1}, sidecar=True)),
    )
    view = await fixture.run(waiting, "PodInitializing")
    await fixture.world.until_state(fixture.name, "i", "running")
    assert view.phase == "Pending"
    held = await fixture.held(fixture.name)
    assert held is not None
    assert {name: len(ids) for name, ids in held.items()} == {"side": 1, "c": 1}, "it is not listed"
    entries = {entry.container: set(entry.device_ids) for entry in fixture.entries()}
    assert {name: set(ids) for name, ids in held.items()} == {name: entries[name] for name in held}
    assert entries["i"] == entries["side"] | entries["c"], "its devices are passed on"
    view = await fixture.world.end_container(fixture.name, "i", "Running")
    assert view.containers["i"].state == "terminated"
    assert await fixture.held(fixture.name) == held
    assert len(plugin.called("Allocate")) == 3


@both
async def pod_cgroups(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    one = await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1}), restart_policy="Never"))
    await fixture.world.until_cgroup(one.uid, True)
    await fixture.world.restart_kubelet()
    await fixture.world.until_cgroup(one.uid, True)
    await fixture.world.end_container(fixture.name, "c", "Succeeded")
    await fixture.world.until_cgroup(one.uid, False)
    two = await fixture.run(pod(f"{fixture.name}2", container("c")))
    await fixture.world.until_cgroup(two.uid, True)
    await fixture.world.remove(f"{fixture.name}2")
    await fixture.world.until_cgroup(two.uid, False)
    await plugin.start()
    await plugin.register(fixture.socket)
    await fixture.until_offered(1, 1)
    three = await fixture.run(pod(f"{fixture.name}3", container("c", {fixture.resource: 2})), "Failed")
    await fixture.world.until_cgroup(three.uid, False)


@both
async def kubelet_restart_keeps_device(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b"))
    before = await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    held = await fixture.held(fixture.name)
    entries = fixture.entries()
    await fixture.world.restart_kubelet()
    await fixture.until_offered(0, 0)
    after = await fixture.world.view(fixture.name)
    assert (after.uid, after.phase, after.containers["c"].restarts) == (before.uid, "Running", 0)
    assert await fixture.held(fixture.name) == held
    assert fixture.entries() == entries
    text = await fixture.rejection(pod(f"{fixture.name}2", container("c", {fixture.resource: 1})))
    assert text == NO_HEALTHY.format(fixture.resource)
    await plugin.start()
    await plugin.register(fixture.socket)
    await fixture.until_offered(2, 2)
    assert await fixture.held(fixture.name) == held
    await fixture.run(pod(f"{fixture.name}3", container("c", {fixture.resource: 1})))
    held3 = await fixture.held(f"{fixture.name}3")
    assert sorted([*(held or {})["c"], *(held3 or {})["c"]]) == ["a", "b"]


@both
async def container_restart_after_kubelet_restart(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"), pre_start_required=True)
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    await fixture.world.restart_kubelet()
    await fixture.until_offered(0, 0)
    view = await fixture.world.end_container(fixture.name, "c", "restarted")
    assert view.phase == "Running"
    assert await fixture.held(fixture.name) == {"c": ["a"]}
    assert [len(plugin.called(method)) for method in ("Allocate", "PreStartContainer")] == [1, 1]


@both
async def kubelet_restart_after_init_container(fixture: ScenarioFixture) -> None:
    await fixture.offering(healthy("a"))
    r = fixture.resource
    await fixture.run(pod(fixture.name, container("c", {r: 1}), init=(container("i", {r: 1}),)))
    await fixture.world.restart_kubelet()
    # the ended init container is admitted again without a healthy device, so the kubelet ends the whole pod
    await fixture.world.until_ended(fixture.name)


@both
async def restart_removes_sockets(fixture: ScenarioFixture) -> None:
    name, folder = fixture.name, fixture.folder
    plugin = await fixture.offering(healthy("a"))
    (folder / f"{name}-file").write_text("kept")
    (folder / f"{name}-folder").mkdir()
    os.mkfifo(folder / f"{name}-fifo")
    for path in (folder / f"{name}.sock", folder / f"{name}-folder" / "x.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    (folder / f"{name}-link").symlink_to(f"{name}-folder/x.sock")
    try:
        await fixture.world.restart_kubelet()
        await fixture.until_offered(0, 0)
        left_over = sorted(path.name for path in folder.iterdir() if path.name.startswith(name))
        assert not plugin.socket.exists()
        assert left_over == [f"{name}-fifo", f"{name}-file", f"{name}-folder"]
        assert (folder / f"{name}-folder" / "x.sock").exists()
    finally:
        for path in (folder / f"{name}-folder" / "x.sock", folder / f"{name}-file", folder / f"{name}-fifo"):
            path.unlink(missing_ok=True)
        (folder / f"{name}-folder").rmdir()


@both
async def file_modes(fixture: ScenarioFixture) -> None:
    await fixture.offering(healthy("a"))
    await fixture.run(
        pod(fixture.name, container("c", {fixture.resource: 1}))
    )  # the file is written before the pod runs
    modes = {
        path: stat.S_IMODE((fixture.world.kubelet_folder / path).stat().st_mode)
        for path in (
            "device-plugins",
            "plugins",
            "plugins_registry",
            "pod-resources",
            "device-plugins/kubelet_internal_checkpoint",
        )
    }
    assert modes == {
        "device-plugins": 0o755,
        "plugins": 0o750,
        "plugins_registry": 0o750,
        "pod-resources": 0o750,
        "device-plugins/kubelet_internal_checkpoint": 0o600,
    }
