"""A ledger and its reconciler, with scripted witnesses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set

from checkpoint import Lease, LeaseRefused, Ledger
from checkpoint.holdings import ClaimEntry, ClaimName, DeviceFile, Listed, UnitEntry
from checkpoint.reconciler import Reconciler
from tests.checkpoint.build import claimed, lease

UNIT = ("example.com/gpu", "gpu-0")
OTHER = ("example.com/gpu", "gpu-9")


class Scripted:
    """Witnesses whose answers a test assigns."""

    def __init__(self) -> None:
        self.list: Listed | None = Listed(knows_its_pods=True)
        self.file: DeviceFile | None = DeviceFile()
        self.claims: Mapping[str, ClaimEntry] | None = {}
        self.cgroups: frozenset[str] | None = None
        self.busy: frozenset[str] | None = frozenset()  # pods that have processes
        self.counts = 0  # how often it was asked which have
        self.server: Mapping[str, bool] | None = {}
        self.absent = False
        self.lists = 0
        self.asked: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None  # runs while pod-resources is asked
        self.meanwhile_running: Callable[[], Awaitable[object]] | None = None  # runs while the kernel is asked
        self.hold = asyncio.Event()
        self.hold.set()

    def is_absent(self) -> bool:
        return self.absent

    async def listed(self) -> Listed | None:
        self.lists += 1
        found = self.list
        result = self.meanwhile()
        if asyncio.iscoroutine(result):
            await result
        await self.hold.wait()
        return found

    async def device_file(self) -> DeviceFile | None:
        return self.file

    async def claim_file(self) -> Mapping[str, ClaimEntry] | None:
        return self.claims

    async def pods(self) -> frozenset[str] | None:
        return self.cgroups

    async def running(self, pods: Set[str]) -> frozenset[str] | None:
        self.counts += 1
        if self.meanwhile_running is not None:
            await self.meanwhile_running()
        return None if self.busy is None else self.busy & pods

    async def wanted(self, claims: Iterable[ClaimName]) -> Mapping[str, bool] | None:
        self.asked += [claim.uid for claim in claims]
        return self.server


class StubPluginApi:
    """Restores plain units and claims, and ends claims by ending their leases."""

    def __init__(self, ledger: Ledger, witnesses: Scripted) -> None:
        self.ledger = ledger
        self.witnesses = witnesses
        self.not_restored_reason = self.never_restored_reason = ""
        self.republished: list[str] = []
        self.rewrites: DeviceFile | None = None  # content of the kubelet's file once it is written again
        self.names = "example.com/"  # prefix of our resources
        self.meanwhile: Callable[[], object] = lambda: None  # runs while units are restored

    def serves(self, resource: str) -> bool:
        return resource.startswith(self.names)

    def restore_units(self, resource: str, units: Sequence[str], entry: UnitEntry | None) -> Sequence[Lease]:
        assert self.serves(resource)
        self.meanwhile()
        return [lease(unit, resource) for unit in units]

    async def restore_claim(self, claim: ClaimName, units: Set[str]) -> str:
        if self.never_restored_reason:
            raise LeaseRefused(self.never_restored_reason, "")
        if not self.not_restored_reason:
            await self.ledger.grant([claimed("gpu-0", claim.uid or "found", name=claim.name)], guarded=False)
        return self.not_restored_reason.replace("CLAIM", claim.name)

    async def end_claim(self, claim: ClaimName, unless_answered_since: float) -> None:
        await self.ledger.end(self.ledger.of_owner(f"claim/{claim.uid}"), unless_answered_since=unless_answered_since)

    def republish(self, resources: Iterable[str]) -> None:
        self.republished += resources
        if self.rewrites is not None:
            self.witnesses.file = self.rewrites


class Node:
    """A ledger, its reconciler, and the witnesses of the reconciler."""

    def __init__(self, ledger: Ledger, grace: float = 0.0, max_wait: float = 10.0, interval: float = 3600.0) -> None:
        self.ledger = ledger
        self.witnesses = Scripted()
        self.plugin_api = StubPluginApi(ledger, self.witnesses)
        self.reconciler = Reconciler(ledger, self.witnesses, interval=interval, grace=grace, max_wait=max_wait)
        self.reconciler.units = self.reconciler.claims = self.plugin_api

    @property
    def units(self) -> list[str]:
        return [x.unit for x in self.ledger.leases()]

    async def passes(self, count: int = 1) -> None:
        for _ in range(count):
            await self.reconciler.refresh()
