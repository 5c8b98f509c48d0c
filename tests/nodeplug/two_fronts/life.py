"""One life: the steps of a plan, one after the other, and after each of them the rules."""

import asyncio
import contextlib
import logging
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

from checkpoint import CheckpointError
from resourceapi.objects import v1
from tests.nodeplug.two_fronts import disk as disks
from tests.nodeplug.two_fronts import rules, wire
from tests.nodeplug.two_fronts.calls import Calls
from tests.nodeplug.two_fronts.cluster import Cluster, result
from tests.nodeplug.two_fronts.daemon import Daemon, Folder
from tests.nodeplug.two_fronts.disk import Died, Disk
from tests.nodeplug.two_fronts.host import MISC_NAMES, PHYSICAL, VIRTUAL, LivingHost, resources
from tests.nodeplug.two_fronts.plan import Step
from tests.nodeplug.two_fronts.process import Clock, Loop, turns
from tests.nodeplug.two_fronts.scheduler import schedule


class Failure(AssertionError):
    """A life in which a rule was broken; `diary` says what happened until then."""

    def __init__(self, why: str, diary: Sequence[str]) -> None:
        super().__init__(why)
        self.diary = tuple(diary)


def live(seed: int, steps: Sequence[Step]) -> Counter[str]:
    """Live, and return the figures. Raises `Failure`."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="two-fronts-", dir=memory if memory.is_dir() else None) as folder:
        clock = Clock()
        life = Life(Path(folder), clock, seed)
        loop = Loop(clock)
        with (
            disks.in_place(life.disk),
            wire.in_place(life.cluster),
            patch.object(time, "time", clock.wall),
            _logged_to(life),
        ):
            loop.set_exception_handler(lambda _, context: life.failed(context))
            try:
                loop.run_until_complete(life.run(steps))
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                raise Failure(why, life.diary) from error
            finally:
                loop.end_process()
                loop.close()
        return life.figures


class Life:
    """See the module."""

    def __init__(self, root: Path, clock: Clock, seed: int) -> None:
        self.folder = Folder(root)
        self.folder.state.parent.mkdir(exist_ok=True)
        self.folder.pod_resources.touch()
        self.cluster, self.disk = Cluster(), Disk()
        self.figures: Counter[str] = Counter()
        self.diary: list[str] = []
        self._clock = clock
        self._resources = resources(random.Random(seed))
        self._host = LivingHost(root / "host", self._resources)
        self._daemon: Daemon | None = None
        self._calls: Calls | None = None
        self._boots = 0
        self._is_whole = False  # since the last start the disk has refused nothing
        self._defects: list[str] = []
        self._starting: Daemon | None = None
        self._scanned: object = None
        self._loop: Loop

    async def run(self, steps: Sequence[Step]) -> None:
        """Live through the steps, and then let everything end well."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        self._loop = loop
        await self._start()
        for number, step in enumerate(steps):
            self.figures["steps"] += 1
            mishap = f", {step.mishap} after {step.after} effects" if step.mishap else ""
            self.diary.append(f"{number} {step.kind}{mishap}")
            await self._take(step)
        self.diary.append("everything ends well")
        await self._end_well()

    def tell(self, text: str) -> None:
        """Write into the diary."""
        self.diary.append(f"    [{self._clock.now - 1_800_000_000:.3f}] {text}")

    def failed(self, context: dict[str, object]) -> None:
        """Take note of an error that nobody has handled."""
        error = context.get("exception")
        if error is not None and not isinstance(error, Died | asyncio.CancelledError):
            self._defects.append(f"{context['message']}: {error!r}")

    # what a step is

    async def _take(self, step: Step) -> None:
        rng = random.Random(step.seed)
        self._loop.random = random.Random(step.seed + 1)
        for pod in self.cluster.pods:
            pod.recorded = True
        if not self.cluster.server_is_up and rng.random() < 0.3:
            await self._server(rng)
        if not self.cluster.kubelet_is_up and rng.random() < 0.5:
            await self._as_a_process(self._kubelet(rng))
        if step.kind == "reboot" and self._starting is not None:
            await self._killed("by a power cut")
        if step.mishap == "death":
            self.disk.will_be_the_end(step.after)
        elif step.mishap:
            self.disk.will_fail(step.after, step.mishap)
        refused = self.disk.refused
        await self._as_a_process(getattr(self, f"_{step.kind}")(rng))
        self._is_whole = self._is_whole and self.disk.refused == refused
        if self.disk.fails and rng.random() < 0.7:
            self.disk.recover()
        if self._daemon is None and rng.random() < 0.9:
            if rng.random() < 0.3:
                self.disk.will_be_the_end(int(rng.expovariate(0.3)))  # in the middle of repairs
            await self._start()
        self._check()

    async def _as_a_process(self, work: Awaitable[None]) -> None:
        """Do what the daemon takes part in, until it has done all that there is to do, or is dead."""
        died: asyncio.Future[str] = self._loop.create_future()
        self.disk.dying = died.set_result
        task = asyncio.ensure_future(work)
        with self.disk.watched():
            while not died.done():
                mine = {asyncio.current_task(), *(self._calls.listening if self._calls else ())}
                busy = asyncio.all_tasks() - mine
                if not busy:
                    break
                await asyncio.wait({*busy, died}, return_when=asyncio.FIRST_COMPLETED)
            await turns(5)  # for lists that are sent
        if died.done():
            await self._killed(died.result())
        if task.done() and not task.cancelled() and (error := task.exception()) and not isinstance(error, Died):
            raise error

    async def _killed(self, when: str) -> None:
        self.figures[f"deaths {when}"] += 1
        self.tell(f"dead {when}")
        assert self._starting is not None
        await self._starting.bury(self.disk)
        self._part()

    def _part(self) -> None:
        if self._calls is not None:
            self.figures.update(self._calls.figures)
        self._daemon = self._starting = self._calls = None

    async def _start(self) -> None:
        while self._daemon is None:
            refused = self.disk.refused
            await self._as_a_process(self._begin())
            self._is_whole = self.disk.refused == refused and self._daemon is not None

    async def _begin(self) -> None:
        daemon = self._starting = Daemon(self.folder, self._resources, self._host.host)
        await daemon.begin(f"boot-{self._boots}")
        rules.files_have_leases(self.folder, daemon.ledger.leases())
        await daemon.repair(self._host.assigned())
        self._scanned = self._host.state()
        self._calls = Calls(daemon, self.cluster, self._host, self.disk, self.tell)
        if self.cluster.kubelet_is_up:
            self._calls.listen()
        self._daemon = daemon
        self.figures["starts"] += 1
        self.tell("started")

    # steps: calls

    async def _call(self, rng: random.Random) -> None:
        """Some calls at once; callers may give up."""
        if self._calls is None or not self.cluster.kubelet_is_up:
            return
        calls = [self._one_call(rng) for _ in range(rng.choice((1, 2, 2, 3, 4)))]
        tasks = [asyncio.ensure_future(call) for call in calls]
        if rng.random() < 0.3:
            event = rng.choice((self._end_pods, self._finish, self._delete))
            tasks.append(asyncio.ensure_future(self._meanwhile(event)))
        if rng.random() < 0.3:
            tasks.append(asyncio.ensure_future(self._look_around()))
        for task in tasks:
            if rng.random() < 0.1:
                await turns(rng.randrange(30))
                task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _one_call(self, rng: random.Random) -> None:
        assert self._calls is not None
        own = random.Random(rng.random())
        make = rng.choice((self._calls.allocate, self._calls.prepare, self._calls.prepare, self._calls.unprepare))
        await turns(own.randrange(6))
        await make(own)

    async def _meanwhile(self, what: Callable[[random.Random], Awaitable[None]]) -> None:
        own = random.Random(self._loop.random.random())
        await turns(own.randrange(40))
        await what(own)

    async def _schedule(self, rng: random.Random) -> None:
        """The scheduler gives a claim devices; it may have the name of one that was deleted."""
        if self._daemon is None or len(self.cluster.claims) > 6 or not (results := self._choice(rng)):
            return
        number = self.cluster.number()
        gone = [x.name for x in self.cluster.claims if not x.in_api]
        used = {x.name for x in self.cluster.claims if x.in_api}
        name = rng.choice([x for x in gone if x not in used] or [f"claim-{number}"])
        claim = self.cluster.add_claim(name, f"{rng.getrandbits(32):08x}-0000-4000-8000-{number:012x}", results)
        self.tell(f"{claim.ref} gets {claim.names}")

    async def _reallocate(self, rng: random.Random) -> None:
        """A claim is allocated anew, and nobody had it unprepared."""
        claims = [x for x in self.cluster.claims if x.in_api and x.asked]
        if self._daemon is None or not claims or not (results := self._choice(rng)):
            return
        claim = rng.choice(claims)
        self.cluster.allocate_anew(claim, results)
        self.tell(f"{claim.ref} gets {claim.names} instead")

    def _choice(self, rng: random.Random) -> Sequence[v1.DeviceRequestAllocationResult]:
        assert self._daemon is not None
        return schedule(rng, self.cluster, self._daemon.dra)

    # steps: ends

    async def _finish(self, rng: random.Random) -> None:
        """Pods that have claims are over; or the kubelet gives up."""
        for claim in self.cluster.claims:
            has_pod = claim.asked and not claim.ended and not claim.forgotten
            if has_pod and rng.random() < (0.5 if claim.listed else 0.2):
                claim.ended, claim.listed = True, ()
                self.tell(f"the pod of {claim.name} is over")
        self.cluster.settle()

    async def _end_pods(self, rng: random.Random) -> None:
        """Pods of the device plugin API are over: the kubelet tells nobody."""
        over = [x for x in self.cluster.pods if rng.random() < 0.5]
        self.cluster.pods = [x for x in self.cluster.pods if x not in over]
        self.tell(f"over: {[x.name for x in over]}")

    async def _delete(self, rng: random.Random) -> None:
        """A claim is deleted by force; its pod may run on, or nobody may know of it any more."""
        claims = [x for x in self.cluster.claims if x.in_api or x.listed]
        if not claims:
            return
        claim = rng.choice(claims)
        claim.in_api = False
        if rng.random() < 0.5:
            claim.listed, claim.forgotten = (), True
        self.tell(f"{claim.ref} is deleted by force, {'and forgotten' if claim.forgotten else 'its pod runs on'}")
        self.cluster.settle()

    async def _pass_time(self, rng: random.Random) -> None:
        """Time passes, and the daemon looks around as it does now and then."""
        self._clock.now += rng.choice((1.0, 10.0, 100.0))
        if self._daemon is not None:
            await self._look_around()

    async def _look_around(self) -> None:
        assert self._daemon is not None
        await asyncio.gather(self._daemon.plugins.reconcile(), self._daemon.dra.reconcile())

    # steps: the hardware, and who administers it

    async def _unplug(self, rng: random.Random) -> None:
        device = rng.choice(sorted(self._host.plugged - {*VIRTUAL}) or [""])
        if device:
            with self.disk.unwatched():
                self._host.unplug(device)
            self.tell(f"{device} is unplugged")
            await self._rescan(rng, 0.8)

    async def _plug(self, rng: random.Random) -> None:
        gone = sorted({PHYSICAL, *(f"misc-{x}" for x in MISC_NAMES)} - self._host.plugged)
        if gone:
            self._plug_in(rng.choice(gone))
            await self._rescan(rng, 0.8)

    async def _move(self, rng: random.Random) -> None:
        """Another device takes the place of one, behind everybody's back."""
        if devices := sorted(x for x in self._host.plugged if x.startswith("misc-")):
            self._plug_in(rng.choice(devices))

    def _plug_in(self, device: str) -> None:
        with self.disk.unwatched():
            self._host.plug(device)
        self.tell(f"{device} is plugged in")

    async def _rescan(self, rng: random.Random, likely: float = 1.0) -> None:
        if self._daemon is not None and rng.random() < likely:
            self._scanned = None
            await self._daemon.update(self._host.assigned())
            self._scanned = self._host.state()

    async def _health(self, rng: random.Random) -> None:
        device = rng.choice(sorted(self._host.plugged) or [""])
        self._host.ill ^= {device}
        self.tell(f"{device} is {'ill' if device in self._host.ill else 'well'}")
        await self._rescan(rng)

    async def _withhold(self, rng: random.Random) -> None:
        """Somebody keeps a device back, or lets it be had again."""
        if self._daemon is None:
            return
        ledger, device = self._daemon.ledger, rng.choice([f"misc-{x}" for x in MISC_NAMES])
        with contextlib.suppress(CheckpointError):
            if device in {x.device for x in ledger.withheld()}:
                await ledger.readmit(device)
            else:
                await ledger.withhold(device, "somebody looks at it")
        self.tell(f"withheld: {[x.device for x in ledger.withheld()]}")
        await self._rescan(rng)

    # steps: who comes and goes

    async def _kubelet(self, rng: random.Random) -> None:
        """The kubelet stops, or is back and asks again for what it has."""
        self.cluster.kubelet_is_up = not self.cluster.kubelet_is_up
        self.tell(f"the kubelet is {'up' if self.cluster.kubelet_is_up else 'down'}")
        with self.disk.unwatched():
            if self.cluster.kubelet_is_up:
                self.folder.pod_resources.touch()
            else:
                self.folder.pod_resources.unlink()
        if self._calls is None:
            return
        await self._calls.hang_up()
        if self.cluster.kubelet_is_up:
            self._calls.listen()
            await self._calls.prepare_these([x for x in self.cluster.claims if x.in_api and x.listed])

    async def _server(self, rng: random.Random) -> None:
        """The API server cannot be reached, or can again."""
        self.cluster.server_is_up = not self.cluster.server_is_up
        self.tell(f"the API server is {'up' if self.cluster.server_is_up else 'down'}")

    async def _stop(self, rng: random.Random) -> None:
        """The daemon is stopped, perhaps in the middle of calls."""
        if self._daemon is None or self._calls is None:
            return
        calls = asyncio.ensure_future(self._call(rng)) if rng.random() < 0.5 else None
        await turns(rng.randrange(30))
        self.tell("stopping")
        await self._calls.hang_up()
        self._daemon.dra.calls.close()
        if calls is not None:
            await calls  # as a server does that stops
        await self._daemon.end()
        self._part()

    async def _kill(self, rng: random.Random) -> None:
        """The daemon dies in the middle of calls, not by the disk."""
        if self._daemon is None:
            return
        calls = asyncio.ensure_future(self._call(rng))
        await turns(rng.randrange(60))
        if not self.disk.dead:
            self.disk.dead = True
            self.disk.dying("at any moment")
        await calls

    async def _reboot(self, rng: random.Random) -> None:
        """The power fails: what was not synced is lost, /run is empty, devices have other numbers."""
        self._boots += 1
        with self.disk.unwatched():
            shutil.rmtree(self.folder.cdi, ignore_errors=True)
            for path in self.folder.metadata.rglob("metadata.json"):
                if rng.random() < 0.5:
                    path.write_text("")
        for device in sorted(self._host.plugged):
            if device.startswith("misc-") and rng.random() < 0.2:
                self._plug_in(device)
        for claim in self.cluster.claims:
            claim.disturbed = True

    # what must be true

    def _check(self) -> None:
        if self._defects:
            raise rules.Broken("; ".join(self._defects))
        self.cluster.settle()
        rules.nobody_shares_what_is_not_shared(self.cluster)
        if self._daemon is None or self._calls is None:
            return
        leases = self._daemon.ledger.leases()
        rules.what_was_promised_is_leased(self.cluster, leases)
        rules.files_have_leases(self.folder, leases)
        if self._is_whole:
            rules.leases_have_files(self.folder, self.cluster, leases)
            rules.nothing_is_half_written(self.folder)
            if self._scanned == self._host.state():
                rules.what_is_there_is_described(self.folder, self._daemon, self._host)
        if self._scanned == self._host.state() and self.cluster.kubelet_is_up:
            withheld = {x.device for x in self._daemon.ledger.withheld()}
            rules.shown_as_it_is(self._daemon, self._host, self._calls.lists, withheld)

    async def _end_well(self) -> None:
        """Everybody ends, and then everything can be had again: nothing is refused for ever."""
        self.disk.recover()
        self.cluster.server_is_up = self.cluster.kubelet_is_up = True
        with self.disk.unwatched():
            self.folder.pod_resources.touch()
            self._host.ill.clear()
            for device in sorted({PHYSICAL, *(f"misc-{x}" for x in MISC_NAMES)} - self._host.plugged):
                self._host.plug(device)
        await self._start()
        await self._as_a_process(self._everybody_ends())
        assert self._daemon is not None
        if left := [(x.api, x.unit, x.holder) for x in self._daemon.ledger.leases()]:
            raise rules.Broken(f"nobody has anything, and there are leases: {left}")
        rules.leases_have_files(self.folder, self.cluster, ())
        self._check()
        assert self._calls is not None
        self.figures.update(self._calls.figures)  # what follows is no part of the life
        await self._as_a_process(self._everything_can_be_had())

    async def _everybody_ends(self) -> None:
        daemon, calls = self._daemon, self._calls
        assert daemon is not None
        assert calls is not None
        await calls.hang_up()
        calls.listen()
        for each in daemon.ledger.withheld():
            await daemon.ledger.readmit(each.device)
        await self._rescan(random.Random())
        self.cluster.pods.clear()
        for claim in self.cluster.claims:
            claim.listed = ()
        await calls.unprepare_these([x for x in self.cluster.claims if x.asked and not x.forgotten])
        self.cluster.claims.clear()
        self._clock.now += 100.0
        await self._look_around()

    async def _everything_can_be_had(self) -> None:
        daemon, calls = self._daemon, self._calls
        assert daemon is not None
        assert calls is not None
        for name in self._loop.random.sample(sorted(daemon.dra.published()), 3):
            number = self.cluster.number()
            share = f"{number:08x}-0000-4000-8000-000000000000" if name == "misc-many" else None
            claim = self.cluster.add_claim(f"last-{number}", f"{number:08x}-0000", [result("r", name, share_id=share)])
            await calls.prepare_these([claim])
            if claim.answer is None:
                raise rules.Broken(f"{name} cannot be had: {self.diary[-1]}")
            await calls.unprepare_these([claim])
        for resource, units in self._loop.random.sample(sorted(calls.lists.items()), 2):
            for unit in units:
                await calls.allocate_these(resource, [[unit]])
            if len(self.cluster.pods) != len(units):
                raise rules.Broken(f"{resource} cannot be had: {self.diary[-3:]}")
            self.cluster.pods.clear()


@contextlib.contextmanager
def _logged_to(life: Life) -> Iterator[None]:
    """Have errors that were caught and logged as defects heard, and nothing else."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and not isinstance(record.exc_info[1], Died | asyncio.CancelledError):
                life.failed({"message": record.getMessage(), "exception": record.exc_info[1]})

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [Listener()]
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
