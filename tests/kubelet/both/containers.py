"""Containers over time, and the kubelet."""

import os
import socket
import stat

from kubelet.pods import container, pod
from kubelet.stubs import failing
from tests.kubelet.both.scenario import NO_HEALTHY, both, both_with, healthy, is_last, unhealthy
from tests.kubelet.both.world import Stage


@both
async def pre_start_before_every_start(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b"), pre_start_required=True)
    await stage.run(pod(stage.name, container("c", {stage.resource: 2})))
    assert [sorted(call.devices_ids) for call in plugin.called("PreStartContainer")] == [["a", "b"]]
    await stage.world.end_container(stage.name, "c", "restarted")
    assert [sorted(call.devices_ids) for call in plugin.called("PreStartContainer")] == [["a", "b"]] * 2
    assert len(plugin.called("Allocate")) == 1


@both
async def pre_start_fails(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"), pre_start_required=True)
    plugin.behaviours["PreStartContainer"] = failing("not ready")
    view = await stage.run(pod(stage.name, container("c", {stage.resource: 1})), "CreateContainerConfigError")
    assert view.phase == "Pending"
    assert view.containers["c"].message == (
        "device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = not ready"
    )


@both
async def failed_pre_start_keeps_other_container(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"), pre_start_required=True)
    plugin.behaviours["PreStartContainer"] = failing("not ready")
    waiting = pod(stage.name, container("c", {stage.resource: 1}), container("d"))
    await stage.run(waiting, "CreateContainerConfigError")
    await stage.world.until_state(stage.name, "d", "running")
    assert (await stage.world.view(stage.name)).phase == "Pending"


@both
async def succeeded_pod_frees_device(stage: Stage) -> None:
    await stage.offering(healthy("a"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 1}), restart_policy="Never"))
    await stage.world.end_container(stage.name, "c", "Succeeded")
    assert await stage.held(stage.name) is None
    await stage.run(pod(f"{stage.name}2", container("c", {stage.resource: 1})))
    assert await stage.held(f"{stage.name}2") == {"c": ["a"]}


@both_with("ResourceHealthStatus")
async def device_unhealthy_while_pod_runs(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    await stage.world.until_device_health(stage.name, "Healthy")
    plugin.update(unhealthy("a"))
    await stage.world.until_device_health(stage.name, "Unhealthy")
    await stage.until_offered(1, 0)
    view = await stage.world.end_container(stage.name, "c", "restarted")
    assert view.phase == "Running"
    assert await stage.held(stage.name) == {"c": ["a"]}
    assert len(plugin.called("Allocate")) == 1
    plugin.update(healthy("a"))
    await stage.world.until_device_health(stage.name, "Healthy")


@both
async def removed_pod_frees_device(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    await stage.world.remove(stage.name)
    assert len(stage.entries()) == 1, "the file is not written for a removal"
    assert await stage.held(stage.name) is None
    await stage.run(pod(f"{stage.name}2", container("c", {stage.resource: 1})))
    assert [entry.device_ids for entry in stage.entries()] == [["a"]]
    assert len(plugin.called("Allocate")) == 2


@both
async def last_phase_of_deleted_pod(stage: Stage) -> None:
    await stage.run(pod(stage.name, container("c")))
    assert is_last(await stage.world.last_view(stage.name))


@both
async def last_phase_of_unstarted_pod(stage: Stage) -> None:
    await stage.run(pod(stage.name, container("c"), init=(container("i", stays=True),)), "PodInitializing")
    await stage.world.until_state(stage.name, "i", "running")
    view = await stage.world.last_view(stage.name)
    assert (view.phase, view.containers["c"].state) == ("Failed", "waiting")


@both
async def checkpoint_entries_of_removed_pods(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    await stage.run(pod(f"{stage.name}2", container("c", {stage.resource: 1}), restart_policy="Never"))
    await stage.world.end_container(f"{stage.name}2", "c", "Succeeded")
    await stage.world.remove(stage.name)
    plugin.update(healthy("a", "b", "c"))
    await stage.until_written(["a", "b", "c"])
    assert len(stage.entries()) == 2, "written again, before the recount that drops removed pods"
    assert await stage.held(stage.name) is await stage.held(f"{stage.name}2") is None
    assert len(stage.entries()) == 2, "a recount is no reason to write"
    plugin.update(healthy("a", "b"))
    await stage.until_written(["a", "b"])
    assert stage.entries() == []


@both
async def running_init_container(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b", "c"))
    r = stage.resource
    waiting = pod(
        stage.name,
        container("c", {r: 1}),
        init=(container("i", {r: 2}, stays=True), container("side", {r: 1}, sidecar=True)),
    )
    view = await stage.run(waiting, "PodInitializing")
    await stage.world.until_state(stage.name, "i", "running")
    assert view.phase == "Pending"
    held = await stage.held(stage.name)
    assert held is not None
    assert {name: len(ids) for name, ids in held.items()} == {"side": 1, "c": 1}, "it is not listed"
    entries = {entry.container: set(entry.device_ids) for entry in stage.entries()}
    assert {name: set(ids) for name, ids in held.items()} == {name: entries[name] for name in held}
    assert entries["i"] == entries["side"] | entries["c"], "its devices are passed on"
    view = await stage.world.end_container(stage.name, "i", "Running")
    assert view.containers["i"].state == "terminated"
    assert await stage.held(stage.name) == held
    assert len(plugin.called("Allocate")) == 3


@both
async def pod_cgroups(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    one = await stage.run(pod(stage.name, container("c", {stage.resource: 1}), restart_policy="Never"))
    await stage.world.until_cgroup(one.uid, True)
    await stage.world.restart_kubelet()
    await stage.world.until_cgroup(one.uid, True)
    await stage.world.end_container(stage.name, "c", "Succeeded")
    await stage.world.until_cgroup(one.uid, False)
    two = await stage.run(pod(f"{stage.name}2", container("c")))
    await stage.world.until_cgroup(two.uid, True)
    await stage.world.remove(f"{stage.name}2")
    await stage.world.until_cgroup(two.uid, False)
    await plugin.start()
    await plugin.register(stage.socket)
    await stage.until_offered(1, 1)
    three = await stage.run(pod(f"{stage.name}3", container("c", {stage.resource: 2})), "Failed")
    await stage.world.until_cgroup(three.uid, False)


@both
async def kubelet_restart_keeps_device(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b"))
    before = await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    held = await stage.held(stage.name)
    entries = stage.entries()
    await stage.world.restart_kubelet()
    await stage.until_offered(0, 0)
    after = await stage.world.view(stage.name)
    assert (after.uid, after.phase, after.containers["c"].restarts) == (before.uid, "Running", 0)
    assert await stage.held(stage.name) == held
    assert stage.entries() == entries
    text = await stage.rejection(pod(f"{stage.name}2", container("c", {stage.resource: 1})))
    assert text == NO_HEALTHY.format(stage.resource)
    await plugin.start()
    await plugin.register(stage.socket)
    await stage.until_offered(2, 2)
    assert await stage.held(stage.name) == held
    await stage.run(pod(f"{stage.name}3", container("c", {stage.resource: 1})))
    held3 = await stage.held(f"{stage.name}3")
    assert sorted([*(held or {})["c"], *(held3 or {})["c"]]) == ["a", "b"]


@both
async def container_restart_after_kubelet_restart(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"), pre_start_required=True)
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    await stage.world.restart_kubelet()
    await stage.until_offered(0, 0)
    view = await stage.world.end_container(stage.name, "c", "restarted")
    assert view.phase == "Running"
    assert await stage.held(stage.name) == {"c": ["a"]}
    assert [len(plugin.called(method)) for method in ("Allocate", "PreStartContainer")] == [1, 1]


@both
async def kubelet_restart_after_init_container(stage: Stage) -> None:
    await stage.offering(healthy("a"))
    r = stage.resource
    await stage.run(pod(stage.name, container("c", {r: 1}), init=(container("i", {r: 1}),)))
    await stage.world.restart_kubelet()
    # the ended init container is admitted again without a healthy device, so the kubelet ends the whole pod
    await stage.world.until_ended(stage.name)


@both
async def restart_removes_sockets(stage: Stage) -> None:
    name, folder = stage.name, stage.folder
    plugin = await stage.offering(healthy("a"))
    (folder / f"{name}-file").write_text("kept")
    (folder / f"{name}-folder").mkdir()
    os.mkfifo(folder / f"{name}-fifo")
    for path in (folder / f"{name}.sock", folder / f"{name}-folder" / "x.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    (folder / f"{name}-link").symlink_to(f"{name}-folder/x.sock")
    try:
        await stage.world.restart_kubelet()
        await stage.until_offered(0, 0)
        left_over = sorted(path.name for path in folder.iterdir() if path.name.startswith(name))
        assert not plugin.socket.exists()
        assert left_over == [f"{name}-fifo", f"{name}-file", f"{name}-folder"]
        assert (folder / f"{name}-folder" / "x.sock").exists()
    finally:
        for path in (folder / f"{name}-folder" / "x.sock", folder / f"{name}-file", folder / f"{name}-fifo"):
            path.unlink(missing_ok=True)
        (folder / f"{name}-folder").rmdir()


@both
async def file_modes(stage: Stage) -> None:
    await stage.offering(healthy("a"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))  # the file is written before the pod runs
    modes = {
        path: stat.S_IMODE((stage.world.kubelet_folder / path).stat().st_mode)
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
