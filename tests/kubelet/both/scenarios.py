"""Scenarios that a kubelet must play the same way, whether it is the stand-in or the real one.

Each asserts what it observes, so that both runs observe the same. What a kubelet may choose as it likes is left open.
"""

import os
import socket
import stat
from collections.abc import Awaitable, Callable

import grpc
import pytest

from checkpoint.kubelet_devices import WITHOUT_TOPOLOGY
from kubelet.devicemanager import Device
from kubelet.devicemanager.device import to_message
from kubelet.plugin import answering, failing
from kubelet.pods import container, pod
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.kubelet.both.world import Stage

Scenario = Callable[[Stage], Awaitable[None]]

SCENARIOS: dict[str, Scenario] = {}

NO_HEALTHY = "no healthy devices present; cannot allocate unhealthy devices {}"


def both(play: Scenario) -> Scenario:
    """Play this scenario on both."""
    SCENARIOS[play.__name__.replace("_", "-")] = play
    return play


def good(*ids: str) -> list[Device]:
    return [Device(id_) for id_ in ids]


def bad(*ids: str) -> list[Device]:
    return [Device(id_, "Unhealthy") for id_ in ids]


def requests(plugin_calls: list[api.AllocateRequest]) -> list[list[str]]:
    return [list(call.container_requests[0].devices_ids) for call in plugin_calls]


def preferring(*ids: str) -> api.PreferredAllocationResponse:
    return api.PreferredAllocationResponse(
        container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=ids)]
    )


# registration


@both
async def register(stage: Stage) -> None:
    plugin = await stage.offering(good("a", "b"))
    assert [method for method, _ in plugin.calls] == ["GetDevicePluginOptions", "ListAndWatch"]


@both
async def bad_version(stage: Stage) -> None:
    plugin = await stage.plugin([], register=False)
    assert await stage.refusal(plugin, version="v1alpha2") == (
        'requested API version "v1alpha2" is not supported by kubelet. Supported version is ["v1beta1"]'
    )
    assert plugin.calls == []


@both
async def bad_names(stage: Stage) -> None:
    plugin = await stage.plugin([], register=False)
    for name in ("", "noslash", "foo.kubernetes.io/x", "requests.example.com/x", "a/b/c", "EXAMPLE.com/x"):
        assert await stage.refusal(plugin, resource=name) == f'the ResourceName "{name}" is invalid'


@both
async def nobody_at_the_endpoint(stage: Stage) -> None:
    plugin = await stage.plugin([], register=False)
    assert await stage.refusal(plugin, endpoint="missing.sock") == (
        "failed to dial device plugin: context deadline exceeded"
    )
    assert stage.resource not in await stage.world.resources()


@both
async def broken_options(stage: Stage) -> None:
    plugin = await stage.plugin(good("a"), register=False)
    plugin.behaviours["GetDevicePluginOptions"] = failing("options broken")
    assert await stage.refusal(plugin) == (
        "failed to get device plugin options: rpc error: code = Internal desc = options broken"
    )
    assert [method for method, _ in plugin.calls] == ["GetDevicePluginOptions"]


@both
async def twice(stage: Stage) -> None:
    plugin = await stage.offering(good("a"))
    await plugin.register(stage.socket)
    await plugin.until(lambda: plugin.streams == 2)
    assert len(plugin.called("GetDevicePluginOptions")) == 2


@both
async def last_list_wins(stage: Stage) -> None:
    old = await stage.offering(good("a", "b"))
    new = await stage.offering(good("a"))
    old.update(good("a", "b", "c"))
    await stage.offers(3, 3)
    new.update(good("a", "b"))
    await stage.offers(2, 2)


@both
async def old_one_exits(stage: Stage) -> None:
    old = await stage.offering(good("a"))
    new = await stage.offering(good("a", "b"))
    await old.stop()
    await stage.offers(2, 0)
    await new.until(lambda: new.streams == 0)
    await new.register(stage.socket)
    await stage.offers(2, 2)


