"""The kubelet's calls in a life, and what it makes of the answers."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import grpc

from dra_plugin.driver import ClaimFailed, ClaimRef
from dra_plugin.errors import NotAnsweredInTime
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.nodeplug.two_fronts import rules
from tests.nodeplug.two_fronts.cluster import Claim, Cluster, Pod
from tests.nodeplug.two_fronts.daemon import Daemon
from tests.nodeplug.two_fronts.disk import Disk
from tests.nodeplug.two_fronts.host import LivingHost, device_of

_KINDS = {  # of refusals, by words that they have
    "held by another": ("has given",),
    "unhealthy": ("is unhealthy",),
    "withheld": ("withheld",),
    "not offered": ("not offered",),
    "changed since the scan": ("no longer what was offered", "scanned anew"),
    "the disk refuses": ("No space left", "Read-only", "no lease can be recorded", "no CDI spec", "cannot"),
    "no claim": ("retrieve claim", "not allocated", "got replaced"),
}


class _Refused(Exception):
    """The answer is an error."""


class _Context:
    """Of a call to a servicer."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise _Refused(details)


_CONTEXT: Any = _Context()


class Calls:
    """Makes calls to one daemon."""

    def __init__(
        self, daemon: Daemon, cluster: Cluster, host: LivingHost, disk: Disk, tell: Callable[[str], None]
    ) -> None:
        self.lists: dict[str, dict[str, bool]] = {}
        self.figures: Counter[str] = Counter()
        self._daemon, self._cluster, self._host, self._disk, self._tell = daemon, cluster, host, disk, tell
        self._in_flight: set[tuple[str, str]] = set()
        self._listening: list[asyncio.Task[None]] = []

    @property
    def listening(self) -> Sequence["asyncio.Task[None]"]:
        """What reads lists; it never ends by itself."""
        return self._listening

    def listen(self) -> None:
        """Read every resource's list, from now on."""
        self._listening = [asyncio.ensure_future(self._read_list(name)) for name in self._daemon.plugins.servicers]

    async def hang_up(self) -> None:
        """Read no more lists."""
        tasks, self._listening = self._listening, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def allocate(self, rng: random.Random) -> None:
        """Start a pod that wants units of a resource, mostly healthy ones; another list may be on its way."""
        name = rng.choice(sorted(self.lists))
        taken = {x for pod in self._cluster.pods if pod.resource == name for x in pod.units}
        free = [
            unit
            for unit, is_healthy in self.lists[name].items()
            if unit not in taken and (name, unit) not in self._in_flight and (is_healthy or rng.random() < 0.2)
        ]
        if not free:
            return
        wanted = rng.sample(free, min(len(free), rng.choice((1, 1, 2))))
        containers = [wanted] if rng.random() < 0.8 else [[unit] for unit in wanted]
        await self.allocate_these(name, containers)

    async def allocate_these(self, name: str, containers: Sequence[Sequence[str]]) -> None:
        """Start a pod whose containers want these units of a resource."""
        wanted = [unit for units in containers for unit in units]
        request = api.AllocateRequest(
            container_requests=[api.ContainerAllocateRequest(devices_ids=each) for each in containers]
        )
        mine = {(name, unit) for unit in wanted}
        self._in_flight |= mine
        try:
            response = await self._daemon.plugins.servicers[name].allocate(request, _CONTEXT)
        except _Refused as refusal:
            self._refused(f"Allocate {name} {wanted}", str(refusal))
            return
        finally:
            self._in_flight -= mine
        assert len(response.container_responses) == len(containers)
        pod = Pod(f"pod-{self._cluster.number()}", name, tuple(wanted))
        self._cluster.pods.append(pod)
        self.figures["pods"] += 1
        self._tell(f"Allocate {name} {wanted}: yes, {pod.name}")
        rules.nobody_shares_what_is_not_shared(self._cluster)

    async def prepare(self, rng: random.Random) -> None:
        """Prepare some claims, new ones and such as are prepared already."""
        wanted = [x for x in self._cluster.claims if x.in_api and not x.ended]
        await self.prepare_these(rng.sample(wanted, min(len(wanted), rng.choice((1, 1, 2, 3)))))

    async def prepare_these(self, claims: Sequence[Claim]) -> None:
        """Prepare claims."""
        if not claims:
            return
        for claim in claims:
            claim.asked = True
        try:
            outcomes = await self._daemon.dra.calls.prepare([x.ref for x in claims], 45.0)
        except NotAnsweredInTime as error:
            self._tell(f"prepare {[x.name for x in claims]}: {error}")
            return
        if outcomes.keys() != {x.uid for x in claims}:
            raise rules.Broken(f"answers for {sorted(outcomes)}")
        for claim in claims:
            outcome = outcomes[claim.uid]
            if isinstance(outcome, ClaimFailed):
                self._refused(f"prepare {claim.name} {claim.names}", outcome.reason)
                if claim.answer is not None and not self._may_be_refused(claim):
                    raise rules.Broken(f"{claim.name} was prepared, and is refused now: {outcome.reason}")
                continue
            if claim.answer not in (None, outcome):
                raise rules.Broken(f"{claim.name} was answered {claim.answer}, and now {outcome}")
            self.figures["repeats" if claim.answer else "claims"] += 1
            self._tell(f"prepare {claim.name} {claim.names}: yes")
            claim.answer, claim.listed = outcome, () if claim.ended or claim.forgotten else outcome
            self._cluster.settle()
            claim.disturbed, claim.moves = False, self._moves(claim)
            rules.nobody_shares_what_is_not_shared(self._cluster)

    async def unprepare(self, rng: random.Random) -> None:
        """Unprepare claims whose pods are over, some of them again, and one that nobody knows."""
        over = [x for x in self._cluster.claims if x.ended and not x.forgotten]
        await self.unprepare_these(rng.sample(over, min(len(over), rng.choice((1, 1, 2, 3)))), rng.random() < 0.1)
        for claim in over:
            if not claim.ended and rng.random() < 0.8:
                claim.in_api, claim.forgotten = False, True

    async def unprepare_these(self, claims: Sequence[Claim], with_unknown: bool = False) -> None:
        """Unprepare claims. From the moment of the call nobody relies on them."""
        refs = [x.ref for x in claims]
        if with_unknown:
            refs.append(ClaimRef("default", "unknown", "ffffffff-0000-4000-8000-000000000000"))
        if not refs:
            return
        for claim in claims:
            claim.answer = None
        try:
            outcomes = await self._daemon.dra.calls.unprepare(refs, 45.0)
        except NotAnsweredInTime as error:
            self._tell(f"unprepare {[x.name for x in refs]}: {error}")
            return
        if outcomes.keys() != {x.uid for x in refs}:
            raise rules.Broken(f"answers for {sorted(outcomes)}")
        for claim in claims:
            if (failed := outcomes[claim.uid]) is not None:
                self._refused(f"unprepare {claim.name}", failed.reason)
                if not self._disk.fails:
                    raise rules.Broken(f"{claim.name} cannot be unprepared: {failed.reason}")
                continue
            self._tell(f"unprepare {claim.name}: yes")
            claim.answer = None  # an earlier call to prepare it may have been answered meanwhile
            claim.ended = claim.asked = False
            self.figures["unprepared"] += 1

    async def _read_list(self, name: str) -> None:
        stream = self._daemon.plugins.servicers[name].list_and_watch(api.Empty(), _CONTEXT)
        async for encoded in stream:
            self.lists[name] = rules.listed(encoded)

    def _refused(self, what: str, reason: str) -> None:
        if "nodeplug failed" in reason:
            raise rules.Broken(f"{what}: {reason}")
        kind = next((kind for kind, words in _KINDS.items() if any(x in reason for x in words)), "other")
        self.figures[f"refused: {kind}"] += 1
        self._tell(f"{what}: refused: {reason}")

    def _may_be_refused(self, claim: Claim) -> bool:
        """Whether what was answered before need not be answered again (rule 4 of prepare.py), or nobody can now."""
        is_another = claim.disturbed or self._moves(claim) != claim.moves
        return is_another or self._disk.fails or not self._cluster.server_is_up or not claim.in_api

    def _moves(self, claim: Claim) -> dict[str, int]:
        return {x: self._host.moves.get(x, 0) for x in map(device_of, (y.device for y in claim.results))}
