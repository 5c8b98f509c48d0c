"""A resource moves between the APIs while pods have it: they keep it until they end, then the other API offers it."""

import asyncio
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable

from tests.controlplane.scheduler.kit import Json, claim, request
from tests.nodeplug.cluster import using
from tests.nodeplug.machine import Machine

FUSE, REFUSED = "fuse.example.com", "FailedPrepareDynamicResources"
PLUGIN: list[Json] = [{"name": "example.com/fuse", "select": "fuse"}]
CLAIMS: list[Json] = [{"name": "example.com/fuse", "select": "fuse", "api": "dra"}]


async def change(machine: Machine, process: Process, resources: list[Json]) -> Process:
    """Stop the daemon, and start it with another configuration."""
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    return await machine.start(resources=resources)


async def advance_until_condition(machine: Machine, holds: Callable[[], Awaitable[bool]]) -> None:
    """Advance the kubelet's clock until a condition is true."""
    async with asyncio.timeout(30):
        while not await holds():
            await machine.cluster.clock.advance(1.0)
            await asyncio.sleep(0.05)  # the daemon is another process


async def create_plugin_pod(machine: Machine, name: str) -> None:
    made = using(name)
    made["spec"]["containers"][0]["resources"] = {"limits": {"example.com/fuse": "1"}}
    await machine.cluster.create(made)


async def create_claim_pod(machine: Machine, name: str) -> None:
    """Create a pod whose claim is allocated the device even while another pod has it."""
    tolerations = [{"operator": "Exists"}]
    wanted = claim(name, request(deviceClassName=FUSE, tolerations=tolerations))
    await machine.cluster.create(wanted, using(name, ["mine"], claims={"mine": name}))


async def taints(machine: Machine) -> list[str]:
    """Return the taints of the only published device; `unpublished` if none is published."""
    device = (await machine.published()).get("misc-fuse")
    return ["unpublished"] if device is None else [taint["key"] for taint in device.get("taints", [])]


async def test_device_moves_from_device_plugin_api_to_dra_when_its_pod_ends(machine: Machine) -> None:
    cluster, node = machine.cluster, machine.cluster.node
    await machine.classes()
    process = await machine.start(resources=PLUGIN)
    await cluster.create(using("other"))
    await cluster.until_phase("other", "Running")
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
    await create_plugin_pod(machine, "a")
    await cluster.until_phase("a", "Running")
    process = await change(machine, process, CLAIMS)

    async def is_tainted() -> bool:
        return await taints(machine) == ["nodeplug.dev/in-use"]

    async def is_refused() -> bool:
        return any("has allocated misc-fuse to pod/default/a/c" in text for text in await cluster.events(REFUSED))

    await advance_until_condition(machine, is_tainted)
    await create_claim_pod(machine, "b")
    await advance_until_condition(machine, is_refused)
    assert [api for api, *_ in machine.leases()] == ["device-plugin"]
    await cluster.delete("Pod", "a")
    await cluster.advance_clock(1.0, "Pod", "b", "Running")  # the kubelet retries
    assert [api for api, *_ in machine.leases()] == ["dra"]


async def test_device_moves_from_dra_to_device_plugin_api_when_its_claim_ends(machine: Machine) -> None:
    cluster, node = machine.cluster, machine.cluster.node
    await machine.classes()
    process = await machine.start(resources=CLAIMS)
    await cluster.create(using("other"))
    await cluster.until_phase("other", "Running")

    async def is_published() -> bool:
        return await taints(machine) == []

    await advance_until_condition(machine, is_published)
    await create_claim_pod(machine, "a")
    await cluster.until_phase("a", "Running")
    await change(machine, process, PLUGIN)
    await node.until(lambda: node.devices().get("example.com/fuse", {}).get("misc-fuse") is not None, 30)
    assert node.allocatable()["example.com/fuse"] == 0
    assert [api for api, *_ in machine.leases()] == ["dra"]
    assert machine.specs()

    await cluster.delete("Pod", "a")

    async def has_ended() -> bool:
        return machine.leases() == [] and machine.specs() == []

    await advance_until_condition(machine, has_ended)
    await node.until(lambda: node.allocatable()["example.com/fuse"] == 1, 30)
    await create_plugin_pod(machine, "b")
    await cluster.until_phase("b", "Running")
