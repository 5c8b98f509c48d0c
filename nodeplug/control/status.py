"""`status`: the state of the daemon and of everything that it offers.

`problems` has a line for each problem; if there is none, the kubelet has everything.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from typing import Literal

from msgspec import Struct

from checkpoint import Lease
from deviceplugin.units import API
from hostdevices.errors import HostExhausted
from hostdevices.threads import in_thread
from nodeplug.control.leases import LeaseView, view
from nodeplug.control.running import RunningDaemon
from nodeplug.digest import sha256
from nodeplug.logs import LogEntry, recent
from nodeplug.version import VERSION


class Question(Struct, frozen=True, tag_field="question", tag="status"):
    """What is the state of everything?"""


class DaemonView(Struct, frozen=True, rename="camel"):
    """The process; `started_at` in seconds since the epoch, `uptime` in seconds, `scan_seconds` of the last scan."""

    version: str
    python: str
    pid: int
    started_at: float
    uptime: float
    state_directory: str
    kubelet_root: str
    scan_seconds: float
    stuck_reads: int


class ConfigurationView(Struct, frozen=True, rename="camel"):
    """The configuration in force: `sha256` is the digest of the file when it was read successfully, at `loaded_at`.

    `problems` are the mistakes in the present file, if there are any.
    """

    file: str
    sha256: str
    loaded_at: float
    is_current: bool
    problems: tuple[str, ...]


class ResourceView(Struct, frozen=True, rename="camel"):
    """A resource with one API: units and leased units of the device plugin API, devices and claims' devices of DRA.

    `healthy`: those that are neither unhealthy, nor withheld, nor unavailable because of another holder.
    `is_registered`: the kubelet has the list open, or has accepted the DRA driver and runs. `empty` is the reason why
    it has no device here.
    """

    name: str
    api: Literal["device-plugin", "dra"]
    units: int
    healthy: int
    leased: int
    is_registered: bool
    registrations: int
    last_error: str
    empty: str = ""


class DeviceView(Struct, frozen=True):
    """A device of a resource with one API; the reason why it is not healthy, or its holder."""

    resource: str
    api: Literal["device-plugin", "dra"]
    id: str
    health: Literal["healthy", "unhealthy", "unavailable"]
    reason: str
    leased: int


class WithheldView(Struct, frozen=True, rename="camel"):
    """A device that gets no new holders until it is readmitted; `since` in seconds since the epoch.

    `is_here`: it is plugged in now.
    """

    device: str
    reason: str
    since: float
    is_here: bool


class DraView(Struct, frozen=True, rename="camel"):
    """The DRA driver."""

    driver: str
    is_registered: bool
    devices: int
    healthy: int
    claims: int
    slice_writes: int
    last_error: str


class LedgerView(Struct, frozen=True, rename="camel"):
    """The leases' database: whether it has a lease for everything that pods have, and files that were set aside.

    `problem` is what is missing, or why the last attempt to write failed.
    """

    is_complete: bool
    problem: str
    commits: int
    set_aside: tuple[str, ...]


class Answer(Struct, frozen=True):
    """The state of everything. `recent` are the latest warnings and errors of the log, see `logs.recent`."""

    daemon: DaemonView
    configuration: ConfigurationView
    problems: tuple[str, ...]
    resources: tuple[ResourceView, ...]
    devices: tuple[DeviceView, ...]
    leases: tuple[LeaseView, ...]
    ledger: LedgerView
    dra: DraView | None
    recent: tuple[LogEntry, ...]
    withheld: tuple[WithheldView, ...] = ()


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `status`."""
    del question
    settings = running.offering.config.settings
    empty: Mapping[str, str] = {}
    with contextlib.suppress(HostExhausted):
        empty = await in_thread(running.offering.empty_reasons)
    scan = running.offering.scan_status()
    uptime = asyncio.get_running_loop().time() - running.started
    leases = running.ledger.leases()
    configuration = _configuration(running)
    ledger = LedgerView(
        running.ledger.is_complete,
        running.ledger.problem if running.ledger.is_complete else running.reconciler.problem,
        running.ledger.commits,
        tuple(f"{x.path}: {x.reason}" for x in running.ledger.set_aside),
    )
    return Answer(
        daemon=DaemonView(
            version=VERSION,
            python=sys.version.partition(" ")[0],
            pid=os.getpid(),
            started_at=time.time() - uptime,
            uptime=uptime,
            state_directory=settings.state_directory,
            kubelet_root=settings.kubelet_root,
            scan_seconds=scan.seconds if scan else 0.0,
            stuck_reads=scan.stuck_reads if scan else 0,
        ),
        configuration=configuration,
        problems=tuple(_problems(running, configuration, ledger)),
        resources=resources(running, empty),
        devices=devices(running),
        leases=tuple(map(view, leases)),
        ledger=ledger,
        dra=_dra(running),
        recent=recent(),
        withheld=withheld(running),
    )


