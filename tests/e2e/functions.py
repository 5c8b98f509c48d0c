"""A daemon's functions as observed in a cluster of stand-ins, each with a condition that shows that it works."""

import asyncio
import re
from collections.abc import Awaitable, Callable

from tests.controlplane.scheduler.kit import claim, device_class, pod, request
from tests.nodeplug.cluster import NODE, NodeCluster, using


class Functions:
    """The functions of a daemon that is restarted repeatedly, each time with new pods.

    It offers `example.com/fuse`, `example.com/tun` with CDI, and `example.com/kvm` for claims.
    """

    def __init__(self, cluster: NodeCluster) -> None:
        self.cluster = cluster
        self._made: dict[str, str] = {}  # by function, the pod of this start
        self._starts = 0

    async def log(self) -> str:
        """The daemon's log since the start."""
        raise NotImplementedError

    def functions(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """The functions, each with a condition; a check triggers what it observes."""
        return {
            "units": lambda: self._runs("fuse", "example.com/fuse"),
            "units with CDI": lambda: self._runs("tun", "example.com/tun"),
            "slices": lambda: self.cluster.all("ResourceSlice"),
            "claims": self._claim_runs,
            "events": self._receives_kernel_events,
        }

    async def prepare_claims(self) -> None:
        """Create the DeviceClass, once the kubelet has created its Node."""
        selector = 'device.attributes["nodeplug.dev"].resource == "example.com/kvm"'
        await self.cluster.create(device_class("kvm.example.com", selector))
        await self.cluster.until(lambda: self.cluster.get("Node", NODE))

    async def end_pods(self) -> None:
        """Delete the objects since the start. The next daemon unprepares the remaining claims."""
        for name in self._made.values():
            await self.cluster.delete("Pod", name)
        self._made.clear()

    async def forget_slices(self) -> None:
        """Delete the daemon's ResourceSlices."""
        for each in await self.cluster.all("ResourceSlice"):
            await self.cluster.delete("ResourceSlice", each["metadata"]["name"])

    async def until_logged(self, words: str) -> None:
        """Wait until a line of the log matches a regular expression."""

        async def is_logged() -> bool:
            return re.search(words, await self.log()) is not None

        await self.until(is_logged, words)

    async def until(self, holds: Callable[[], Awaitable[object]], what: str) -> None:
        """Advance the kubelet's clock until a condition is true. Raises AssertionError with `what` and the log."""
        try:
            async with asyncio.timeout(60):
                while not await holds():
                    await self.cluster.clock.advance(1.0)
                    await asyncio.sleep(0.05)  # the daemon is another process
        except TimeoutError as error:
            raise AssertionError(f"{what}\n{await self.log()}") from error

    async def _runs(self, name: str, resource: str) -> bool:
        if name not in self._made:
            self._made[name] = f"{name}-{self._starts}"
            await self.cluster.create(pod(self._made[name], limits=[{resource: "1"}]))
        return await self._is_running(name)

    async def _claim_runs(self) -> bool:
        if "kvm" not in self._made:
            name = self._made["kvm"] = f"kvm-{self._starts}"
            made = claim(name, request(deviceClassName="kvm.example.com"))
            await self.cluster.create(made, using(name, ["mine"], claims={"mine": name}))
        return await self._is_running("kvm")

    async def _is_running(self, name: str) -> bool:
        found = await self.cluster.get("Pod", self._made[name])
        return bool(found.get("status", {}).get("phase") == "Running")

    async def _receives_kernel_events(self) -> bool:
        return "registered" in (log := await self.log()) and "wait for a rescan" not in log
