"""Invariants of a node: those that always hold, and those that hold while its disk accepts writes."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping

import cdi
from checkpoint import Lease
from deviceplugin.units import owner_of, units_of
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.nodeplug.simulation.cluster import DRIVER, Claim, Cluster, Holder
from tests.nodeplug.simulation.daemon import Daemon, Folder
from tests.nodeplug.simulation.host import PHYSICAL, UPLINK, VIRTUAL, HardwareUse, SimulatedHost
from tests.nodeplug.simulation.names import device_of, without_share
from tests.nodeplug.simulation.runtime import Runtime
from tests.nodeplug.simulation.stick import PORT

_CLAIM_FILES = tuple(f"nodeplug-dra~{DRIVER}~{what}~" for what in ("claim", "metadata"))


class Broken(AssertionError):
    """A rule is broken; the message names the rule and the subject."""


def exclusive_devices_have_one_holder(cluster: Cluster) -> None:
    """No two holders have the same exclusive device, whole or in part."""
    for one, other in itertools.combinations(cluster.holders(), 2):
        if one.api == other.api == "device-plugin":
            clash = (
                one.takes.excludes(other.takes)
                and not _are_shares(one, other)
                and not _are_functions(*(min(x.devices, default="") for x in (one, other)))
            )
        else:  # one claim can have a device twice
            clash = one.owner != other.owner and one.takes.excludes(other.takes)
        # without a port by which a holder has another device
        opened = (one.opened & other.opened) - (one.parts & other.parts) - {PORT}
        if clash or (one.owner != other.owner and opened):
            raise Broken(f"two holders: {one.owner} ({one.api}) {one.lease}, {other.owner} ({other.api}) {other.lease}")


def uplink_has_no_holder(cluster: Cluster) -> None:
    """A holder of the default route's interface would take the node off the network."""
    for holder in cluster.holders():
        if holder.takes.whole & UPLINK:
            raise Broken(f"uplink: {holder.owner} ({holder.api}) has {holder.lease}")


def allocated_devices_have_leases(cluster: Cluster, leases: Iterable[Lease], *, was_lost: bool) -> None:
    """Each prepared or allocated device has a lease. After a lost ledger, admin access cannot be restored."""
    known: dict[tuple[str, str, str], Lease]
    known = {(x.api, x.resource if x.api == "device-plugin" else _uid(x), x.unit): x for x in leases}
    for holder in cluster.holders():
        lease = known.get((holder.api, *holder.lease))
        if lease is None and not (was_lost and "@" in holder.lease[1]):
            raise Broken(f"lost: {holder.owner} ({holder.api}) was given {holder.lease}, and there is no lease of it")
        if lease is not None and not holder.devices <= lease.devices:
            what = f"{holder.lease} of {set(holder.devices)}"
            raise Broken(f"other: {holder.owner} ({holder.api}) has {what}, which is leased as {set(lease.devices)}")


def files_have_leases(folder: Folder, leases: Iterable[Lease]) -> None:
    """Each claim with files has a lease: otherwise the files would have no owner."""
    uids = {_uid(x) for x in leases if x.api == "dra"}
    for uid in _uids_with_specs(folder):
        if uid not in uids:
            raise Broken(f"stale: the claim {uid} has a CDI file and no lease")


def leases_have_files(
    folder: Folder,
    runtime: Runtime,
    cluster: Cluster,
    host: SimulatedHost,
    leases: Iterable[Lease],
    *,
    is_scanned: bool,
) -> None:
    """Each claim with leases is done and has all its files. Absent devices are not described."""
    ours = [x for x in leases if x.api == "dra"]
    if half := [x.unit for x in ours if x.phase != "done"]:
        raise Broken(f"half done: {', '.join(half)}")
    uids = {_uid(x) for x in ours if x.record}  # a claim that is known only from its pods has no record
    are_all = len(uids) == len({_uid(x) for x in ours})
    specs = Counter(_uids_with_specs(folder))
    known = [x for x in cluster.claims if x.uid in uids]
    units = {uid: {x.unit for x in ours if _uid(x) == uid} for uid in uids}
    fully_leased = [x for x in known if units[x.uid] == {*x.takes}]  # otherwise the process died before the answer
    complete = {x.uid for x in fully_leased if is_scanned and _are_present(x, host)}
    for uid in uids:
        if specs[uid] != len(_CLAIM_FILES) and (uid in complete or not specs[uid]):
            raise Broken(f"files: leases of {sorted(uids)}, CDI files of {dict(specs)}")
    with_metadata = {x.name.partition("~")[0] for x in folder.metadata.glob("[!.]*")}
    needed = {x.uid for x in known}
    if not needed <= with_metadata or (are_all and len(known) == len(uids) and with_metadata - needed):
        raise Broken(f"metadata: leases of {[str(x.ref) for x in known]}, files of {sorted(with_metadata)}")
    found = runtime.described()
    for claim in known:
        if claim.answer is not None:
            _is_whole(folder, claim, found if claim.uid in complete else None)