@both
async def new_one_exits(stage: Stage) -> None:
    old = await stage.offering(good("a", "b"))
    new = await stage.offering(good("a"))
    await new.stop()
    await stage.offers(1, 0)
    old.update(good("a", "b"))
    await stage.offers(2, 2)


@both
async def in_the_registry(stage: Stage) -> None:
    plugin = await stage.plugin(good("a"), folder=stage.registry, register=False)
    await stage.offers(1, 1)
    methods = [method for method, _ in plugin.calls]
    assert methods[:2] == ["GetInfo", "GetDevicePluginOptions"]
    # the stream and the news go out at the same time
    assert sorted(methods[2:]) == ["ListAndWatch", "NotifyRegistrationStatus"]
    (status,) = plugin.called("NotifyRegistrationStatus")
    assert (status.plugin_registered, status.error) == (True, "")
    plugin.socket.unlink()
    await stage.offers(1, 0)


@both
async def refused_in_the_registry(stage: Stage) -> None:
    plugin = await stage.plugin(good("a"), folder=stage.registry, register=False, versions=("v1alpha", "v1"))
    await plugin.until(lambda: len(plugin.called("NotifyRegistrationStatus")) == 2)
    for status in plugin.called("NotifyRegistrationStatus"):
        assert (status.plugin_registered, status.error) == (
            False,
            "RegisterPlugin error -- plugin validation failed with err: manager version, v1beta1, is not among plugin"
            " supported versions [v1alpha v1]",
        )
    assert len(plugin.called("GetInfo")) == 2


@both
async def unknown_type_in_the_registry(stage: Stage) -> None:
    plugin = await stage.plugin([], folder=stage.registry, register=False, plugin_type="FooPlugin")
    await plugin.until(lambda: bool(plugin.called("NotifyRegistrationStatus")))
    error = plugin.called("NotifyRegistrationStatus")[0].error
    assert error.startswith("RegisterPlugin error -- no handler registered for plugin type: FooPlugin at socket ")
    assert error.endswith(f"plugins_registry/{plugin.socket.name}")


# lists and health


@both
async def empty_list(stage: Stage) -> None:
    await stage.offering([])


@both
async def words_of_health(stage: Stage) -> None:
    words = ["Healthy", "Unhealthy", "healthy", "", "Unknown"]
    await stage.plugin([Device(f"d{number}", word) for number, word in enumerate(words)])
    await stage.offers(5, 1)


@both
async def ids_listed_twice(stage: Stage) -> None:
    plugin = await stage.offering(good("a"))
    plugin.send(to_message([*good("a"), *bad("a")]))
    await stage.offers(2, 1)
    plugin.send(to_message(good("a", "a")))
    await stage.offers(1, 1)


@both
async def health_goes_and_comes(stage: Stage) -> None:
    plugin = await stage.offering(good("a", "b", "c", "d"))
    for devices, allocatable in (
        ([*bad("a"), *good("b", "c", "d")], 3),
        (good("a", "b", "c", "d"), 4),
        ([*bad("a", "b"), *good("c", "d")], 2),
        ([*bad("a"), *good("b", "c", "d")], 3),
    ):
        plugin.update(devices)
        await stage.offers(4, allocatable)


@both
async def stream_ends(stage: Stage) -> None:
    plugin = await stage.offering(good("a", "b"))
    plugin.end_streams()
    await stage.offers(2, 0)
    assert len(plugin.calls) == 2


@both
async def list_that_is_not_text(stage: Stage) -> None:
    plugin = await stage.offering(good("a", "b"))
    plugin.send(b"\x0a\x0c\x0a\x01\xff\x12\x07Healthy")
    await stage.offers(2, 0)


# admission


