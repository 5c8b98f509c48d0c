"""A sequence of changes on a node: after each step the kubelet's view and `nodeplug status` agree."""

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.apiserver import write_kubeconfig
from grpcunix import Client
from kubelet.rpc import connect
from kubeletapi.podresources.v1 import api_pb2 as podresources
from nodeplug.control import client
from nodeplug.control.client import NotRunning
from nodeplug.control.protocol import Refusal
from nodeplug.control.release import Answer as Released
from nodeplug.control.release import Question as Release
from nodeplug.control.reload import Question as Reload
from nodeplug.control.status import Answer, Question
from tests.controlplane.scheduler.kit import Json, claim, pod, request
from tests.dra_plugin.preparing.cluster import ApiProxy, proxy_to
from tests.nodeplug.cluster import using
from tests.nodeplug.machine import Machine
from tests.small_disk import mounted

FUSE, KVM = "example.com/fuse", "example.com/kvm"
RESOURCES: list[Json] = [
    {"name": FUSE, "select": "fuse", "shares": 2},
    {"name": KVM, "select": "kvm", "api": "dra"},
]
_LISTER = podresources.DESCRIPTOR.services_by_name["PodResourcesLister"]
View = dict[str, object]


class Scenario:
    """A machine with its current daemon, observed from both sides."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._node = machine.cluster.node

    async def status(self) -> Answer:
        return await asyncio.to_thread(client.ask, self._machine.state, Question(), Answer)

    async def kubelet_view(self) -> View:
        """The kubelet's view: capacity, allocatable units, and pods' units from pod-resources."""
        async with connect(self._node.pod_resources_socket) as channel:
            listed = await Client(channel, _LISTER).call("List", podresources.ListPodResourcesRequest(), timeout=10)
        containers = [container for each in listed.pod_resources for container in each.containers]
        units = {(x.resource_name, unit) for c in containers for x in c.devices for unit in x.device_ids}
        claims = {
            (x.claim_name, y.device_name) for c in containers for x in c.dynamic_resources for y in x.claim_resources
        }
        return {
            "units": self._node.capacity().get(FUSE),
            "healthy": self._node.allocatable().get(FUSE),
            "of claims": set(await self._machine.published()),
            "leases": units | claims,
        }

    async def daemon_view(self) -> View:
        """The same view from `nodeplug status`."""
        found = await self.status()
        fuse = next((x for x in found.resources if x.api == "device-plugin"), None)
        units = {(x.resource, x.unit) for x in found.leases if x.api == "device-plugin"}
        claims = {(x.claim, x.unit) for x in found.leases if x.api == "dra"}
        of_claims = {x.id for x in found.devices if x.api == "dra"}
        return {
            "units": fuse and fuse.units,
            "healthy": fuse and fuse.healthy,
            "of claims": of_claims,
            "leases": units | claims,
        }

    async def until_agreed(self, *, units: int = 2, healthy: int = 2, leases: int = 2) -> Answer:
        """Advance the kubelet's clock until both views agree, and contain the expected numbers."""
        expected = {"units": units, "healthy": healthy, "leases": leases}
        kubelet: View = {}
        daemon: View = {}
        try:
            async with asyncio.timeout(30):
                while True:
                    kubelet = await self.kubelet_view()
                    with contextlib.suppress(NotRunning):  # not running yet, or the next daemon is about to start
                        daemon = await self.daemon_view()
                    counted = {**kubelet, "leases": len(kubelet["leases"])}  # type: ignore[arg-type]  # it is a set
                    if kubelet == daemon and expected.items() <= counted.items():
                        return await self.status()
                    await self._machine.cluster.clock.advance(0.5)
                    await asyncio.sleep(0.05)  # the daemon is another process
        except TimeoutError:
            raise AssertionError(f"the kubelet: {kubelet}; nodeplug status: {daemon}; expected {expected}") from None

    async def release(self) -> None:
        """After the kubelet has ended all pods, release their leases: otherwise they end after 5 s and a pass."""
        async with asyncio.timeout(30):
            while (await self.kubelet_view())["leases"]:
                await self._machine.cluster.clock.advance(0.5)
        for each in (await self.status()).leases:
            asked = Release(each.resource, each.api, each.unit, force=True)
            await asyncio.to_thread(client.ask, self._machine.state, asked, Released)

    async def change(self, path: Path, edit: Callable[[list[Json]], object]) -> None:
        """Edit the configuration's resources, and reload it."""
        content = json.loads(path.read_text())
        edit(content["resources"])
        path.write_text(json.dumps(content))
        await asyncio.to_thread(client.ask, self._machine.state, Reload(), dict)