def no_temporary_file_is_left(folder: Folder, daemon: Daemon) -> None:
    """No temporary file of a dead process is left, except of a front that does not run any more."""
    of_claims = [*folder.cdi.glob(".nodeplug-dra~*"), *folder.metadata.glob(".*")]
    if left := {*folder.cdi.glob(".*"), *of_claims} - {*(of_claims if daemon.dra is None else ())}:
        raise Broken(f"half written: {[x.name for x in left]}")


def lists_match_the_leases(
    daemon: Daemon, host: SimulatedHost, lists: Mapping[str, Mapping[str, bool]], *, is_whole: bool
) -> None:
    """The device plugin API lists exactly the held devices as unhealthy for other holders."""
    leases = daemon.ledger.leases()
    for resource in (x for x in daemon.resources if x.api != "dra" and x.name in lists):
        units = units_of(resource, daemon.assignment.devices[resource.name])
        for unit, is_healthy in lists[resource.name].items():
            holders = [x for x in leases if x.api == "dra" or x.owner != owner_of(resource, unit, None)]
            name = units[unit].id if unit in units else unit
            has = host.takes(name, "device-plugin")
            is_taken = any(
                has.excludes(_takes(host, x)) and not (x.api != "dra" and _are_functions(_device(host, x), name))
                for x in holders
            )
            mine = [x for x in leases if (x.api, x.resource) == ("device-plugin", resource.name)]
            own = [x for x in mine if x.unit in units and units[x.unit].id == name]
            # a CDI name keeps the meaning that it has for the current pod, so no other pod can get it
            is_older = any(name not in x.exclusive for x in own) or (
                resource.cdi is True and any(_has_other_members(host, x) for x in own)
            )
            expected = unit in units and host.is_usable(name) and not is_taken and not is_older
            # or it is described at another container path, for its current pod
            is_elsewhere = resource.cdi is True and any(name in x.exclusive for x in mine)
            if is_healthy != expected and (is_whole or resource.cdi is not True) and not (expected and is_elsewhere):
                raise Broken(f"shown: {resource.name} lists {unit} as {'Healthy' if is_healthy else 'Unhealthy'}")


def taints_match_the_leases(daemon: Daemon, host: SimulatedHost) -> None:
    """Exactly those devices are tainted whose holder the scheduler does not know.

    A group that stays only for a claim keeps its members of then, whatever its name means on the host now.
    """
    published = daemon.dra.published() if daemon.dra is not None else {}
    there = daemon.dra.there() if daemon.dra is not None else set()

    def takes(name: str) -> HardwareUse:
        # as published: a claimed device does not change with the configuration
        return host.takes(name, "dra", is_shared=bool(published[name].allow_multiple_allocations))

    def is_known(lease: Lease) -> bool:
        name = lease.unit.partition("/")[0]
        return lease.api == "dra" and name in published and (name not in there or takes(name) == _takes(host, lease))

    leases = daemon.ledger.leases()
    others = [_takes(host, x) for x in leases if not is_known(x)]
    # a removed group is published with its last members, which can be fewer
    groups = [_takes(host, x) for x in leases if is_known(x) and x.unit not in there and host.is_group(x.unit)]
    for name, device in published.items():
        if name not in there:
            continue
        is_tainted = any(x.key == f"{DRIVER}/in-use" for x in device.taints)
        if any(takes(name).excludes(x) for x in groups):
            continue
        if is_tainted != any(takes(name).excludes(x) for x in others):
            raise Broken(f"shown: {name} is {'tainted as' if is_tainted else 'not tainted though'} in use")


