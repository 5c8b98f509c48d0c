"""A daemon under a supervisor, with one fault, and a check of the final state.

The scenario: start, Allocate, prepare, unprepare, prepare, reload and prepare with the new settings, an update with a
second daemon, stop, and prepare by the second one. For a fault of the second daemon: start, Allocate, prepare, an
update, stop, prepare. A process that dies is started again, without the fault. Acknowledged leases are checked as soon
as the process is dead, before a witness could restore them.
"""

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import MappingProxyType

from checkpoint import LedgerUnavailable
from checkpoint.database import Database
from controlplane.apiserver import write_kubeconfig
from grpcunix.channel import is_live
from tests.controlplane.scheduler.kit import Json, claim, request
from tests.deviceplugin.host import MadeUpHost
from tests.faults.daemon import Daemon
from tests.faults.outcome import Outcome
from tests.faults.shim import Fault, cut_power, environment, has_occurred
from tests.nodeplug.cluster import NodeCluster, using
from tests.nodeplug.machine import RESOURCES, Machine
from tests.running import running

KVM = "kvm.example.com"
_MODE = "example.com/mode"
_MODES = "0600", "0660"  # of the claimed device's node, before and after the reload
_AFTER_THE_RELOAD = 3  # claims that come and go: the ledger's log is merged more than once in a scenario
_PAUSE = 0.01  # seconds between two checks, for which the kubelet's clock advances by half a second


def _resources(mode: str) -> list[Json]:
    """Return the resources of the file; an attribute in the slices shows the mode that claims get."""
    return [
        each | {"access": {"uid": 1000, "mode": mode}, "dra": {"attributes": {_MODE: mode}}}
        if "access" in each
        else each
        for each in RESOURCES
    ]


_STEP_TIMEOUT = 100.0  # real time for a step of a scenario
_LASTING = 2.0  # seconds that a permanent fault can delay a step; then the process and the fault are ended
_STARTS = 3  # of a scenario until it counts as a crash loop: the one with the fault, and one after it