@both
async def one_device(stage: Stage) -> None:
    plugin = await stage.offering(good("a", "b"))
    view = await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    ((chosen,),) = requests(plugin.called("Allocate"))
    assert await stage.held(stage.name) == {"c": [chosen]}
    (entry,) = stage.entries()
    assert (entry.pod_uid, entry.container, entry.by_node) == (view.uid, "c", {WITHOUT_TOPOLOGY: [chosen]})
    assert api.ContainerAllocateResponse.FromString(entry.response or b"").envs == {"DEVICES": chosen}
    assert sorted((stage.checkpoint().registered or {})[stage.resource] or ()) == ["a", "b"]
    await stage.offers(2, 2)


@both
async def too_many(stage: Stage) -> None:
    await stage.offering(good("a", "b"))
    text = await stage.rejection(pod(stage.name, container("c", {stage.resource: 9})))
    assert text == f"requested number of devices unavailable for {stage.resource}. Requested: 9, Available: 2"
    assert await stage.held(stage.name) is None


@both
async def all_unhealthy(stage: Stage) -> None:
    await stage.offering(bad("a"))
    for amount in (1, 0):
        text = await stage.rejection(pod(f"{stage.name}{amount}", container("c", {stage.resource: amount})))
        assert text == NO_HEALTHY.format(stage.resource)


@both
async def plugin_gone(stage: Stage) -> None:
    plugin = await stage.offering(good("a"))
    await plugin.stop()
    await stage.offers(1, 0)
    text = await stage.rejection(pod(stage.name, container("c", {stage.resource: 1})))
    assert text == NO_HEALTHY.format(stage.resource)


@both
async def unknown_resource(stage: Stage) -> None:
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    assert await stage.held(stage.name) == {"c": []}


@both
async def allocate_fails(stage: Stage) -> None:
    plugin = await stage.offering(good("a"))
    plugin.behaviours["Allocate"] = failing("cannot give a")
    text = await stage.rejection(pod(stage.name, container("c", {stage.resource: 1})))
    assert text == "rpc error: code = Internal desc = cannot give a"
    assert stage.entries() == []
    del plugin.behaviours["Allocate"]
    await stage.run(pod(f"{stage.name}2", container("c", {stage.resource: 1})))


@both
async def no_responses(stage: Stage) -> None:
    plugin = await stage.offering(good("a"))
    plugin.behaviours["Allocate"] = answering(api.AllocateResponse())
    text = await stage.rejection(pod(stage.name, container("c", {stage.resource: 1})))
    assert text == "no containers return in allocation response "


@both
async def two_responses(stage: Stage) -> None:
    plugin = await stage.offering(good("a"))
    answers = [api.ContainerAllocateResponse(envs={"N": number}) for number in "12"]
    plugin.behaviours["Allocate"] = answering(api.AllocateResponse(container_responses=answers))
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    (entry,) = stage.entries()
    assert api.ContainerAllocateResponse.FromString(entry.response or b"").envs == {"N": "1"}


@both
async def preference(stage: Stage) -> None:
    plugin = await stage.offering(good("a", "b", "c", "d"), preferred_allocation=True)
    plugin.behaviours["GetPreferredAllocation"] = answering(preferring("d", "b"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 2})))
    (call,) = plugin.called("GetPreferredAllocation")
    (asked,) = call.container_requests
    assert sorted(asked.available_deviceIDs) == ["a", "b", "c", "d"]
    assert (list(asked.must_include_deviceIDs), asked.allocation_size) == ([], 2)
    assert await stage.held(stage.name) == {"c": ["b", "d"]}


@both
async def preference_for_strangers(stage: Stage) -> None:
    plugin = await stage.offering(good("a", "b", "c"), preferred_allocation=True)
    plugin.behaviours["GetPreferredAllocation"] = answering(preferring("bogus", "c"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 2})))
    held = (await stage.held(stage.name) or {})["c"]
    assert len(held) == 2
    assert "c" in held