def offered_devices_are_described(runtime: Runtime, daemon: Daemon, host: SimulatedHost) -> None:
    """A runtime finds every device that is offered with CDI names, in its current state. True after a scan."""
    found = runtime.described()
    for resource in (x for x in daemon.resources if x.api != "dra" and x.cdi is not False):
        for device in daemon.assignment.devices[resource.name]:
            described = found.get(cdi.qualified_name(cdi.kind_of(resource.name), device.id))
            paths = [x.host_path or x.path for x in described.container_edits.device_nodes] if described else []
            leases = daemon.ledger.of_resource(resource.name, "device-plugin")
            held = [host.members(device.id, x.exclusive) for x in leases if _device(host, x) == device.id]
            allowed = [host.nodes_of(x) for x in (host.devices_of(device.id), *held) if x is not None]
            if {host.opens(x) for x in paths} not in allowed:  # or without new members of a group that has a holder
                raise Broken(f"CDI: {resource.name} describes {device.id} as {paths}")


def listed(encoded: bytes) -> dict[str, bool]:
    """A resource's list as the kubelet reads it: whether each unit is healthy."""
    return {x.ID: x.health == "Healthy" for x in api.ListAndWatchResponse.FromString(encoded).devices}


def _are_present(claim: Claim, host: SimulatedHost) -> bool:
    """Return whether the devices of a claim are present; a group or port that is not offered must not have moved."""
    has_groups = any(host.is_group(x) or device_of(x) == PORT for x in claim.takes)
    return (
        bool(claim.devices)
        and host.is_plugged(claim.devices)
        and not (has_groups and host.places(claim.devices) != claim.moves)
    )


def _is_whole(folder: Folder, claim: Claim, found: Mapping[str, cdi.Device] | None) -> None:
    assert claim.answer is not None
    for name in (x for device in claim.answer for x in device.cdi_device_ids):
        if found is not None and name not in found:
            raise Broken(f"lost: {claim.name} was told {name}, which no CDI file has")
    for request in {x.request for x in claim.results}:
        path = folder.metadata / f"{claim.uid}~{request}.json"
        try:
            metadata, _ = json.JSONDecoder().raw_decode(path.read_text())
        except (OSError, ValueError) as error:
            raise Broken(f"lost: the metadata of {claim.name}, request {request}: {error}") from error
        if metadata["metadata"]["uid"] != claim.uid:
            raise Broken(f"metadata: {claim.ref} reads what was said of {metadata['metadata']['uid']}")


def _takes(host: SimulatedHost, lease: Lease) -> HardwareUse:
    """What a lease takes; for a group, its members at that time."""
    name = lease.unit if lease.api == "dra" else _device(host, lease)
    return host.takes(name, lease.api, devices=host.members(name, lease.exclusive))


def _device(host: SimulatedHost, lease: Lease) -> str:
    """The device or group of a lease, whatever its unit's name means now."""
    return host.leased(lease.unit, lease.exclusive)


def _has_other_members(host: SimulatedHost, lease: Lease) -> bool:
    """Return whether a group's members differ from those of the lease that are still present."""
    name = _device(host, lease)
    members = host.members(name, lease.exclusive)
    return members is not None and {x for x in members if host.is_plugged([x])} != {*host.devices_of(name)}


def _uid(lease: Lease) -> str:
    return lease.owner.removeprefix("claim/")


def _are_functions(one: str, other: str) -> bool:
    """Return whether these are two functions of one card, which only DRA and the guard between the APIs exclude."""
    return one != other and {PHYSICAL, *VIRTUAL} >= {one, other}


def _are_shares(one: Holder, other: Holder) -> bool:
    """Return whether two holders of one resource have different shares of a device."""
    units = one.lease[1], other.lease[1]
    names = {*map(without_share, units)}
    return one.owner == other.owner and units[0] != units[1] and len(names) == 1 and names.isdisjoint(units)


def _uids_with_specs(folder: Folder) -> list[str]:
    names = [x.name for x in folder.cdi.iterdir()] if folder.cdi.exists() else []
    return [
        name.removeprefix(prefix).removesuffix(".json")
        for name in names
        for prefix in _CLAIM_FILES
        if name.startswith(prefix)
    ]
