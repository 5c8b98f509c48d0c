"""Container paths of devices, and devices that lack an attribute that the resource names, over the wire."""

import pytest
from msgspec.structs import replace

import cdi
from checkpoint import Ledger
from deviceplugin import Paths
from grpcunix import Status
from hostdevices.scan import scan
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resources.assignment import assign
from resources.resource import Resource
from resources.selector import Kinds
from tests.deviceplugin.conftest import Side, StartPlugins
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import allocate, kubelet_end, refusal, until_listed
from tests.running import until

NAME = "example.com/misc"


def misc(**options: object) -> Resource:
    return Resource(NAME, Kinds(("misc",)), **options)  # type: ignore[arg-type]  # tests name real fields


async def start_offering(start: StartPlugins, made_up: MadeUpHost, resource: Resource) -> Side:
    side = await start([resource])
    side.update(assign(scan(made_up.host), [resource]).devices)
    return side


def container_paths_in_specs(paths: Paths) -> dict[str, list[str]]:
    """The paths in the container that runtimes find, by device."""
    specs = [cdi.decode(path.read_bytes()) for path in paths.cdi.glob("*.json")]
    return {x.name: [n.path for n in x.container_edits.device_nodes] for each in specs for x in each.devices}


async def test_devices_without_the_attribute_of_a_template_are_unavailable(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, caplog: pytest.LogCaptureFixture
) -> None:
    """The daemon continues; the same holds for later devices."""
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start_offering(start, made_up, misc(env={"SERIAL": "{serial}"}))
        await until_listed(kubelet, {"misc-fuse": "Unhealthy", "misc-kvm": "Unhealthy"})
        reason = "it has no serial, which env.SERIAL of example.com/misc uses"
        assert await refusal(kubelet, "misc-kvm") == (
            Status.FAILED_PRECONDITION,
            f"device misc-kvm is unavailable: {reason}",
        )
        assert f"device is unavailable: {reason}" in caplog.text
        plain = misc(env={"NAME": "{name}"})
        side.plugins.configure([plain])
        side.update(assign(scan(made_up.host), [plain]).devices)
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})


async def test_pod_keeps_its_device_when_a_template_attribute_is_missing(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start_offering(start, made_up, misc())
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        await allocate(kubelet, "misc-fuse")
        other = misc(env={"SERIAL": "{serial}"})
        side.plugins.configure([other])
        side.update(assign(scan(made_up.host), [other]).devices)
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Unhealthy"})
        await kubelet.call("PreStartContainer", api.PreStartContainerRequest(devices_ids=["misc-fuse"]))


@pytest.mark.parametrize("policy", ["auto", True, False])
async def test_container_gets_its_node_at_the_configured_path(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, policy: object
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start_offering(
            start, made_up, misc(container_path="/dev/my-{name}", cdi=policy, env={"AT": "{devnodes}"})
        )
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        if policy is not False:
            await until(lambda: container_paths_in_specs(paths).get("misc-fuse") == ["/dev/my-fuse"])
        answer = await allocate(kubelet, "misc-fuse")
        assert answer.envs["AT"] == "/dev/my-fuse"
        plain = [(x.container_path, x.host_path) for x in answer.devices]
        assert plain == ([] if policy is True else [("/dev/my-fuse", "/dev/fuse")])
        assert bool(answer.cdi_devices) == (policy is not False)
        await kubelet.call("PreStartContainer", api.PreStartContainerRequest(devices_ids=["misc-fuse"]))


async def test_two_devices_at_one_container_path_are_refused(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start_offering(start, made_up, misc(container_path="/dev/mine"))
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        assert await refusal(kubelet, "misc-fuse", "misc-kvm") == (
            Status.INVALID_ARGUMENT,
            "example.com/misc: two of misc-fuse, misc-kvm would have the path /dev/mine in one container; request one,"
            " or use an attribute in its containerPath that differs between them",
        )


@pytest.mark.parametrize("is_offered", [True, False])
async def test_container_path_is_kept_when_the_configured_path_changes(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, ledger: Ledger, is_offered: bool
) -> None:
    """A pod's containers restart with the CDI name; other pods see their devices at the new path."""
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start_offering(start, made_up, misc(container_path="/dev/old", cdi=True))
        await until(lambda: container_paths_in_specs(paths) == {"misc-fuse": ["/dev/old"], "misc-kvm": ["/dev/old"]})
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        await allocate(kubelet, "misc-fuse")
        resources = [misc(container_path="/dev/new", cdi=True)] if is_offered else []
        side.plugins.configure(resources)
        side.update(assign(scan(made_up.host), resources).devices)
        others = {"misc-kvm": ["/dev/new"]} if is_offered else {}
        if not is_offered:  # it is registered again for the pod's device
            await until_listed(kubelet, {"misc-fuse": "Unhealthy"})
        await until(lambda: container_paths_in_specs(paths) == {"misc-fuse": ["/dev/old"], **others})
        await kubelet.call("PreStartContainer", api.PreStartContainerRequest(devices_ids=["misc-fuse"]))
        assert container_paths_in_specs(paths) == {"misc-fuse": ["/dev/old"], **others}
        await ledger.end(ledger.leases())
        side.update(assign(scan(made_up.host), resources).devices)
        await until(
            lambda: container_paths_in_specs(paths) == ({"misc-fuse": ["/dev/new"], **others} if is_offered else {})
        )


async def test_container_path_is_kept_when_its_template_attribute_changes(
    start: StartPlugins, made_up: MadeUpHost, paths: Paths
) -> None:
    """A path that contains an attribute changes with the attribute, long after the device was allocated."""
    async with kubelet_end(paths.device_plugins) as kubelet:
        resources = [misc(container_path="/dev/at-{name}", cdi=True)]
        side = await start_offering(start, made_up, resources[0])
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        await allocate(kubelet, "misc-fuse")
        assigned = assign(scan(made_up.host), resources).devices
        side.update(assigned)
        (name,) = assigned
        fuse, kvm = assigned[name]
        elsewhere = replace(fuse, devnodes=(replace(fuse.devnodes[0], container_path="/dev/at-fuse9"),))
        side.update({name: (elsewhere, kvm)})
        await kubelet.call("PreStartContainer", api.PreStartContainerRequest(devices_ids=["misc-fuse"]))
        assert container_paths_in_specs(paths) == {"misc-fuse": ["/dev/at-fuse"], "misc-kvm": ["/dev/at-kvm"]}
