"""All witnesses of one node; each has its own method and time limit."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from functools import partial
from typing import TypeAlias

from checkpoint.holdings import ClaimEntry, ClaimName, DeviceFile, Listed
from witnesses.kubelet_files import KubeletFiles
from witnesses.pod_resources import PodResources
from witnesses.threads import in_thread

Wanted: TypeAlias = Callable[[Sequence[ClaimName]], Awaitable[Mapping[str, bool] | None]]


class NodeWitnesses:
    """All witnesses for the reconciler (`checkpoint.reconciler.Witnesses`)."""

    def __init__(
        self,
        pod_resources: PodResources,
        files: KubeletFiles,
        pods: Callable[[], frozenset[str] | None],
        wanted: Wanted | None = None,
        running: Callable[[Set[str]], frozenset[str] | None] = lambda _: frozenset(),
    ) -> None:
        """Use these witnesses. `pods` and `running` read cgroups, in threads; `wanted` needs an API server."""
        self._pod_resources = pod_resources
        self._files = files
        self._pods = pods
        self._running = running
        self._wanted = wanted

    def is_absent(self) -> bool:
        """Return whether no kubelet can name anything."""
        return self._pod_resources.is_absent()

    async def listed(self) -> Listed | None:
        """Return what pod-resources lists; listing makes the kubelet forget ended pods, but only in its memory."""
        listed = await self._pod_resources.listed()
        self._files.mark()
        return listed

    async def device_file(self) -> DeviceFile | None:
        """Return the file of the kubelet's device manager."""
        return await in_thread(self._files.devices)

    async def claim_file(self) -> Mapping[str, ClaimEntry] | None:
        """Return the file of the kubelet's DRA manager."""
        return await in_thread(self._files.claims)

    async def pods(self) -> frozenset[str] | None:
        """Return the uids of the pods that have cgroups."""
        return await in_thread(self._pods)

    async def running(self, pods: Set[str]) -> frozenset[str] | None:
        """Return which of these pods have processes; None if that is unknown."""
        return await in_thread(partial(self._running, pods))

    async def wanted(self, claims: Sequence[ClaimName]) -> Mapping[str, bool] | None:
        """Return which claims the API server wants prepared."""
        return None if self._wanted is None else await self._wanted(claims)
