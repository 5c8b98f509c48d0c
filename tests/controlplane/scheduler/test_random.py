"""Random lives of pods, claims, devices and schedulers: no device is allocated twice, and all are free at the end."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from resourceapi.client import Unreachable
from tests.controlplane.scheduler.kit import (
    Json,
    SchedulerCluster,
    claim,
    device_class,
    node,
    pod,
    request,
    slice_,
    template,
)

NODES = ("n1", "n2")
SHARED = {"name": "shared", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "4Gi"}}}
STEPS = 60


class RandomWorkload:
    """Random changes of a cluster."""

    def __init__(self, cluster: SchedulerCluster, rng: random.Random) -> None:
        self._cluster, self._rng = cluster, rng
        self._pods: list[str] = []
        self._count = 0
        self._tainted: set[str] = set()

    async def begin(self) -> None:
        """Create two nodes with devices, and one object for each way to request them."""
        await self._cluster.create(
            device_class("gpu", "device.allowMultipleAllocations == false", extendedResourceName="example.com/gpu"),
            device_class("memory", "device.allowMultipleAllocations"),
            template("one"),
            template("two", request(count=2)),
            template("share", request(deviceClassName="memory", capacity={"requests": {"memory": "1Gi"}})),
            *[claim(f"common-{number}") for number in range(2)],
        )
        for name in NODES:
            await self._cluster.create(node(name), slice_(name, "a", "b", "c", SHARED))

    async def step(self) -> None:
        """Make one random change, without waiting for the scheduler's reaction."""
        moves = {
            self._add: 6,
            self._remove: 4,
            self._finish: 2,
            self._taint: 1,
            self._restart: 1,
            self._wait_until_idle: 1,
        }
        (move,) = self._rng.choices(list(moves), list(moves.values()))
        await move()

    async def end(self) -> None:
        """Delete all pods, and wait until their devices are free."""
        for name in list(self._pods):
            await self._cluster.delete("Pod", name)

        async def is_empty() -> bool:
            claims = await self._cluster.all("ResourceClaim")
            return all(
                each["metadata"]["name"].startswith("common-") and not _allocated_devices(each) for each in claims
            )

        await self._cluster.until(is_empty)

    async def _add(self) -> None:
        self._count += 1
        name = f"p{self._count}"
        wanted: dict[str, Any] = self._rng.choice(
            [
                {"templates": {"g": "one"}},
                {"templates": {"g": "two"}},
                {"templates": {"g": "one", "h": "share"}},
                {"templates": {"h": "share"}},
                {"claims": {"g": f"common-{self._rng.randrange(2)}"}},
                {"claims": {"g": "common-0"}, "templates": {"h": "one"}},
                {"limits": [{"example.com/gpu": "1"}]},
            ]
        )
        self._pods.append(name)
        await self._cluster.create(pod(name, **wanted))

    async def _remove(self) -> None:
        if self._pods:
            name = self._pods.pop(self._rng.randrange(len(self._pods)))
            await self._cluster.delete("Pod", name)

    async def _finish(self) -> None:
        if self._pods:
            await self._cluster.finish(self._rng.choice(self._pods), self._rng.choice(["Succeeded", "Failed"]))

    async def _taint(self) -> None:
        """Add or remove a NoSchedule taint. An evicting taint would delete pods that the list still contains."""
        name = self._rng.choice(NODES)
        self._tainted ^= {name}
        taints = [{"key": "example.com/ill", "effect": "NoSchedule"}] if name in self._tainted else []
        found = [{"name": "a", "taints": taints}, {"name": "b"}, {"name": "c"}, SHARED]
        await self._cluster.patch("ResourceSlice", f"{name}-slice", {"spec": {"devices": found}})

    async def _restart(self) -> None:
        await self._cluster.restart()

    async def _wait_until_idle(self) -> None:
        """Wait until the scheduler has handled all earlier changes."""
        self._count += 1
        name = f"plain{self._count}"
        await self._cluster.create(pod(name))
        await self._cluster.until_bound(name)


class FaultyConnection:
    """Sometimes loses the request or the answer of a write."""

    def __init__(self, rng: random.Random, chance: float) -> None:
        self._rng, self._chance = rng, chance

    def __call__(self, method: str, path: str, send: Callable[[], Any]) -> Any:
        roll = self._rng.random()
        if method == "GET" or roll > self._chance:
            return send()
        if roll < self._chance / 2:
            send()
        raise Unreachable(f"{method} {path}: connection lost")


@pytest.mark.parametrize(("seed", "chance"), [(0, 0.04), (1, 0.0), (2, 0.04), (3, 0.0)])
async def test_no_device_is_allocated_twice(seed: int, chance: float) -> None:
    rng = random.Random(seed)
    async with SchedulerCluster(interceptor=FaultyConnection(random.Random(seed), chance)) as cluster:
        workload, first_version = RandomWorkload(cluster, rng), cluster.server.store.version
        await workload.begin()
        for _ in range(STEPS):
            await workload.step()
        await workload.end()
        assert _check_history(cluster, first_version) > 0


def _check_history(cluster: SchedulerCluster, first_version: int) -> int:
    """Check the claims after every single write, and return the number of allocations."""
    now: dict[tuple[str, str], list[tuple[str, str]]] = {}
    allocations = 0
    for event in cluster.server.store.events_after("resourceclaims.resource.k8s.io", first_version):
        before = now.pop(event.key, [])
        if event.new is not None:
            now[event.key] = _allocated_devices(event.new)
            allocations += bool(now[event.key]) and not before
        holders = Counter(device for devices in now.values() for device in devices)
        for (pool, device), count in holders.items():
            assert count <= (4 if device == "shared" else 1), f"{pool}/{device} is held {count} times"
    return allocations


def _allocated_devices(claim: Json) -> list[tuple[str, str]]:
    allocation = claim.get("status", {}).get("allocation") or {"devices": {}}
    return [(each["pool"], each["device"]) for each in allocation["devices"].get("results", ())]
