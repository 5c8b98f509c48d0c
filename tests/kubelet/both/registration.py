"""Registration: the accepted plugins, the effect on an earlier plugin, and the content of lists."""

import shutil

from kubelet.devicemanager import Device
from kubelet.devicemanager.device import to_message
from kubelet.pods import container, pod
from kubelet.stubs import failing
from tests.kubelet.both.claims_fixture import ACTION_TIMEOUT
from tests.kubelet.both.scenario import both, healthy, unhealthy
from tests.kubelet.both.world import ScenarioFixture


@both
async def plugin_registers(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b"))
    assert [method for method, _ in plugin.calls] == ["GetDevicePluginOptions", "ListAndWatch"]


@both
async def unsupported_version(fixture: ScenarioFixture) -> None:
    plugin = await fixture.plugin([], register=False)
    assert await fixture.refusal(plugin, version="v1alpha2") == (
        'requested API version "v1alpha2" is not supported by kubelet. Supported version is ["v1beta1"]'
    )
    assert plugin.calls == []


@both
async def invalid_resource_names(fixture: ScenarioFixture) -> None:
    plugin = await fixture.plugin([], register=False)
    for name in ("", "noslash", "foo.kubernetes.io/x", "requests.example.com/x", "a/b/c", "EXAMPLE.com/x"):
        assert await fixture.refusal(plugin, resource=name) == f'the ResourceName "{name}" is invalid'


@both
async def endpoint_without_server(fixture: ScenarioFixture) -> None:
    plugin = await fixture.plugin([], register=False)
    assert await fixture.refusal(plugin, endpoint="missing.sock") == (
        "failed to dial device plugin: context deadline exceeded"
    )
    assert fixture.resource not in await fixture.world.resources()


@both
async def options_fail(fixture: ScenarioFixture) -> None:
    plugin = await fixture.plugin(healthy("a"), register=False)
    plugin.behaviours["GetDevicePluginOptions"] = failing("options broken")
    assert await fixture.refusal(plugin) == (
        "failed to get device plugin options: rpc error: code = Internal desc = options broken"
    )
    assert [method for method, _ in plugin.calls] == ["GetDevicePluginOptions"]


@both
async def second_plugin_with_failing_options(fixture: ScenarioFixture) -> None:
    first = await fixture.offering(healthy("a", "b"))
    second = await fixture.plugin(healthy("a"), register=False)
    second.behaviours["GetDevicePluginOptions"] = failing("options broken")
    await fixture.refusal(second)
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    assert len(first.called("Allocate")) == 1
    await first.stop()
    if fixture.release.distinguishes_instances:
        await fixture.until_offered(2, 0)
    else:  # the refused plugin replaced the first one's record and removed it, so the first one's end has no effect
        await fixture.until_events_processed()
        assert (await fixture.world.resources())[fixture.resource] == (2, 2)


@both
async def plugin_registers_twice(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    if not fixture.release.distinguishes_instances:
        await plugin.register(fixture.socket)
        await plugin.until(lambda: plugin.streams == 2)
        assert len(plugin.called("GetDevicePluginOptions")) == 2
        return
    # the refused registration replaces the live plugin's record, and its path stays occupied for ever
    assert (await fixture.refusal(plugin)).startswith("device plugin already connected: /")
    assert len(plugin.called("GetDevicePluginOptions")) == 2
    plugin.update(healthy("a", "b"))
    await fixture.until_offered(2, 2)
    await plugin.stop()
    await fixture.until_events_processed()
    assert (await fixture.world.resources())[fixture.resource] == (2, 2)
    await plugin.start()
    assert (await fixture.refusal(plugin)).startswith("device plugin already connected: /")
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    assert (len(plugin.called("Allocate")), plugin.streams) == (1, 0), "it is called without being listened to"
    await fixture.world.restart_kubelet()
    await plugin.start()
    await plugin.register(fixture.socket)
    await fixture.until_offered(2, 2)


@both
async def plugin_returns_at_same_path(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    for _ in range(2):
        await plugin.stop()
        await fixture.until_offered(1, 0)
        await plugin.start()
        await plugin.register(fixture.socket)
        await fixture.until_offered(1, 1)
    assert plugin.streams == 1


@both
async def last_list_wins(fixture: ScenarioFixture) -> None:
    old = await fixture.offering(healthy("a", "b"))
    new = await fixture.offering(healthy("a"))
    old.update(healthy("a", "b", "c"))
    await fixture.until_offered(3, 3)
    new.update(healthy("a", "b"))
    await fixture.until_offered(2, 2)


@both
async def old_plugin_exits(fixture: ScenarioFixture) -> None:
    old = await fixture.offering(healthy("a"))
    new = await fixture.offering(healthy("a", "b"))
    await old.stop()
    if fixture.release.distinguishes_instances:
        await fixture.until_events_processed()
        assert ((await fixture.world.resources())[fixture.resource], new.streams) == ((2, 2), 1)
        await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
        assert len(new.called("Allocate")) == 1
    else:
        await fixture.until_offered(2, 0)
        await new.until(lambda: new.streams == 0)
        await new.register(fixture.socket)
        await fixture.until_offered(2, 2)


@both
async def new_plugin_exits(fixture: ScenarioFixture) -> None:
    old = await fixture.offering(healthy("a", "b"))
    new = await fixture.offering(healthy("a"))
    await new.stop()
    if fixture.release.distinguishes_instances:
        await fixture.until_events_processed()
        assert (await fixture.world.resources())[fixture.resource] == (1, 1), "its list stays"
        await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
        assert len(old.called("Allocate")) == 1
    else:
        await fixture.until_offered(1, 0)
    old.update(healthy("a", "b"))
    await fixture.until_offered(2, 2)


@both
async def plugin_in_registry(fixture: ScenarioFixture) -> None:
    plugin = await fixture.plugin(healthy("a"), folder=fixture.registry, register=False)
    await fixture.until_offered(1, 1)
    # ListAndWatch and NotifyRegistrationStatus are called concurrently
    await plugin.until(lambda: bool(plugin.called("NotifyRegistrationStatus")))
    methods = [method for method, _ in plugin.calls]
    assert methods[:2] == ["GetInfo", "GetDevicePluginOptions"]
    assert sorted(methods[2:]) == ["ListAndWatch", "NotifyRegistrationStatus"]
    (status,) = plugin.called("NotifyRegistrationStatus")
    assert (status.plugin_registered, status.error) == (True, "")
    plugin.socket.unlink()
    await fixture.until_offered(1, 0)


@both
async def plugin_refused_in_registry(fixture: ScenarioFixture) -> None:
    plugin = await fixture.plugin(healthy("a"), folder=fixture.registry, register=False, versions=("v1alpha", "v1"))
    await plugin.until(lambda: len(plugin.called("NotifyRegistrationStatus")) == 2)
    for status in plugin.called("NotifyRegistrationStatus"):
        assert (status.plugin_registered, status.error) == (
            False,
            "RegisterPlugin error -- plugin validation failed with err: manager version, v1beta1, is not among plugin"
            " supported versions [v1alpha v1]",
        )
    assert len(plugin.called("GetInfo")) == 2


@both
async def plugin_in_hidden_folder(fixture: ScenarioFixture) -> None:
    hidden = fixture.registry / ".hidden"  # a short name: the whole path of a socket is limited to 107 bytes
    hidden.mkdir()
    fixture.stack.callback(shutil.rmtree, hidden)
    plugin = await fixture.plugin(healthy("a"), folder=hidden, register=False)
    await fixture.plugin(healthy("a"), folder=fixture.registry, register=False)
    await fixture.until_offered(1, 1)
    assert plugin.calls == [], "it came while the kubelet ran"
    await fixture.world.restart_kubelet()
    await plugin.until(lambda: bool(plugin.called("NotifyRegistrationStatus")), ACTION_TIMEOUT)


@both
async def unknown_type_in_registry(fixture: ScenarioFixture) -> None:
    plugin = await fixture.plugin([], folder=fixture.registry, register=False, plugin_type="FooPlugin")
    await plugin.until(lambda: bool(plugin.called("NotifyRegistrationStatus")))
    error = plugin.called("NotifyRegistrationStatus")[0].error
    assert error.startswith("RegisterPlugin error -- no handler registered for plugin type: FooPlugin at socket ")
    assert error.endswith(f"plugins_registry/{plugin.socket.name}")


@both
async def empty_list(fixture: ScenarioFixture) -> None:
    await fixture.offering([])


@both
async def spellings_of_health(fixture: ScenarioFixture) -> None:
    values = ["Healthy", "Unhealthy", "healthy", "", "Unknown"]
    await fixture.plugin([Device(f"d{number}", word) for number, word in enumerate(values)])
    await fixture.until_offered(5, 1)


@both
async def duplicate_ids(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    plugin.send(to_message([*healthy("a"), *unhealthy("a")]))
    await fixture.until_offered(2, 1)
    plugin.send(to_message(healthy("a", "a")))
    await fixture.until_offered(1, 1)


@both
async def health_changes(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b", "c", "d"))
    for devices, allocatable in (
        ([*unhealthy("a"), *healthy("b", "c", "d")], 3),
        (healthy("a", "b", "c", "d"), 4),
        ([*unhealthy("a", "b"), *healthy("c", "d")], 2),
        ([*unhealthy("a"), *healthy("b", "c", "d")], 3),
    ):
        plugin.update(devices)
        await fixture.until_offered(4, allocatable)


@both
async def list_stream_ends(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b"))
    plugin.end_streams()
    await fixture.until_offered(2, 0)
    assert len(plugin.calls) == 2


@both
async def list_with_invalid_utf8(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b"))
    plugin.send(b"\x0a\x0c\x0a\x01\xff\x12\x07Healthy")
    await fixture.until_offered(2, 0)
