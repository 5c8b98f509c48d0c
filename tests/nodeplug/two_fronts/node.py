"""The node of a life: everybody on it, and the daemon as a process that starts, stops and may die at any effect."""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.nodeplug.two_fronts import rules
from tests.nodeplug.two_fronts.calls import Calls
from tests.nodeplug.two_fronts.cluster import DRIVER, NODE, Cluster
from tests.nodeplug.two_fronts.configuration import configuration
from tests.nodeplug.two_fronts.daemon import Daemon, Folder
from tests.nodeplug.two_fronts.disk import Died, Disk
from tests.nodeplug.two_fronts.host import LivingHost
from tests.nodeplug.two_fronts.kubelet import Kubelet
from tests.nodeplug.two_fronts.process import Clock, Loop, Stuck, turns
from tests.nodeplug.two_fronts.runtime import Runtime

_LONGEST = 600.0  # seconds that a step may take


class Node:
    """See the module."""

    def __init__(self, root: Path, clock: Clock, seed: int) -> None:
        rng = random.Random(seed)
        self.folder, self.disk = Folder(root), Disk()
        self.figures: Counter[str] = Counter()
        self.diary: list[str] = []
        self._clock = clock
        self._resources = configuration(rng)
        self._quick = rng.choice((-1.0, 1.0))  # commits in a thread, or on the loop
        self._host = LivingHost(root / "host", rng.random() < 0.8, self.disk)
        self._kubelet = Kubelet(self.folder.kubelet, DRIVER, NODE, self.disk)
        self.cluster = Cluster(self._host, self._kubelet)
        self._runtime = Runtime(self.folder, self._host, rng.random() < 0.7)
        self._daemon: Daemon | None = None
        self._running: asyncio.Task[None] | None = None
        self._calls: Calls | None = None
        self._boots = 0
        self._is_lost = False  # the state directory was lost, and not all of it is restored
        self._was_lost = False  # and what was left of before it goes when the disk takes that
        self._is_whole = False  # since the last start the disk has refused nothing
        self._refused_before = 0  # what the disk had refused before the last start
        self._defects: list[str] = []
        self._lingering: list[str] = []  # pods that are over and whose cgroups are still there
        self._scanned: object = None
        self._loop: Loop

    def tell(self, text: str) -> None:
        """Write into the diary."""
        self.diary.append(f"    [{self._clock.now:.3f}] {text}")

    def failed(self, context: dict[str, object]) -> None:
        """Take note of an error that nobody has handled."""
        error = context.get("exception")
        if isinstance(error, BaseException) and not is_death(error):
            self._defects.append(f"{context['message']}: {error!r}")

    async def _start(self) -> None:
        while self._daemon is None:
            self._refused_before = self.disk.refused
            await self._as_a_process(self._begin())
            self._is_whole = self.disk.refused == self._refused_before and self._daemon is not None

    async def _begin(self) -> None:
        self._daemon = daemon = Daemon(self.folder, self._resources, self._host, self._quick)
        self._calls = Calls(daemon, self.cluster, self._host, self._runtime, self.disk, self.tell)
        self._running = asyncio.ensure_future(daemon.run(f"boot-{self._boots}"))
        self._scanned = self._host.state()
        while not self._running.done() and not daemon.is_ready:
            await turns(1)
        await self._loop.idle()
        self.figures["starts"] += 1
        self.tell("started")

    async def _end(self) -> None:
        """Stop the daemon as a signal does."""
        if self._running is not None:
            if not self._running.cancelling():  # a second signal would end the process at once
                self._running.cancel()
            await asyncio.wait([self._running])
            self._look_at_the_end()
            self._part()

    def _look_at_the_end(self) -> None:
        assert self._running is not None
        if not self._running.cancelled() and (error := self._running.exception()) is not None and not is_death(error):
            raise rules.Broken(f"the daemon has ended: {error!r}") from error

    async def _look_around(self, after: float = 0.0) -> None:
        await asyncio.sleep(after)
        assert self._daemon is not None
        await self._daemon.reconciler.refresh()

    async def _as_a_process(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what the daemon takes part in, until it has nothing more to do, or is dead."""
        died: asyncio.Future[str] = self._loop.create_future()
        self.disk.dying = died.set_result
        task = asyncio.create_task(work)
        either: set[asyncio.Future[Any]] = {task, died}
        with self.disk.watched():
            await asyncio.wait(either, timeout=_LONGEST, return_when=asyncio.FIRST_COMPLETED)
            if not died.done():
                await self._loop.idle()
        if died.done():
            await self._killed(died.result())
        elif not task.done():
            raise Stuck(f"after {_LONGEST:g} s: {task.get_stack()}")
        if task.done() and not task.cancelled() and (error := task.exception()) and not is_death(error):
            raise error

    async def _killed(self, when: str) -> None:
        self.figures[f"deaths {when}"] += 1
        self.tell(f"dead {when}")
        assert self._daemon is not None
        await self._daemon.bury(self.disk)
        self._part()

    def _part(self) -> None:
        if self._calls is not None:
            self.figures.update(self._calls.figures)
        self._daemon = self._running = self._calls = None

    def _settle(self, rng: random.Random) -> None:
        """What happens by itself between steps: the kubelet writes down, learns and cleans up."""
        if not self._kubelet.is_up:
            return
        for pod in self.cluster.pods:
            if not pod.is_recorded:
                self._kubelet.record(pod)
        if not self._kubelet.knows_pods and self.cluster.server_is_up and rng.random() < 0.5:
            self._learn_pods()
        for uid in [x for x in self._lingering if rng.random() < 0.5]:
            self._lingering.remove(uid)
            self._host.end_pod(uid)

    def _learn_pods(self) -> None:
        self._kubelet.knows_pods = True
        self.tell("the kubelet knows its pods")
        for uid in (*(x.uid for x in self.cluster.pods), *(x.pod for x in self.cluster.claims if x.running)):
            self._host.begin_pod(uid)  # after a reboot: they run again


def is_death(error: BaseException) -> bool:
    """Whether it says no more than that the process is dead, or was told to end."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_death, error.exceptions))
    return isinstance(error, Died | asyncio.CancelledError)
