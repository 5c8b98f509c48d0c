"""The simulated node: all parts on it, and the daemon as a process that starts, stops and can die at any effect."""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.nodeplug.simulation import rules
from tests.nodeplug.simulation.calls import Calls
from tests.nodeplug.simulation.cluster import DRIVER, NODE, Cluster
from tests.nodeplug.simulation.configuration import configuration
from tests.nodeplug.simulation.daemon import Daemon, Folder
from tests.nodeplug.simulation.disk import Disk, ProcessDied
from tests.nodeplug.simulation.host import SimulatedHost
from tests.nodeplug.simulation.kubelet import Kubelet
from tests.nodeplug.simulation.process import Clock, Loop, Stuck, turns
from tests.nodeplug.simulation.runtime import Runtime

_LONGEST = 600.0  # seconds that a step can take


class Node:
    """The node, as described in this module."""

    def __init__(self, root: Path, clock: Clock, seed: int) -> None:
        rng = random.Random(seed)
        self.folder, self.disk = Folder(root), Disk()
        self.figures: Counter[str] = Counter()
        self.history: list[str] = []
        self._clock = clock
        self._resources = configuration(rng)
        self._quick = rng.choice((-1.0, 1.0))  # commits in a thread, or in the loop
        self._host = SimulatedHost(root / "host", rng.random() < 0.8, self.disk)
        self._kubelet = Kubelet(self.folder.kubelet, DRIVER, NODE, self.disk)
        self.cluster = Cluster(self._host, self._kubelet)
        self._runtime = Runtime(self.folder, self._host, rng.random() < 0.7)
        self._daemon: Daemon | None = None
        self._running: asyncio.Task[None] | None = None
        self._calls: Calls | None = None
        self._boots = 0
        self._is_lost = False  # the state directory was lost, and is not completely restored
        self._was_lost = False  # files of the lost state can remain until the disk allows their removal
        self._is_whole = False  # the disk has refused nothing since the last start
        self._refused_before = 0  # refusals of the disk before the last start
        self._defects: list[str] = []
        self._lingering: list[str] = []  # ended pods whose cgroups still exist
        self._scanned: object = None
        self._loop: Loop

    def log_event(self, text: str) -> None:
        """Add a line to the history."""
        self.history.append(f"    [{self._clock.now:.3f}] {text}")

    def failed(self, context: dict[str, object]) -> None:
        """Record an unhandled error."""
        error = context.get("exception")
        if isinstance(error, BaseException) and not is_process_death(error):
            self._defects.append(f"{context['message']}: {error!r}")

    async def _start(self) -> None:
        while self._daemon is None:
            self._refused_before = self.disk.refused
            await self._run_in_process(self._begin())
            self._is_whole = self.disk.refused == self._refused_before and self._daemon is not None

    async def _begin(self) -> None:
        self._daemon = daemon = Daemon(self.folder, self._resources, self._host, self._quick)
        self._calls = Calls(daemon, self.cluster, self._host, self._runtime, self.disk, self.log_event)
        self._running = asyncio.ensure_future(daemon.run(f"boot-{self._boots}"))
        self._scanned = self._host.state()
        while not self._running.done() and not daemon.is_ready:
            await turns(1)
        await self._loop.idle()
        self.figures["starts"] += 1
        self.log_event("started")

    async def _end(self) -> None:
        """Stop the daemon as a signal does."""
        if self._running is not None:
            if not self._running.cancelling():  # a second signal would end the process at once
                self._running.cancel()
            await asyncio.wait([self._running])
            self._check_the_end()
            self._part()

    def _check_the_end(self) -> None:
        assert self._running is not None
        if (
            not self._running.cancelled()
            and (error := self._running.exception()) is not None
            and not is_process_death(error)
        ):
            raise rules.Broken(f"the daemon has ended: {error!r}") from error

    async def _refresh_after(self, after: float = 0.0) -> None:
        await asyncio.sleep(after)
        assert self._daemon is not None
        await self._daemon.reconciler.refresh()

    async def _run_in_process(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that involves the daemon, until the daemon is idle or dead."""
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
        if task.done() and not task.cancelled() and (error := task.exception()) and not is_process_death(error):
            raise error

    async def _killed(self, when: str) -> None:
        self.figures[f"deaths {when}"] += 1
        self.log_event(f"dead {when}")
        assert self._daemon is not None
        await self._daemon.kill(self.disk)
        self._part()

    def _part(self) -> None:
        if self._calls is not None:
            self.figures.update(self._calls.figures)
        self._daemon = self._running = self._calls = None

    def _settle(self, rng: random.Random) -> None:
        """Events between steps: the kubelet records, learns its pods, and removes cgroups."""
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
        self.log_event("the kubelet knows its pods")
        for uid in (*(x.uid for x in self.cluster.pods), *(x.pod for x in self.cluster.claims if x.running)):
            self._host.begin_pod(uid)  # after a reboot they start again


def is_process_death(error: BaseException) -> bool:
    """Return whether the error only says that the process is dead or was cancelled."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_process_death, error.exceptions))
    return isinstance(error, ProcessDied | asyncio.CancelledError)