class Scenario:
    """One machine and one fault: of the first daemon, or, with `at_update`, of the second one."""

    def __init__(
        self, folder: Path, fault: Fault | None = None, *, loses_power: bool = False, at_update: bool = False
    ) -> None:
        self.calls = folder / "calls"
        self._synced = folder / "synced"
        self._synced.mkdir()
        self._folder = folder / "n"
        self._folder.mkdir()
        self._fault = fault
        self._lasts = fault is not None and fault.kind.endswith("+")
        self._loses_power = loses_power
        self._promised: set[tuple[str, str]] = set()  # API and unit of acknowledged leases
        self._wrong: list[str] = []
        self._daemons: list[Daemon] = []
        self._faulty = "two" if at_update else "one"
        self._running: dict[str, Daemon] = {}
        self._has_power = asyncio.Event()
        self._has_power.set()
        self._starts: Counter[str] = Counter()
        self._loops = False
        self._step = ""
        self._step_began = 0.0
        self._mode = _MODES[0]
        self._claim = ""  # the claim that exists at the end

    async def run_scenario(self) -> Outcome:
        async with AsyncExitStack() as stack:
            kubelet = self._folder / "k"
            kubelet.mkdir()
            self._cluster = cluster = await stack.enter_async_context(NodeCluster(kubelet))
            host = MadeUpHost(self._folder.parent / "host", "fuse", "kvm")
            self._machine = machine = Machine(self._folder, cluster, host, kubelet)
            write_kubeconfig(machine.kubeconfig, cluster.server.url, cluster.server.token)
            stack.push_async_callback(self._kill)
            await machine.classes()
            try:
                async with running(self._supervise("one")):
                    await self._steps_before()
                    async with running(self._supervise("two")):
                        await self._update()
                        await self._unprepare("unprepare after the update")
                        await self._prepare("f", "prepare after the update")
                        await self._end_state()
            except TimeoutError:
                self._wrong.append(f"{self._step}: not reached within {_STEP_TIMEOUT:g} s")
        logs = (x.errors.read_text(errors="replace") for x in self._daemons)
        return Outcome(self._wrong, self._starts[self._faulty], "".join(logs), has_occurred(self.calls))

    def _start(self, uid: str, faults: Mapping[str, str] = MappingProxyType({})) -> Daemon:
        environment = os.environ | faults | {"POD_UID": uid}
        errors = self._folder.with_name(f"errors{len(self._daemons)}")
        daemon = Daemon(self._machine.arguments(_resources(self._mode)), environment, errors)
        self._daemons.append(daemon)
        return daemon

    async def _kill(self) -> None:
        for daemon in self._daemons:
            daemon.kill()
            await daemon.wait()

    async def _supervise(self, uid: str) -> None:
        """Restart a daemon whenever it ends, until the second one has replaced it."""
        is_faulty = uid == self._faulty
        while True:
            await self._has_power.wait()
            fault = self._fault if is_faulty and not self._starts[uid] else None
            self._starts[uid] += 1
            noted = environment(self._folder, self.calls if is_faulty else None, self._synced, fault)
            self._running[uid] = daemon = self._start(uid, noted)
            await daemon.wait()
            if is_faulty and self._loses_power and self._starts[uid] == 1 and self._step != "stop":
                await self._cut_power()
            if self._step == "stop" and uid == "one":
                return
            self._record_promises(f"after exit {daemon.returncode} in {self._step}")
            if self._starts[uid] == _STARTS:
                self._wrong.append(f"crash loop of {uid} in {self._step}: exit {daemon.returncode}")
                self._loops = True
                return

    async def _cut_power(self) -> None:
        self._has_power.clear()
        for daemon in self._running.values():
            daemon.kill()
            await daemon.wait()
        cut_power(self._machine.state, self._synced)
        shutil.rmtree(self._machine.cdi, ignore_errors=True)
        self._has_power.set()

    def _record_promises(self, when: str) -> None:
        found: set[tuple[str, str]] = set()
        try:
            found = {(lease.api, lease.unit) for lease in Database(self._machine.state).peek()}
        except LedgerUnavailable as error:  # for example half created
            if self._promised:
                self._wrong.append(f"{when}: {error}")
        for api, unit in sorted(self._promised - found):
            self._wrong.append(f"{when}: the lease of {unit} ({api}) is lost")

    async def _steps_before(self) -> None:
        cluster, machine = self._cluster, self._machine

        async def offered() -> bool:
            return len(await machine.published()) == 2 and bool(cluster.node.allocatable().get("example.com/fuse"))

        await self._until("start", offered)
        await self._until("Allocate", self._plugin_pod())
        self._promised.add(("device-plugin", "misc-fuse"))
        await self._prepare("c", "prepare")
        if self._faulty == "two":
            return
        await self._unprepare("unprepare")
        await self._prepare("d", "prepare again")
        await self._reload()

    def _plugin_pod(self) -> Callable[[], Awaitable[bool]]:
        names: list[str] = []

        async def runs() -> bool:
            """The kubelet fails a pod whose Allocate fails; the pod's controller then creates another."""
            phase = (await self._cluster.get("Pod", names[-1])).get("status", {}).get("phase") if names else "Failed"
            if phase == "Failed":
                if names:
                    await self._cluster.delete("Pod", names[-1])
                names.append(f"a{len(names)}")
                made = using(names[-1])
                made["spec"]["containers"][0]["resources"] = {"limits": {"example.com/fuse": "1"}}
                await self._cluster.create(made)
            return bool(phase == "Running")

        return runs

    async def _prepare(self, name: str, step: str) -> None:
        """Run a pod of this name with a claim of this name."""
        await self._cluster.create(
            claim(name, request(deviceClassName=KVM)), using(name, ["mine"], claims={"mine": name})
        )
        await self._until(step, self._runs(name))
        self._claim = name
        self._promised.add(("dra", "misc-kvm"))

    async def _unprepare(self, step: str) -> None:
        self._promised.discard(("dra", "misc-kvm"))
        for kind in ("Pod", "ResourceClaim"):
            await self._cluster.delete(kind, self._claim)
            await self._until(step, self._is_gone(kind, self._claim))

    async def _reload(self) -> None:
        """Change the file, wait until the slices match it, and check the next claims; then some more come and go."""
        before, self._mode = self._mode, _MODES[1]
        for path in self._folder.glob("config*.yaml"):
            path.write_text(path.read_text().replace(before, self._mode))

        async def is_published() -> bool:
            modes = [x["attributes"].get(_MODE) for x in (await self._machine.published()).values()]
            return {"string": self._mode} in modes

        await self._until("reload", is_published)
        for number in range(1 + _AFTER_THE_RELOAD):
            await self._unprepare("unprepare again")
            await self._prepare(f"e{number}", "prepare with the new mode")
            found = {
                node.get("fileMode")
                for spec in self._machine.specs()
                for device in spec["devices"]
                for node in device["containerEdits"]["deviceNodes"]
            }
            if found != {int(self._mode, 8)}:
                self._wrong.append(f"after the reload claims get the modes {found}")

    async def _update(self) -> None:
        """Once the second daemon is registered, end the first, as the update of a DaemonSet does."""
        registry = self._cluster.node.plugins_registry

        async def has_two_instances() -> bool:
            return len([x for x in registry.glob("*.sock") if is_live(x)]) == 2

        await self._until("update", has_two_instances)
        self._step = "stop"
        self._running["one"].terminate()
        await self._running["one"].wait()

    async def _end_state(self) -> None:
        cluster, machine = self._cluster, self._machine
        uid = (await cluster.get("ResourceClaim", self._claim))["metadata"]["uid"]
        expected = {("device-plugin", "misc-fuse"), ("dra", "misc-kvm")}

        async def is_expected_state() -> bool:
            return not await differences()

        async def differences() -> list[str]:
            found = []
            leases = machine.leases() if (machine.state / "ledger.sqlite3").exists() else []
            if {(api, unit) for api, unit, _ in leases} != expected or len(leases) != 2:
                found.append(f"leases {leases}")
            specs = sorted(path.name for path in machine.cdi.iterdir()) if machine.cdi.exists() else []
            if [name for name in specs if "claim" in name] != [f"nodeplug-dra~nodeplug.dev~claim~{uid}.json"]:
                found.append(f"CDI files {specs}")
            # temporary files in a claim's folder are removed with the claim
            half = [str(x) for x in self._folder.rglob(".*.tmp") if f"default_{self._claim}" not in x.parts]
            if half:
                found.append(f"left behind {half}")
            # a daemon that dies while it removes a socket leaves a dead one, which is removed at the next start
            sockets = sorted(x.name for x in cluster.node.plugins_registry.glob("*.sock") if is_live(x))
            if len(sockets) != 1:
                found.append(f"registration sockets {sockets}")
            plugin_sockets = sorted(x.name for x in cluster.node.device_plugins.glob("*nodeplug*") if is_live(x))
            if len(plugin_sockets) != 1:
                found.append(f"device plugin sockets {plugin_sockets}")
            if cluster.node.allocatable().get("example.com/fuse") != 1:
                found.append(f"allocatable {cluster.node.allocatable()}")
            if len(await machine.published()) != 2:
                found.append(f"published {list(await machine.published())}")
            if self._running["two"].returncode is not None or (self._faulty == "one" and self._starts["two"] > 1):
                found.append("the newer one ended")
            return found

        try:
            await self._until("end", is_expected_state)
        except TimeoutError:
            self._wrong += await differences()

    def _runs(self, pod: str) -> Callable[[], Awaitable[bool]]:
        async def runs() -> bool:
            return bool((await self._cluster.get("Pod", pod)).get("status", {}).get("phase") == "Running")

        return runs

    def _is_gone(self, kind: str, name: str) -> Callable[[], Awaitable[bool]]:
        async def is_gone() -> bool:
            return not await self._cluster.get(kind, name)

        return is_gone

    async def _until(self, step: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Advance the kubelet's clock until a condition is true."""
        if step != self._step:
            self._step, self._step_began = step, asyncio.get_running_loop().time()
        async with asyncio.timeout(_STEP_TIMEOUT):
            while not await holds():
                if self._loops:
                    raise TimeoutError
                waited = asyncio.get_running_loop().time() - self._step_began
                if self._lasts and waited > _LASTING and self._starts[self._faulty] == 1:
                    self._lasts = False
                    self._running[self._faulty].terminate()
                await self._cluster.clock.advance(0.5)
                await asyncio.sleep(_PAUSE)  # the daemon is another process


async def run_scenario(
    fault: Fault | None = None, *, loses_power: bool = False, at_update: bool = False, calls: Path | None = None
) -> Outcome:
    """Run one scenario in its own folder; `calls` is the file for the calls of the daemon with the fault."""
    with tempfile.TemporaryDirectory(prefix="f") as folder:
        scenario = Scenario(Path(folder), fault, loses_power=loses_power, at_update=at_update)
        outcome = await scenario.run_scenario()
        if calls is not None and scenario.calls.exists():
            calls.write_text(scenario.calls.read_text())
        return outcome
