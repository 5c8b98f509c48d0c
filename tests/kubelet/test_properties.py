"""Random sequences of events: no device has two owners, and recorded devices are never lost."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Coroutine
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from checkpoint.kubelet_devices import load
from grpcunix import RpcError
from kubelet import DEFAULT_VERSION, Node, Version, container, pod
from kubelet.devicemanager import Device
from kubelet.stubs import DevicePluginStub

T = TypeVar("T")

RESOURCES = ["example.com/a", "example.com/b"]
IDS = [f"d{number}" for number in range(6)]

resources = st.sampled_from(RESOURCES)
lists = st.lists(st.builds(Device, st.sampled_from(IDS), st.sampled_from(["Healthy", "Healthy", "Unhealthy"])),
                 max_size=6, unique_by=lambda device: device.id)  # fmt: skip
limits = st.dictionaries(resources, st.integers(0, 3), max_size=2)
picks = st.integers(0, 1000)


class Kubelet(RuleBasedStateMachine):
    """A node with two plugins for each of two resources."""

    kubernetes: Version = "1.36"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="k"))
        self.node = Node(self.folder, kubernetes=self.kubernetes, cgroups=self.folder / "cgroup")
        self.do(self.node.start())
        self.plugins = {
            (resource, number): DevicePluginStub(self.node.device_plugins / f"{resource[-1]}{number}.sock", resource)
            for resource in RESOURCES
            for number in range(2)
        }
        self.count = 0
        self.recorded: dict[tuple[str, str], dict[str, list[str]]] = {}  # (pod, container) -> resource -> ids

    def teardown(self) -> None:
        self.do(self.node.stop())
        for plugin in self.plugins.values():
            self.do(plugin.stop())
        self.runner.close()
        shutil.rmtree(self.folder)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def until_list_or_plugin_end(self, resource: str, devices: list[Device]) -> None:
        """Wait for the list or for the plugin's end, which the exit of its older twin can cause at any time."""
        state = self.node.manager.state
        wanted = {device.id: device for device in devices}
        with contextlib.suppress(TimeoutError):
            await self.node.until(
                lambda: (
                    state.all.get(resource) == wanted
                    or resource not in state.endpoints
                    or state.endpoints[resource].is_stopped
                ),
                1.0,
            )

    @rule(resource=resources, number=st.integers(0, 1), devices=lists)
    def register(self, resource: str, number: int, devices: list[Device]) -> None:
        async def register() -> None:
            plugin = self.plugins[resource, number]
            plugin.devices = devices
            await plugin.stop()
            if self.node.release.distinguishes_instances:  # a path that is used again may be stuck
                self.count += 1
                plugin.socket = plugin.socket.with_name(f"{resource[-1]}{number}-{self.count}.sock")
            await plugin.start()
            try:
                await plugin.register(self.node.kubelet_socket)
            except RpcError as error:
                # before 1.37 the end of its older twin may cut off a plugin that is just being asked for its options
                if self.node.release.distinguishes_instances or not error.details.endswith("the channel was closed"):
                    raise
            else:
                await self.until_list_or_plugin_end(resource, devices)

        self.do(register())

    @rule(resource=resources, number=st.integers(0, 1), devices=lists)
    def update(self, resource: str, number: int, devices: list[Device]) -> None:
        async def update() -> None:
            plugin = self.plugins[resource, number]
            plugin.update(devices)
            if plugin.streams:
                await self.until_list_or_plugin_end(resource, devices)

        self.do(update())

    @rule(resource=resources, number=st.integers(0, 1))
    def stop_plugin(self, resource: str, number: int) -> None:
        self.do(self.plugins[resource, number].stop())

    @rule(resource=resources)
    def cut_stream_of_resource(self, resource: str) -> None:
        self.do(self.node.cut_stream(resource))

    @rule(app=limits, other=limits, init=limits, sidecar=limits)
    def admit(self, app: dict[str, int], other: dict[str, int], init: dict[str, int], sidecar: dict[str, int]) -> None:
        self.count += 1
        wanted = pod(
            f"p{self.count}",
            container("app", app),
            container("other", other),
            init=(container("init", init), container("side", sidecar, sidecar=True)),
            uid=f"p{self.count}",
        )
        if self.do(self.node.admit(wanted)).phase == "Running":
            for each in wanted.all_containers:
                self.recorded[wanted.uid, each.name] = self.node.allocations(wanted, each.name)

    @precondition(lambda self: self.node.active_pods())
    @rule(pick=picks, name=st.sampled_from(["app", "other", "side"]))
    def restart_container(self, pick: int, name: str) -> None:
        uid = self.some_pod(pick)
        self.do(self.node.exit_container(uid, name))
        # A resource without a plugin at the pod's admission is allocated when its container starts again. A container
        # of the pod that could not start for lack of devices is started again as well.
        for owner in [each for each in self.recorded if each[0] == uid]:
            held = self.node.allocations(*owner)
            assert held.items() >= self.recorded[owner].items()
            self.recorded[owner] = held

    @precondition(lambda self: self.node.active_pods())
    @rule(pick=picks)
    def finish(self, pick: int) -> None:
        uid = self.some_pod(pick)
        self.node.finish(uid)
        self.do(self.node.until(lambda: self.node.status(uid).phase == "Succeeded"))
        self.forget(uid)

    @precondition(lambda self: self.node.active_pods())
    @rule(pick=picks)
    def remove(self, pick: int) -> None:
        uid = self.some_pod(pick)
        self.do(self.node.remove(uid))
        self.forget(uid)

    @rule(kill=st.booleans(), is_held=st.booleans())
    def restart_kubelet(self, kill: bool, is_held: bool) -> None:
        if is_held:
            self.node.sources.hold()
        self.do(self.node.restart(kill=kill))
        if is_held:
            assert self.node.active_pods() == []
            self.node.sources.release()
            self.do(self.node.until(lambda: self.node.sources.all_ready))
        # an ended container is admitted again, and finds no healthy device, so its pod is rejected
        active = {each.uid for each in self.node.active_pods()}
        self.recorded = {owner: held for owner, held in self.recorded.items() if owner[0] in active}

    @invariant()
    def no_device_has_two_owners(self) -> None:
        keepers = [(owner, held) for owner, held in self.held().items() if owner[1] != "init"]
        for (one, his), (other, hers) in combinations(keepers, 2):
            for resource in RESOURCES:
                assert not set(his.get(resource, ())) & set(hers.get(resource, ())), (one, other, resource)

    @rule()
    def reboot(self) -> None:
        self.do(self.node.reboot())
        active = {each.uid for each in self.node.active_pods()}
        self.recorded = {owner: held for owner, held in self.recorded.items() if owner[0] in active}

    @invariant()
    def every_active_pod_has_a_cgroup(self) -> None:
        living = {self.node.cgroup(each) for each in self.node.active_pods()}
        there = {path for path in (self.folder / "cgroup").rglob("kubepods-*pod*.slice") if path.is_dir()}
        assert there == living

    @invariant()
    def recorded_devices_are_kept(self) -> None:
        assert self.held() == self.recorded

    @invariant()
    def checkpoint_contains_recorded_devices(self) -> None:
        if not any(self.recorded.values()):
            return
        found = load((self.node.device_plugins / "kubelet_internal_checkpoint").read_bytes())
        in_file = {(e.pod_uid, e.container, e.resource): sorted(e.device_ids) for e in found.entries or ()}
        for (uid, name), held in self.recorded.items():
            for resource, ids in held.items():
                assert in_file[uid, name, resource] == sorted(ids)

    def held(self) -> dict[tuple[str, str], dict[str, list[str]]]:
        return {
            (each.uid, one.name): self.node.allocations(each, one.name)
            for each in self.node.active_pods()
            for one in each.all_containers
        }

    def some_pod(self, pick: int) -> str:
        pods = self.node.active_pods()
        return pods[pick % len(pods)].uid

    def forget(self, uid: str) -> None:
        self.recorded = {owner: held for owner, held in self.recorded.items() if owner[0] != uid}


class LatestKubelet(Kubelet):
    """The same with plugins that are distinguished by path."""

    kubernetes = DEFAULT_VERSION


TestKubelet = Kubelet.TestCase
TestLatestKubelet = LatestKubelet.TestCase
TestKubelet.settings = TestLatestKubelet.settings = settings(
    max_examples=settings().max_examples // 3, stateful_step_count=20
)
