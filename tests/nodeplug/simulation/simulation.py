"""One simulation: the steps of a plan in order, with a check of the rules after each step."""

import asyncio
import contextlib
import logging
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

from tests.nodeplug.simulation import disk as disks
from tests.nodeplug.simulation import rules, wire
from tests.nodeplug.simulation.cluster import result
from tests.nodeplug.simulation.host import PLUGGABLE
from tests.nodeplug.simulation.node import is_process_death
from tests.nodeplug.simulation.plan import Step
from tests.nodeplug.simulation.process import Clock, Loop
from tests.nodeplug.simulation.steps import Steps


class Failure(AssertionError):
    """A simulation in which a rule was broken; `history` lists the events until then."""

    def __init__(self, why: str, history: Sequence[str]) -> None:
        super().__init__(why)
        self.history = tuple(history)


def simulate(seed: int, steps: Sequence[Step]) -> Counter[str]:
    """Run a simulation, and return its figures. Raises `Failure`."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=memory if memory.is_dir() else None) as folder:
        clock = Clock()
        simulation = Simulation(Path(folder), clock, seed)
        loop = Loop(clock)
        with (
            disks.in_place(simulation.disk),
            wire.in_place(simulation.cluster),
            patch.object(time, "time", clock.wall),
            _logged_to(simulation),
        ):
            loop.set_exception_handler(lambda _, context: simulation.failed(context))
            try:
                loop.run_until_complete(simulation.run(steps))
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                raise Failure(why, simulation.history) from error
            finally:
                loop.end_process()
                with contextlib.suppress(Exception):
                    loop.run_until_complete(_end_all())
                loop.close()
        return simulation.figures


class Simulation(Steps):
    """A simulation, as described in this module."""

    async def run(self, steps: Sequence[Step]) -> None:
        """Take the steps, and then end everything."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        self._loop = loop
        await self._start()
        for number, step in enumerate(steps):
            self.figures["steps"] += 1
            disk_fault = f", {step.disk_fault} after {step.after} effects" if step.disk_fault else ""
            self.history.append(f"{number} {step.kind}{disk_fault}")
            await self._take(step)
        self.history.append("everything ends well")
        await self._end_and_check()
        await self._run_in_process(self._end())

    async def _take(self, step: Step) -> None:
        rng = random.Random(step.seed)
        self._loop.random = random.Random(step.seed + 1)
        self._settle(rng)
        if not self.cluster.server_is_up and rng.random() < 0.3:
            await self._toggle_api_server(rng)
        if not self._kubelet.is_up and rng.random() < 0.5:
            await self._run_in_process(self._start_kubelet())
        if step.kind == "reboot" and self._daemon is not None:
            await self._killed("by a power cut")
        if step.disk_fault == "death":
            self.disk.die_after(step.after)
        elif step.disk_fault:
            self.disk.fail_after(step.after, step.disk_fault)
        refused = self.disk.refused
        await self._run_in_process(getattr(self, f"_{step.kind}")(rng))
        self._is_whole = self._is_whole and self.disk.refused == refused
        if self.disk.fails and rng.random() < 0.7:
            self.disk.recover()
        if self._daemon is None and rng.random() < 0.9:
            if rng.random() < 0.15:
                await self._swap_ports(rng)  # while the daemon is down
            if rng.random() < 0.3:
                self.disk.die_after(int(rng.expovariate(0.3)))  # during the repairs
            await self._start()
            if rng.random() < 0.2:
                await self._run_in_process(self._restart_container(rng))
        if step.kind == "reboot":
            await self._run_in_process(self._start_pods())
        if step.kind == "configure" and self._calls is not None and self._kubelet.is_up:  # a pending pod starts
            await self._run_in_process(self._calls.allocate(rng))
        self._check()

    def _check(self) -> None:
        if self._defects:
            raise rules.Broken("; ".join(self._defects))
        self.cluster.drop_ended_claims()
        rules.exclusive_devices_have_one_holder(self.cluster)
        rules.uplink_has_no_holder(self.cluster)
        if self._daemon is None or self._calls is None or self._running is None:
            return
        if self._running.done():
            self._check_the_end()
        ledger = self._daemon.ledger
        if not ledger.is_complete or (self._is_lost and not ledger.is_loaded):
            self._was_lost = True
            return
        self._is_lost = False
        leases = ledger.leases()
        rules.allocated_devices_have_leases(self.cluster, leases, was_lost=self._was_lost)
        is_tidied = not self._was_lost or self._daemon.dra is not None  # or DRA lost it, and is off now
        if is_tidied and (self._is_whole or not self._was_lost):
            rules.files_have_leases(self.folder, leases)
        is_scanned = self._scanned == self._host.state()
        if self._is_whole and is_tidied:
            rules.leases_have_files(self.folder, self._runtime, self.cluster, self._host, leases, is_scanned=is_scanned)
            if self.disk.refused == self._refused_before:  # files that it did not remove go at the next start
                rules.no_temporary_file_is_left(self.folder, self._daemon)
        if self._is_whole and is_scanned:
            rules.offered_devices_are_described(self._runtime, self._daemon, self._host)
            for claim in (x for x in self.cluster.claims if x.running and x.answer is not None):
                self._calls.restart_claimed(claim)
        if is_scanned:
            rules.taints_match_the_leases(self._daemon, self._host)
            if self._kubelet.is_up:
                rules.lists_match_the_leases(self._daemon, self._host, self._calls.lists, is_whole=self._is_whole)

    async def _end_and_check(self) -> None:
        """End all pods and claims; afterwards every device must be allocatable again."""
        self.disk.recover()
        self.cluster.server_is_up = True
        self._kubelet.false_answer = ""
        with self.disk.unwatched():
            self._host.unhealthy.clear()
            for device in sorted({*PLUGGABLE} - self._host.plugged):
                self._host.plug(device)
        await self._start()
        await self._run_in_process(self._end_all_holders())
        assert self._daemon is not None
        if left := [(x.api, x.resource, x.unit, x.holder) for x in self._daemon.ledger.leases()]:
            raise rules.Broken(f"nobody has anything, and there are leases: {left}")
        self._is_whole = True
        self._check()
        assert self._calls is not None
        self.figures.update(self._calls.figures)  # what follows does not count
        self._calls.figures.clear()
        await self._run_in_process(self._check_all_are_allocatable())

    async def _end_all_holders(self) -> None:
        daemon, calls, rng = self._daemon, self._calls, random.Random(0)
        assert daemon is not None
        assert calls is not None
        if not self._kubelet.is_up:
            await self._start_kubelet()
        self._learn_pods()
        self._kubelet.write()
        self._kubelet.write_claims()
        await self._rescan(rng)
        for pod in self.cluster.pods:
            pod.is_over = True
        self.cluster.pods.clear()
        for claim in self.cluster.claims:
            self.cluster.end_claim_pod(claim)
        for uid in self._host.pods():
            self._host.end_pod(uid)
        await calls.unprepare_these([x for x in self.cluster.claims if x.asked and not x.forgotten])
        self.cluster.claims.clear()
        self.cluster.drop_ended_claims()
        for _ in range(3):
            await asyncio.sleep(100.0)
            await self._refresh_after()

    async def _check_all_are_allocatable(self) -> None:
        daemon, calls = self._daemon, self._calls
        assert daemon is not None
        assert calls is not None
        published = sorted(daemon.dra.published()) if daemon.dra is not None else []
        for name in self._loop.random.sample(published, min(3, len(published))):
            assert daemon.dra is not None
            share = self.cluster.uid() if daemon.dra.published()[name].allow_multiple_allocations else None
            number = self.cluster.number()
            claim = self.cluster.add_claim(f"last-{number}", f"{number:08x}-0000", [result("r", name, share_id=share)])
            await calls.prepare_these([claim])
            if claim.answer is None:
                raise rules.Broken(f"{name} cannot be had: {self.history[-1]}")
            claim.ended = True
            self.cluster.end_claim_pod(claim)
            await calls.unprepare_these([claim])
        offered = sorted(name for name in daemon.servicers if calls.lists.get(name))
        for resource in self._loop.random.sample(offered, min(2, len(offered))):
            units = calls.lists[resource]
            for unit in units:
                await calls.allocate_these(resource, [("main", [unit], False)])
            if len(self.cluster.pods) != len(units):
                raise rules.Broken(f"{resource} cannot be had: {self.history[-3:]}")
            self.cluster.pods.clear()


async def _end_all() -> None:
    """Cancel all remaining tasks."""
    for _ in range(100):
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)


@contextlib.contextmanager
def _logged_to(simulation: Simulation) -> Iterator[None]:
    """Record errors that were caught and logged as defects; nothing else is logged."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[1] is not None and not is_process_death(record.exc_info[1]):
                simulation.failed({"message": record.getMessage(), "exception": record.exc_info[1]})

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [Listener()]
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