async def test_kubelet_and_status_agree_after_every_step(machine: Machine, tmp_path: Path) -> None:
    async with proxy_to(machine.cluster.server) as proxy:
        write_kubeconfig(machine.kubeconfig, proxy.url, machine.cluster.server.token)
        await run_scenario(machine, tmp_path, proxy)


async def run_scenario(machine: Machine, tmp_path: Path, proxy: ApiProxy) -> None:
    """Run all steps; the daemon uses the `proxy` to the API server."""
    scenario, cluster = Scenario(machine), machine.cluster
    await machine.classes()
    first = await machine.start({"POD_UID": "one"}, RESOURCES, rescanSeconds=1)
    path = tmp_path / "config0.yaml"
    await scenario.until_agreed(leases=0)

    await cluster.create(pod("a", limits=[{FUSE: "1"}]))
    await cluster.create(
        claim("c", request(deviceClassName="kvm.example.com")), using("b", ["mine"], claims={"mine": "c"})
    )
    for name in ("a", "b"):
        await cluster.until_phase(name, "Running")
    await scenario.until_agreed()

    await proxy.cut()  # the API server is down: slices stay, and no lease ends
    machine.host.remove_node("fuse")  # hotplug
    await scenario.until_agreed(units=1, healthy=0)  # the pod has it; the other share's device is gone
    await proxy.open()
    machine.host.renumber("fuse", 0)
    await scenario.until_agreed()

    await scenario.change(path, lambda resources: resources[0].update(shares=3))  # reload, with shares allocated
    await scenario.until_agreed(units=3, healthy=0)
    await cluster.node.restart(kill=True)  # the kubelet
    await scenario.until_agreed(units=3, healthy=0)

    await machine.start({"POD_UID": "two"}, [{**RESOURCES[0], "shares": 3}, RESOURCES[1]], rescanSeconds=1)  # update
    await machine.until(lambda: len(list(cluster.node.plugins_registry.glob("*.sock"))) == 2)
    first.send_signal(signal.SIGTERM)
    assert await first.wait() == 0
    await scenario.until_agreed(units=3, healthy=0)

    path = tmp_path / "config1.yaml"
    good = path.read_text()
    path.write_text("resources: 3")  # an invalid file
    with pytest.raises(Refusal):
        await asyncio.to_thread(client.ask, machine.state, Reload(), dict)
    assert not (await scenario.until_agreed(units=3, healthy=0)).configuration.is_current
    path.write_text(good)

    for name in ("a", "b"):
        await cluster.delete("Pod", name)
    await cluster.delete("ResourceClaim", "c")
    await scenario.release()
    await scenario.until_agreed(units=3, healthy=3, leases=0)


async def test_kubelet_and_status_agree_on_a_full_disk(machine: Machine, tmp_path: Path) -> None:
    scenario, cluster, shares = Scenario(machine), machine.cluster, 500
    machine.state.mkdir()
    with mounted(machine.state, "size=4m") as disk:
        await machine.start(None, [{**RESOURCES[0], "shares": shares}, RESOURCES[1]], rescanSeconds=1)
        await scenario.until_agreed(units=shares, healthy=shares, leases=0)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        await cluster.create(
            pod("a", limits=[{FUSE: "400"}])
        )  # a few leases would still fit into the ledger's own files
        await cluster.until_phase("a", "Failed")
        found = await scenario.until_agreed(units=shares, healthy=shares, leases=0)
        assert [x for x in found.problems if "the disk is full; free some space" in x], found.problems
        (disk / "filler").unlink()
        await cluster.create(pod("b", limits=[{FUSE: "1"}]))
        await cluster.until_phase("b", "Running")
        assert (await scenario.until_agreed(units=shares, healthy=shares, leases=1)).problems == ()
        await machine.end()