def first_pod_note(found: Answer) -> str:
    """Return a line for a node whose kubelet has listed no pod yet, which is a normal state; empty for other nodes."""
    if found.ledger.is_complete or any(found.ledger.problem in line for line in found.problems):
        return ""
    return f"the lease database is new, and {found.ledger.problem}: the first pod that it lists can have devices"


def _configuration(running: RunningDaemon) -> ConfigurationView:
    file = running.file
    if file is None:
        return ConfigurationView(running.offering.config.source, "", 0.0, True, ())
    status = file.status
    return ConfigurationView(str(file.path), sha256(file.content), status.loaded_at, status.is_good, status.problems)


def _problems(running: RunningDaemon, configuration: ConfigurationView, ledger: LedgerView) -> Iterator[str]:
    if not configuration.is_current:
        yield f"{configuration.file} has a mistake (`nodeplug reload` shows it); the previous one is in effect"
    yield from running.not_ready()
    if not ledger.is_complete and not running.reconciler.awaits_first_pod:
        yield f"nothing is allocated yet, because the lease database is new or was lost: {ledger.problem}"
    elif ledger.is_complete and ledger.problem:
        yield f"the last attempt to write leases failed: {ledger.problem}"
    if running.reconciler.defect:
        yield f"leases of ended pods are kept, because checking them failed: {running.reconciler.defect}"
    scan = running.offering.scan_status()
    if scan is not None and scan.stuck_reads:
        yield f"{scan.stuck_reads} reads of /sys do not return"


def withheld(running: RunningDaemon) -> tuple[WithheldView, ...]:
    """Return what is withheld, the longest first."""
    known = running.ledger.withheld
    if not known:
        return ()
    inventory = running.offering.inventory
    here = {i for x in inventory.devices.values() for i in (x.id, *x.parents)} if inventory is not None else set()
    found = sorted(known.values(), key=lambda each: (each.since, each.device))
    return tuple(WithheldView(x.device, x.reason, x.since, x.device in here) for x in found)


def resources(running: RunningDaemon, empty: Mapping[str, str] = {}) -> tuple[ResourceView, ...]:
    """Return the state of every resource with each of its APIs; `empty` has the reasons for those without devices."""
    return tuple(_resources(running, _dra(running), empty))


def _resources(running: RunningDaemon, dra: DraView | None, empty: Mapping[str, str]) -> Iterator[ResourceView]:
    for x in running.plugins.status():
        counts, why = (x.devices, x.healthy, x.leased), "" if x.devices else empty.get(x.name, "")
        yield ResourceView(x.name, API, *counts, x.streaming, x.registrations, x.last_error, why)
    if running.dra is None or dra is None:
        return
    registrations = running.dra.status().registrations  # of the driver, for all of its resources
    found: dict[str, list[bool]] = {x.name: [] for x in running.offering.config.resources if x.api != API}
    for offered, lease in running.dra.devices():
        is_given = offered.device.health.healthy and not (offered.device.withheld or offered.device.unavailable)
        found.setdefault(offered.resource.name, []).append(is_given and lease is None)
    for name, healths in found.items():
        leased = len(running.ledger.of_resource(name, "dra"))
        counts = len(healths), sum(healths), leased
        why = "" if healths else empty.get(name, "")
        yield ResourceView(name, "dra", *counts, dra.is_registered, registrations, dra.last_error, why)


def devices(running: RunningDaemon) -> tuple[DeviceView, ...]:
    """Return the state of every device, of each resource and API."""
    return tuple(
        _devices(running, Counter((x.api, x.resource, name) for x in running.ledger.leases() for name in _names(x)))
    )


def _devices(running: RunningDaemon, used: Mapping[tuple[str, str, str], int]) -> Iterator[DeviceView]:
    for name, devices in running.plugins.devices().items():
        for x in devices:
            yield DeviceView(name, API, x.id, x.health, x.reason, used.get((API, name, x.id), 0))
    for offered, lease in running.dra.devices() if running.dra is not None else ():
        name, health = offered.resource.name, offered.device.health
        leased = used.get(("dra", name, offered.name), 0)
        if not health.healthy:
            yield DeviceView(name, "dra", offered.name, "unhealthy", health.reason, leased)
        elif kept := offered.device.withheld or offered.device.unavailable:
            yield DeviceView(name, "dra", offered.name, "unavailable", kept, leased)
        elif lease is not None:
            yield DeviceView(name, "dra", offered.name, "unavailable", str(lease), leased)
        else:
            yield DeviceView(name, "dra", offered.name, "healthy", "", leased)


def _names(lease: Lease) -> Set[str]:
    """Return the names under which the object of a lease is shown: devices, a unit that is gone; for DRA its name."""
    if lease.api == API:
        return lease.exclusive | {lease.unit}
    return {lease.unit.partition("@")[0].partition("/")[0]}


def _dra(running: RunningDaemon) -> DraView | None:
    if running.dra is None:
        return None
    x = running.dra.status()
    driver = running.offering.config.settings.driver_name
    return DraView(driver, x.registered, x.devices, x.healthy, x.claims, x.slice_writes, x.last_error)
