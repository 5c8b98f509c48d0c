"""Registration: the accepted plugins, the effect on an earlier plugin, and the content of lists."""

import shutil

from kubelet.devicemanager import Device
from kubelet.devicemanager.device import to_message
from kubelet.pods import container, pod
from kubelet.stubs import failing
from tests.kubelet.both.claims_stage import SECONDS
from tests.kubelet.both.scenario import both, healthy, unhealthy
from tests.kubelet.both.world import Stage


@both
async def plugin_registers(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b"))
    assert [method for method, _ in plugin.calls] == ["GetDevicePluginOptions", "ListAndWatch"]


@both
async def unsupported_version(stage: Stage) -> None:
    plugin = await stage.plugin([], register=False)
    assert await stage.refusal(plugin, version="v1alpha2") == (
        'requested API version "v1alpha2" is not supported by kubelet. Supported version is ["v1beta1"]'
    )
    assert plugin.calls == []


@both
async def invalid_resource_names(stage: Stage) -> None:
    plugin = await stage.plugin([], register=False)
    for name in ("", "noslash", "foo.kubernetes.io/x", "requests.example.com/x", "a/b/c", "EXAMPLE.com/x"):
        assert await stage.refusal(plugin, resource=name) == f'the ResourceName "{name}" is invalid'


@both
async def endpoint_without_server(stage: Stage) -> None:
    plugin = await stage.plugin([], register=False)
    assert await stage.refusal(plugin, endpoint="missing.sock") == (
        "failed to dial device plugin: context deadline exceeded"
    )
    assert stage.resource not in await stage.world.resources()


@both
async def options_fail(stage: Stage) -> None:
    plugin = await stage.plugin(healthy("a"), register=False)
    plugin.behaviours["GetDevicePluginOptions"] = failing("options broken")
    assert await stage.refusal(plugin) == (
        "failed to get device plugin options: rpc error: code = Internal desc = options broken"
    )
    assert [method for method, _ in plugin.calls] == ["GetDevicePluginOptions"]


@both
async def second_plugin_with_failing_options(stage: Stage) -> None:
    first = await stage.offering(healthy("a", "b"))
    second = await stage.plugin(healthy("a"), register=False)
    second.behaviours["GetDevicePluginOptions"] = failing("options broken")
    await stage.refusal(second)
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    assert len(first.called("Allocate")) == 1
    await first.stop()
    if stage.release.distinguishes_instances:
        await stage.until_offered(2, 0)
    else:  # the refused plugin replaced the first one's record and removed it, so the first one's end has no effect
        await stage.until_events_processed()
        assert (await stage.world.resources())[stage.resource] == (2, 2)


@both
async def plugin_registers_twice(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    if not stage.release.distinguishes_instances:
        await plugin.register(stage.socket)
        await plugin.until(lambda: plugin.streams == 2)
        assert len(plugin.called("GetDevicePluginOptions")) == 2
        return
    # the refused registration replaces the live plugin's record, and its path stays occupied for ever
    assert (await stage.refusal(plugin)).startswith("device plugin already connected: /")
    assert len(plugin.called("GetDevicePluginOptions")) == 2
    plugin.update(healthy("a", "b"))
    await stage.until_offered(2, 2)
    await plugin.stop()
    await stage.until_events_processed()
    assert (await stage.world.resources())[stage.resource] == (2, 2)
    await plugin.start()
    assert (await stage.refusal(plugin)).startswith("device plugin already connected: /")
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    assert (len(plugin.called("Allocate")), plugin.streams) == (1, 0), "it is called without being listened to"
    await stage.world.restart_kubelet()
    await plugin.start()
    await plugin.register(stage.socket)
    await stage.until_offered(2, 2)


@both
async def plugin_returns_at_same_path(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    for _ in range(2):
        await plugin.stop()
        await stage.until_offered(1, 0)
        await plugin.start()
        await plugin.register(stage.socket)
        await stage.until_offered(1, 1)
    assert plugin.streams == 1


@both
async def last_list_wins(stage: Stage) -> None:
    old = await stage.offering(healthy("a", "b"))
    new = await stage.offering(healthy("a"))
    old.update(healthy("a", "b", "c"))
    await stage.until_offered(3, 3)
    new.update(healthy("a", "b"))
    await stage.until_offered(2, 2)


@both
async def old_plugin_exits(stage: Stage) -> None:
    old = await stage.offering(healthy("a"))
    new = await stage.offering(healthy("a", "b"))
    await old.stop()
    if stage.release.distinguishes_instances:
        await stage.until_events_processed()
        assert ((await stage.world.resources())[stage.resource], new.streams) == ((2, 2), 1)
        await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
        assert len(new.called("Allocate")) == 1
    else:
        await stage.until_offered(2, 0)
        await new.until(lambda: new.streams == 0)
        await new.register(stage.socket)
        await stage.until_offered(2, 2)


@both
async def new_plugin_exits(stage: Stage) -> None:
    old = await stage.offering(healthy("a", "b"))
    new = await stage.offering(healthy("a"))
    await new.stop()
    if stage.release.distinguishes_instances:
        await stage.until_events_processed()
        assert (await stage.world.resources())[stage.resource] == (1, 1), "its list stays"
        await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
        assert len(old.called("Allocate")) == 1
    else:
        await stage.until_offered(1, 0)
    old.update(healthy("a", "b"))
    await stage.until_offered(2, 2)


@both
async def plugin_in_registry(stage: Stage) -> None:
    plugin = await stage.plugin(healthy("a"), folder=stage.registry, register=False)
    await stage.until_offered(1, 1)
    # ListAndWatch and NotifyRegistrationStatus are called concurrently
    await plugin.until(lambda: bool(plugin.called("NotifyRegistrationStatus")))
    methods = [method for method, _ in plugin.calls]
    assert methods[:2] == ["GetInfo", "GetDevicePluginOptions"]
    assert sorted(methods[2:]) == ["ListAndWatch", "NotifyRegistrationStatus"]
    (status,) = plugin.called("NotifyRegistrationStatus")
    assert (status.plugin_registered, status.error) == (True, "")
    plugin.socket.unlink()
    await stage.until_offered(1, 0)


@both
async def plugin_refused_in_registry(stage: Stage) -> None:
    plugin = await stage.plugin(healthy("a"), folder=stage.registry, register=False, versions=("v1alpha", "v1"))
    await plugin.until(lambda: len(plugin.called("NotifyRegistrationStatus")) == 2)
    for status in plugin.called("NotifyRegistrationStatus"):
        assert (status.plugin_registered, status.error) == (
            False,
            "RegisterPlugin error -- plugin validation failed with err: manager version, v1beta1, is not among plugin"
            " supported versions [v1alpha v1]",
        )
    assert len(plugin.called("GetInfo")) == 2


@both
async def plugin_in_hidden_folder(stage: Stage) -> None:
    hidden = stage.registry / f".{stage.name}"
    hidden.mkdir()
    stage.stack.callback(shutil.rmtree, hidden)
    plugin = await stage.plugin(healthy("a"), folder=hidden, register=False)
    await stage.plugin(healthy("a"), folder=stage.registry, register=False)
    await stage.until_offered(1, 1)
    assert plugin.calls == [], "it came while the kubelet ran"
    await stage.world.restart_kubelet()
    await plugin.until(lambda: bool(plugin.called("NotifyRegistrationStatus")), SECONDS)


@both
async def unknown_type_in_registry(stage: Stage) -> None:
    plugin = await stage.plugin([], folder=stage.registry, register=False, plugin_type="FooPlugin")
    await plugin.until(lambda: bool(plugin.called("NotifyRegistrationStatus")))
    error = plugin.called("NotifyRegistrationStatus")[0].error
    assert error.startswith("RegisterPlugin error -- no handler registered for plugin type: FooPlugin at socket ")
    assert error.endswith(f"plugins_registry/{plugin.socket.name}")


@both
async def empty_list(stage: Stage) -> None:
    await stage.offering([])


@both
async def spellings_of_health(stage: Stage) -> None:
    values = ["Healthy", "Unhealthy", "healthy", "", "Unknown"]
    await stage.plugin([Device(f"d{number}", word) for number, word in enumerate(values)])
    await stage.until_offered(5, 1)


@both
async def duplicate_ids(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    plugin.send(to_message([*healthy("a"), *unhealthy("a")]))
    await stage.until_offered(2, 1)
    plugin.send(to_message(healthy("a", "a")))
    await stage.until_offered(1, 1)


@both
async def health_changes(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b", "c", "d"))
    for devices, allocatable in (
        ([*unhealthy("a"), *healthy("b", "c", "d")], 3),
        (healthy("a", "b", "c", "d"), 4),
        ([*unhealthy("a", "b"), *healthy("c", "d")], 2),
        ([*unhealthy("a"), *healthy("b", "c", "d")], 3),
    ):
        plugin.update(devices)
        await stage.until_offered(4, allocatable)


@both
async def list_stream_ends(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b"))
    plugin.end_streams()
    await stage.until_offered(2, 0)
    assert len(plugin.calls) == 2


@both
async def list_with_invalid_utf8(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b"))
    plugin.send(b"\x0a\x0c\x0a\x01\xff\x12\x07Healthy")
    await stage.until_offered(2, 0)