@both
async def preference_fails(stage: Stage) -> None:
    plugin = await stage.offering(good("a"), preferred_allocation=True)
    plugin.behaviours["GetPreferredAllocation"] = failing("no idea")
    text = await stage.rejection(pod(stage.name, container("c", {stage.resource: 1})))
    assert text == (
        "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Internal desc = no idea"
    )


@both
async def init_containers(stage: Stage) -> None:
    plugin = await stage.offering(good(*"abcdefgh"))
    r = stage.resource
    await stage.run(
        pod(
            stage.name,
            container("a1", {r: 1}),
            container("a2", {r: 1}),
            init=(container("i1", {r: 2}), container("i2", {r: 3}), container("side", {r: 1}, sidecar=True)),
        )
    )
    asked = [set(ids) for ids in requests(plugin.called("Allocate"))]
    assert [len(ids) for ids in asked] == [2, 3, 1, 1, 1]
    assert asked[0] < asked[1]
    assert asked[2] | asked[3] | asked[4] == asked[1]
    held = await stage.held(stage.name)
    assert held is not None
    assert list(held) == ["side", "a1", "a2"]
    assert [set(ids) for ids in held.values()] == asked[2:]
    assert {entry.container for entry in stage.entries()} == {"i1", "i2", "side", "a1", "a2"}


@both
async def places(stage: Stage) -> None:
    devices = [
        Device("both", topology=(0, 1)),
        Device("empty", topology=()),
        Device("none"),
        Device("zero", topology=(0,)),
    ]
    await stage.offering(devices)
    assert await stage.placed() == [("both", 0), ("both", 1), ("none", None), ("zero", 0)]
    await stage.run(pod(stage.name, container("c", {stage.resource: 4})))
    assert await stage.placed(stage.name) == [("both", 0), ("both", 1), ("empty", None), ("none", None), ("zero", 0)]
    (entry,) = stage.entries()
    by_node = {node: sorted(ids or ()) for node, ids in (entry.by_node or {}).items()}
    assert by_node == {-1: ["empty", "none"], 0: ["both", "zero"], 1: ["both"]}


@both
async def pod_that_is_not_there(stage: Stage) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stage.placed("nobody")
    assert error.value.code() is grpc.StatusCode.UNKNOWN
    assert error.value.details() == "pod nobody in namespace default not found"


# containers


@both
async def pre_start(stage: Stage) -> None:
    plugin = await stage.offering(good("a", "b"), pre_start_required=True)
    await stage.run(pod(stage.name, container("c", {stage.resource: 2})))
    assert [sorted(call.devices_ids) for call in plugin.called("PreStartContainer")] == [["a", "b"]]
    await stage.world.end_container(stage.name, "c", "restarted")
    assert [sorted(call.devices_ids) for call in plugin.called("PreStartContainer")] == [["a", "b"]] * 2
    assert len(plugin.called("Allocate")) == 1


@both
async def pre_start_fails(stage: Stage) -> None:
    plugin = await stage.offering(good("a"), pre_start_required=True)
    plugin.behaviours["PreStartContainer"] = failing("not ready")
    view = await stage.run(pod(stage.name, container("c", {stage.resource: 1})), "CreateContainerConfigError")
    assert view.phase == "Pending"
    assert view.containers["c"].message == (
        "device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = not ready"
    )


@both
async def succeeded(stage: Stage) -> None:
    await stage.offering(good("a"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 1}), restart_policy="Never"))
    await stage.world.end_container(stage.name, "c", "Succeeded")
    assert await stage.held(stage.name) is None
    await stage.run(pod(f"{stage.name}2", container("c", {stage.resource: 1})))
    assert await stage.held(f"{stage.name}2") == {"c": ["a"]}


