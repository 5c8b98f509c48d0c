"""The steps of a simulation (plan.py) by name: events on a node, and the actions that they cause."""

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import get_args

from resourceapi.objects import v1
from resources.resource import Resource
from tests.nodeplug.simulation.configuration import changed, configuration
from tests.nodeplug.simulation.host import FIXED, PLUGGABLE, VIRTUAL, Namespace
from tests.nodeplug.simulation.kubelet import Container, FalseAnswer, Pod
from tests.nodeplug.simulation.node import Node
from tests.nodeplug.simulation.process import turns
from tests.nodeplug.simulation.scheduler import schedule
from tests.nodeplug.simulation.stick import STICK_IDS


class Steps(Node):
    """The node with the steps of this module."""

    # Calls.

    async def _call(self, rng: random.Random) -> None:
        """Some concurrent calls; callers can cancel, and the kubelet can stop."""
        if self._calls is None or not self._kubelet.is_up:
            return
        calls = [self._one_call(rng) for _ in range(rng.choice((1, 2, 2, 3, 4)))]
        tasks = [asyncio.ensure_future(call) for call in calls]
        others: list[asyncio.Task[None]] = []
        if rng.random() < 0.3:
            event = rng.choice((self._end_pods, self._end_claim_pods, self._delete_claim))
            others.append(asyncio.ensure_future(self._meanwhile(event)))
        if rng.random() < 0.3:
            others.append(asyncio.ensure_future(self._refresh_after()))
        for task in tasks:
            if rng.random() < 0.1:
                await turns(rng.randrange(30))
                task.cancel()
        if rng.random() < 0.05:
            await turns(rng.randrange(30))
            for task in tasks:
                task.cancel()
            await self._stop_kubelet()
        await asyncio.wait([*tasks, *others])
        for task in (*tasks, *others):
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
        """The scheduler allocates devices to a new claim, which can have the name of a deleted one."""
        if len(self.cluster.claims) > 6 or not (results := self._choice(rng)):
            return
        number = self.cluster.number()
        gone = [x.name for x in self.cluster.claims if not x.in_api]
        used = {x.name for x in self.cluster.claims if x.in_api}
        name = rng.choice([x for x in gone if x not in used] or [f"claim-{number}"])
        claim = self.cluster.add_claim(name, f"{rng.getrandbits(32):08x}-0000-4000-8000-{number:012x}", results)
        self.log_event(f"{claim.ref} gets {claim.names}")

    async def _reallocate(self, rng: random.Random) -> None:
        """A claim is allocated again without having been unprepared."""
        claims = [x for x in self.cluster.claims if x.in_api and x.asked]
        if not claims or not (results := self._choice(rng)):
            return
        claim = rng.choice(claims)
        self.cluster.allocate_again(claim, results)
        self.log_event(f"{claim.ref} gets {claim.names} instead")

    async def _reuse(self, rng: random.Random) -> None:
        """A claim is deallocated after its pod was force-deleted; another pod uses it during a reconciler pass."""
        claims = [x for x in self.cluster.claims if x.in_api and x.asked]
        if not claims or self._calls is None or not self._kubelet.is_up:
            return
        claim = rng.choice([x for x in claims if x.answer] or claims)
        results = claim.results if rng.random() < 0.7 else self._choice(rng) or claim.results
        self.cluster.deallocate(claim)
        self.log_event(f"{claim.ref} is deallocated")
        asked = self.cluster.asked_for[claim.name] = asyncio.Event()
        looking = asyncio.ensure_future(self._refresh_after(rng.choice((0.0, 10.0, 10.0))))
        waiting = asyncio.ensure_future(asked.wait())
        await asyncio.wait([looking, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await turns(rng.randrange(20))
        self.cluster.allocate_again(claim, results)
        self.log_event(f"{claim.ref} gets {claim.names} again")
        await self._calls.prepare_these([claim])
        await looking

    def _choice(self, rng: random.Random) -> Sequence[v1.DeviceRequestAllocationResult]:
        if self._daemon is None or self._daemon.dra is None:
            return ()
        return schedule(rng, self.cluster, self._host, self._daemon.dra.published(), self._daemon.dra.shares)

    async def _restart_container(self, rng: random.Random) -> None:
        """A container restarts, with an old answer of the kubelet."""
        if self._calls is None or not self._kubelet.knows_pods:
            return
        for pod in self.cluster.pods:
            for container in (x for x in pod.containers if pod.is_recorded and not x.is_init):
                await self._calls.restart(pod, container)

    async def _end_claim_pods(self, rng: random.Random) -> None:
        """Pods with claims end, or the kubelet gives up."""
        for claim in self.cluster.claims:
            has_pod = claim.asked and not claim.ended and not claim.forgotten
            if has_pod and rng.random() < (0.5 if claim.running else 0.2):
                claim.ended = True
                claim.answer = None if self._is_lost else claim.answer  # or no witness knows it
                self.cluster.end_claim_pod(claim)
                self.log_event(f"the pod of {claim.name} is over")
        self.cluster.drop_ended_claims()

    async def _end_pods(self, rng: random.Random) -> None:
        """Pods of the device plugin API end, without a call. Their cgroups can remain for a while."""
        over = [x for x in self.cluster.pods if rng.random() < 0.5]
        self.cluster.pods = [x for x in self.cluster.pods if x not in over]
        for pod in over:
            pod.is_over = True
            self._lingering.append(pod.uid)
        self.log_event(f"over: {[x.name for x in over]}")
        self._settle(rng)

    async def _delete_claim(self, rng: random.Random) -> None:
        """A claim is force-deleted; its pod can continue, or the kubelet can forget it."""
        claims = [x for x in self.cluster.claims if x.in_api or x.running]
        if not claims:
            return
        claim = rng.choice(claims)
        claim.in_api = False
        if rng.random() < 0.5:
            claim.forgotten = True
            self.cluster.end_claim_pod(claim)
        self.log_event(f"{claim.ref} is deleted by force, {'and forgotten' if claim.forgotten else 'its pod runs on'}")
        self.cluster.drop_ended_claims()

    async def _pass_time(self, rng: random.Random) -> None:
        """Time passes, with the reconciler's regular passes."""
        await asyncio.sleep(rng.choice((1.0, 10.0, 100.0)))

    async def _set_clock(self, rng: random.Random) -> None:
        """The wall clock is set."""
        self._clock.day += rng.choice((-100_000.0, -10.0, 10.0, 100_000.0))

    async def _unplug(self, rng: random.Random) -> None:
        device = rng.choice(sorted(self._host.plugged - {*VIRTUAL}) or [""])
        if device:
            with self.disk.unwatched():
                self._host.unplug(device)
            self.log_event(f"{device} is unplugged")
            await self._rescan(rng, 0.8)

    async def _plug(self, rng: random.Random) -> None:
        gone = sorted({*PLUGGABLE} - self._host.plugged)
        if gone:
            self._plug_in(rng.choice(gone))
            await self._rescan(rng, 0.8)

    async def _replace_device(self, rng: random.Random) -> None:
        """A device is replaced without a scan."""
        if devices := sorted(x for x in self._host.plugged if x.startswith("misc-")):
            self._plug_in(rng.choice(devices))

    async def _change_functions(self, rng: random.Random) -> None:
        """A card's virtual functions are created, whoever holds the card, or removed if none of them is held."""
        held = self._daemon.ledger.devices() if self._daemon is not None else {*VIRTUAL}
        if held & {*VIRTUAL} and self._host.plugged & {*VIRTUAL}:
            return
        with self.disk.unwatched():
            made = self._host.change_functions()
        self.log_event(f"the virtual functions are {'made' if made else 'gone'}")
        await self._rescan(rng, 0.8)

    async def _change_identity(self, rng: random.Random) -> None:
        """A firmware is loaded into the stick, or it is reset: it becomes another device at its port."""
        with self.disk.unwatched():
            is_another = self._host.change_identity()
        if is_another:
            self.log_event("the stick is another device")
            await self._rescan(rng, 0.7)
            if rng.random() < 0.5:
                await self._restart_container(rng)

    async def _swap_ports(self, rng: random.Random) -> None:
        """The ports exchange their nodes, unless only the paths say which of them a pod has."""
        if self._is_lost and any(not x.answer.cdi_devices for pod in self.cluster.pods for x in pod.containers):
            return
        with self.disk.unwatched():
            self._host.swap_ports()
        self.log_event("the ports have changed places")
        await self._rescan(rng, 0.7)
        if rng.random() < 0.5:  # the containers that had them open have ended
            await self._restart_container(rng)

    def _plug_in(self, device: str) -> None:
        with self.disk.unwatched():
            self._host.plug(device)
        self.log_event(f"{device} is plugged in")

    async def _rescan(self, rng: random.Random, likely: float = 1.0) -> None:
        if self._daemon is not None and rng.random() < likely:
            self._daemon.update(*self._host.assign(self._daemon.resources))
            self._scanned = self._host.state()

    async def _change_health(self, rng: random.Random) -> None:
        device = rng.choice(sorted(self._host.plugged | FIXED))
        self._host.unhealthy ^= {device}
        self.log_event(f"{device} is {'ill' if device in self._host.unhealthy else 'well'}")
        await self._rescan(rng)

    async def _change_configuration(self, rng: random.Random) -> None:
        """The configuration changes: by a restart, or by a changed file, possibly during calls."""
        if self._is_lost:
            return  # the old configuration is needed to restore the leases
        daemon = self._daemon if rng.random() < 0.5 else None
        if daemon is None:
            await self._stop(rng)
        in_use = {x.resource for x in self.cluster.pods}
        self._resources = configuration(rng) if rng.random() < 0.4 else changed(rng, self._resources, in_use)
        if daemon is not None:
            calls = asyncio.ensure_future(self._call(rng)) if rng.random() < 0.5 else None
            await turns(rng.randrange(30))
            self.log_event("the file has changed")
            is_done = daemon.configure(self._resources)
            self._scanned = self._host.state() if is_done else self._scanned
            if calls is not None:
                await calls
            if not is_done:
                await self._stop(rng)
        elif rng.random() < 0.3:  # as in the DaemonSet: hostNetwork, hostPID
            namespace: Namespace = rng.choice(get_args(Namespace))
            with self.disk.unwatched():
                self._host.move_daemon(namespace)
            self.log_event(f"the network namespace is {namespace}")
        self.log_event(f"configured: {[_shown(x) for x in self._resources]}")

    async def _falsify_records(self, rng: random.Random) -> None:
        """One of the kubelet's sources gives no answer or a wrong one."""
        self._kubelet.false_answer = rng.choice(("", *get_args(FalseAnswer))) if self._host.has_cgroups else ""
        self.log_event(f"lie: {self._kubelet.false_answer or 'none'}")
        if self._kubelet.is_up:
            self._kubelet.write()
            self._kubelet.write_claims()

    async def _lose_state(self, rng: random.Random) -> None:
        """The state directory is lost while the daemon is down; all that must be restored is present and wanted."""
        daemon = self._daemon
        if daemon is None or not self._host.has_cgroups:
            return
        named = {(x.name, x.shares) for x in daemon.resources if x.api != "dra"}
        published = daemon.dra.there() if daemon.dra is not None else set()
        offered = {x.id for each in daemon.assignment.devices.values() for x in each}
        await self._stop(rng)
        if any(self._is_unknown(pod, x, offered) for pod in self.cluster.pods for x in pod.containers):
            return
        running = [x for x in self.cluster.claims if x.running]
        if not all((x.resource, x.shares) in named for x in self.cluster.pods) or not all(
            x.in_api and all(y.device in published for y in x.results) for x in running
        ):
            return
        self._settle(rng)
        self._kubelet.false_answer = ""
        self._kubelet.write()
        self._kubelet.write_claims()
        for claim in self.cluster.claims:
            claim.answer = claim.answer if claim.running else None
            claim.paths = {}  # they depended on the configuration of then
        for container in (x for pod in self.cluster.pods for x in pod.containers):
            container.paths = container.paths if container.answer.devices else {}  # CDI names lack it as well
        with self.disk.unwatched():
            shutil.rmtree(self.folder.state, ignore_errors=True)
        self._is_lost = self._was_lost = True
        self.figures["lost states"] += 1
        self.log_event("the state is lost")

    def _is_unknown(self, pod: Pod, container: Container, offered: Collection[str]) -> bool:
        """Return whether the kubelet's records are insufficient to determine a container's devices."""
        for unit in container.units:
            name = self._host.named(unit)
            if self._host.is_group(unit) and name not in offered and not container.answer.devices:
                return True  # only the lost ledger had its members
            if pod.devices[unit] <= {*STICK_IDS} - self._host.there:
                return True  # only the lost ledger had its port
            if pod.devices[unit].isdisjoint(self._host.devices_of(unit)) and not container.answer.cdi_devices:
                return True  # its name means another device now
        return False

    async def _restart_kubelet(self, rng: random.Random) -> None:
        """The kubelet stops, or starts and repeats its calls."""
        if self._kubelet.is_up:
            await self._stop_kubelet()
        if rng.random() < 0.5:
            await self._start_kubelet()

    async def _stop_kubelet(self) -> None:
        if not self._kubelet.is_up:
            return
        self.log_event("the kubelet is down")
        self._kubelet.stop()
        self.cluster.pods = [x for x in self.cluster.pods if not x.is_over]
        if self._calls is not None:
            await self._calls.stop_listening()

    async def _start_kubelet(self) -> None:
        self.log_event("the kubelet is up")
        with self.disk.unwatched():
            self._kubelet.start()
        self.cluster.drop_ended_claims()
        if self._calls is not None:
            self._calls.listen()
            await self._start_pods()

    async def _start_pods(self) -> None:
        """After a reboot, the kubelet prepares claims before it starts their containers."""
        if self._calls is not None and self._kubelet.is_up:
            await self._calls.prepare_these([x for x in self.cluster.claims if x.in_api and x.running])

    async def _toggle_api_server(self, rng: random.Random) -> None:
        """The API server goes down or comes back."""
        self.cluster.server_is_up = not self.cluster.server_is_up
        self.log_event(f"the API server is {'up' if self.cluster.server_is_up else 'down'}")

    async def _stop(self, rng: random.Random) -> None:
        """The daemon is stopped, possibly during calls."""
        if self._running is None:
            return
        calls = asyncio.ensure_future(self._call(rng)) if rng.random() < 0.5 else None
        await turns(rng.randrange(30))
        self.log_event("stopping")
        self._running.cancel()
        if calls is not None:
            await calls  # as a stopping server does
        await self._end()

    async def _kill(self, rng: random.Random) -> None:
        """The daemon is killed during calls, but not at an effect on the disk."""
        if self._daemon is None:
            return
        calls = asyncio.ensure_future(self._call(rng))
        await turns(rng.randrange(60))
        if not self.disk.dead:
            self.disk.dead = True
            self.disk.dying("at any moment")
        await calls

    async def _reboot(self, rng: random.Random) -> None:
        """A power cut: unsynced data is lost, /run is empty, and device numbers change."""
        self._boots += 1
        if self._kubelet.is_up:
            await self._stop_kubelet()
        with self.disk.unwatched():
            shutil.rmtree(self.folder.cdi, ignore_errors=True)
            for path in self.folder.metadata.glob("*.json"):
                if rng.random() < 0.5:
                    path.write_text("")
            if rng.random() < 0.3:
                self._host.swap_ports()
            self._host.unhealthy |= {x for x in (*PLUGGABLE, *sorted(FIXED)) if rng.random() < 0.1}
            self._kubelet.start()
        self._lingering.clear()
        for uid in self._host.pods():
            self._host.end_pod(uid)
        for device in sorted(self._host.plugged):
            if device.startswith("misc-") and rng.random() < 0.2:
                self._plug_in(device)
        for claim in self.cluster.claims:
            claim.disturbed = True


def _shown(resource: Resource) -> str:
    parts = (
        resource.name.partition("/")[2],
        resource.api,
        resource.shares,
        resource.cdi,
        resource.ids,
        resource.identity,
        resource.container_path,
    )
    return " ".join(map(str, parts)).strip()
