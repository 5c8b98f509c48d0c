"""A kubelet's evidence of its pods, each separately controlled: pod-resources, state file and cgroups."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from checkpoint import kubelet_claims
from checkpoint.kubelet_claims import ClaimState, DriverState
from checkpoint.kubelet_claims import PreparedDevice as Answered
from dra_plugin.driver import PreparedDevice
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resourceapi.objects import v1
from tests.witnesses.kubelet import ScriptedKubelet, claim_state, pod


class Kubelet(ScriptedKubelet):
    """A kubelet below `root`, on the host at `host`. A pod's uid is its name. The gate delays its lists."""

    def __init__(self, root: Path, host: Path) -> None:
        super().__init__(root)
        self.file = root / kubelet_claims.FILE_NAME
        self.is_asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self._cgroups = host / "sys/fs/cgroup"
        self._shown: dict[str, podresources.PodResources] = {}
        self._recorded: dict[str, ClaimState] = {}
        (self._cgroups / "kubepods").mkdir(parents=True)
        (self._cgroups / "cgroup.controllers").touch()
        self.write_claims()

    async def start(self) -> None:
        """Serve pod-resources, without any pod from before."""
        self._shown.clear()
        await super().start()

    def show(self, name: str, claim: str = "", devices: Sequence[PreparedDevice] = ()) -> None:
        """Add a pod to pod-resources, with the devices of a claim."""
        units = [f"{x.device}/{x.share_id}" if x.share_id else x.device for x in devices]
        self._shown[name] = pod(name, claims={claim: units} if claim else {})

    def hide(self, name: str) -> None:
        """Remove a pod from pod-resources."""
        del self._shown[name]

    def record(self, claim: v1.ResourceClaim, *pods: str) -> None:
        """Add a claim for these pods to the state file, with an answer."""
        assert claim.status.allocation is not None
        uid, results = claim.metadata.uid, claim.status.allocation.devices.results
        answer = DriverState([Answered(device_name=x.device, share_id=x.share_id) for x in results])
        self._recorded[uid] = claim_state(uid, claim.metadata.name, pods=pods, answer=answer)
        self.write_claims(*self._recorded.values())

    def forget(self, claim: v1.ResourceClaim) -> None:
        """Remove a claim from the state file."""
        del self._recorded[claim.metadata.uid]
        self.write_claims(*self._recorded.values())

    def make_cgroup(self, name: str) -> None:
        (self._cgroups / "kubepods" / f"pod{name}").mkdir()

    def remove_cgroup(self, name: str) -> None:
        (self._cgroups / "kubepods" / f"pod{name}").rmdir()

    def run(self, name: str, claim: v1.ResourceClaim, devices: Sequence[PreparedDevice]) -> None:
        """Run a pod with the devices of a claim, and show it in all three places."""
        self.show(name, claim.metadata.name, devices)
        self.record(claim, name)
        self.make_cgroup(name)

    def end(self, name: str, claim: v1.ResourceClaim) -> None:
        """End a pod, and remove it from all three places; its claim is not unprepared."""
        self.hide(name)
        self.forget(claim)
        self.remove_cgroup(name)

    async def list(
        self, request: podresources.ListPodResourcesRequest, context: object
    ) -> podresources.ListPodResourcesResponse | bytes:
        self.is_asked.set()
        await self.gate.wait()
        self.answer = [*self._shown.values()]
        return await super().list(request, context)


@asynccontextmanager
async def started(kubelet: Kubelet) -> AsyncIterator[None]:
    """Run a kubelet that has listed a static pod, which shows that it knows its pods."""
    await kubelet.start()
    kubelet.show("coredns")
    yield
    await kubelet.stop()