@both
async def unhealthy_while_it_runs(stage: Stage) -> None:
    plugin = await stage.offering(good("a"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    await stage.world.has_health(stage.name, "Healthy")
    plugin.update(bad("a"))
    await stage.world.has_health(stage.name, "Unhealthy")
    await stage.offers(1, 0)
    view = await stage.world.end_container(stage.name, "c", "restarted")
    assert view.phase == "Running"
    assert await stage.held(stage.name) == {"c": ["a"]}
    assert len(plugin.called("Allocate")) == 1
    plugin.update(good("a"))
    await stage.world.has_health(stage.name, "Healthy")


@both
async def removed(stage: Stage) -> None:
    plugin = await stage.offering(good("a"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    await stage.world.remove(stage.name)
    assert len(stage.entries()) == 1, "the file is not written for a removal"
    assert await stage.held(stage.name) is None
    await stage.run(pod(f"{stage.name}2", container("c", {stage.resource: 1})))
    assert [entry.device_ids for entry in stage.entries()] == [["a"]]
    assert len(plugin.called("Allocate")) == 2


# restarts of the kubelet


@both
async def restart(stage: Stage) -> None:
    plugin = await stage.offering(good("a", "b"))
    before = await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    held = await stage.held(stage.name)
    entries = stage.entries()
    await stage.world.restart_kubelet()
    await stage.offers(0, 0)
    after = await stage.world.view(stage.name)
    assert (after.uid, after.phase, after.containers["c"].restarts) == (before.uid, "Running", 0)
    assert await stage.held(stage.name) == held
    assert stage.entries() == entries
    text = await stage.rejection(pod(f"{stage.name}2", container("c", {stage.resource: 1})))
    assert text == NO_HEALTHY.format(stage.resource)
    await plugin.start()
    await plugin.register(stage.socket)
    await stage.offers(2, 2)
    assert await stage.held(stage.name) == held
    await stage.run(pod(f"{stage.name}3", container("c", {stage.resource: 1})))
    held3 = await stage.held(f"{stage.name}3")
    assert sorted([*(held or {})["c"], *(held3 or {})["c"]]) == ["a", "b"]


@both
async def restart_and_container(stage: Stage) -> None:
    plugin = await stage.offering(good("a"), pre_start_required=True)
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    await stage.world.restart_kubelet()
    await stage.offers(0, 0)
    view = await stage.world.end_container(stage.name, "c", "restarted")
    assert view.phase == "Running"
    assert await stage.held(stage.name) == {"c": ["a"]}
    assert [len(plugin.called(method)) for method in ("Allocate", "PreStartContainer")] == [1, 1]


@both
async def restart_after_an_init_container(stage: Stage) -> None:
    await stage.offering(good("a"))
    r = stage.resource
    await stage.run(pod(stage.name, container("c", {r: 1}), init=(container("i", {r: 1}),)))
    await stage.world.restart_kubelet()
    # it is not running any more and is checked anew, finds no healthy device, and the whole pod is ended for it
    await stage.world.was_ended(stage.name)


@both
async def sockets_at_a_restart(stage: Stage) -> None:
    name, folder = stage.name, stage.folder
    plugin = await stage.offering(good("a"))
    (folder / f"{name}-file").write_text("kept")
    (folder / f"{name}-folder").mkdir()
    os.mkfifo(folder / f"{name}-fifo")
    for path in (folder / f"{name}.sock", folder / f"{name}-folder" / "x.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    (folder / f"{name}-link").symlink_to(f"{name}-folder/x.sock")
    try:
        await stage.world.restart_kubelet()
        await stage.offers(0, 0)
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
    await stage.offering(good("a"))
    modes = {
        path: stat.S_IMODE((stage.world.kubelet_folder / path).stat().st_mode)
        for path in (
            "device-plugins",
            "plugins_registry",
            "pod-resources",
            "device-plugins/kubelet_internal_checkpoint",
        )
    }
    assert modes == {
        "device-plugins": 0o755,
        "plugins_registry": 0o750,
        "pod-resources": 0o750,
        "device-plugins/kubelet_internal_checkpoint": 0o600,
    }
