"""What must be true of a node at every moment, and what only while its disk takes what it is given."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping

import cdi
from checkpoint import Lease
from hostdevices.selector import Ids
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.nodeplug.two_fronts.cluster import Claim, Cluster
from tests.nodeplug.two_fronts.daemon import DRIVER, Daemon, Folder
from tests.nodeplug.two_fronts.host import LivingHost, device_of, takes

_CLAIM_FILES = tuple(f"nodeplug-dra~{DRIVER}~{what}~" for what in ("claim", "metadata"))


class Broken(AssertionError):
    """A rule does not hold; says which and of what."""


def nobody_shares_what_is_not_shared(cluster: Cluster) -> None:
    """Nobody who was told yes has what somebody else has, who was told yes: not whole, not in part."""
    for one, other in itertools.combinations(cluster.holders(), 2):
        (party, front, unit, has), (other_party, other_front, other_unit, other_has) = one, other
        if (party, front) != (other_party, other_front):
            clash = has.excludes(other_has)
        else:  # of a resource the kubelet gives each unit once; a claim may have what it has twice
            clash = front == "device-plugin" and unit == other_unit
        if clash:
            raise Broken(f"two holders: {party} ({front}) has {unit}, {other_party} ({other_front}) has {other_unit}")


def what_was_promised_is_leased(cluster: Cluster, leases: Iterable[Lease]) -> None:
    """Every yes that nobody has undone is on record."""
    known = {(x.api, x.resource if x.api == "device-plugin" else x.holder, x.unit): x for x in leases}
    for party, front, unit, _ in cluster.holders():
        if (front, party, unit) not in known:
            raise Broken(f"lost: {party} ({front}) was given {unit}, and there is no lease of it")


def files_have_leases(folder: Folder, leases: Iterable[Lease]) -> None:
    """No claim has files without having a lease: they would be nobody's."""
    uids = {x.holder.removeprefix("claim/") for x in leases if x.api == "dra"}
    for uid in _uids_with_specs(folder):
        if uid not in uids:
            raise Broken(f"stale: the claim {uid} has a CDI file and no lease")


def leases_have_files(folder: Folder, cluster: Cluster, leases: Iterable[Lease]) -> None:
    """Every claim with leases is done and has all its files."""
    ours = [x for x in leases if x.api == "dra"]
    if half := [x.unit for x in ours if x.phase != "done"]:
        raise Broken(f"half done: {', '.join(half)}")
    uids = {x.holder.removeprefix("claim/") for x in ours}
    specs = Counter(_uids_with_specs(folder))
    if specs != dict.fromkeys(uids, len(_CLAIM_FILES)):
        raise Broken(f"files: leases of {sorted(uids)}, CDI files of {dict(specs)}")
    known = [x for x in cluster.claims if x.uid in uids]
    with_metadata = {x.name for x in folder.metadata.iterdir()} if folder.metadata.exists() else set()
    needed = {f"default_{x.name}" for x in known if not x.is_contested}
    if not needed <= with_metadata or (
        len(known) == len(uids) and with_metadata - {f"default_{x.name}" for x in known}
    ):
        raise Broken(f"metadata: leases of {[str(x.ref) for x in known]}, folders {sorted(with_metadata)}")
    found = _devices(folder)
    for claim in known:
        if claim.answer is not None:
            _is_whole(folder, claim, found)


def nothing_is_half_written(folder: Folder) -> None:
    """No file is left that was being written when the process died."""
    if left := [x.name for x in folder.cdi.glob(".*")]:
        raise Broken(f"half written: {left}")


def shown_as_it_is(
    daemon: Daemon, host: LivingHost, lists: Mapping[str, Mapping[str, bool]], withheld: Iterable[str]
) -> None:
    """What the one API has given out, the other one shows as taken; and nothing else."""
    leases = daemon.ledger.leases()
    claimed = [takes(x.unit, "dra") for x in leases if x.api == "dra"]
    plugged_in = [takes(x.unit, "device-plugin") for x in leases if x.api == "device-plugin"]
    barred = {*withheld, *host.ill}
    for resource, units in lists.items():
        for unit, is_healthy in units.items():
            has = takes(unit, "device-plugin")
            is_there = device_of(unit) in host.plugged and device_of(unit) not in barred
            if is_healthy != (is_there and not any(has.excludes(x) for x in claimed)):
                raise Broken(f"shown: {resource} lists {unit} as {'Healthy' if is_healthy else 'Unhealthy'}")
    for name, device in daemon.dra.published().items():
        is_tainted = any(x.key == f"{DRIVER}/in-use" for x in device.taints)
        if is_tainted != any(takes(name, "dra").excludes(x) for x in plugged_in):
            raise Broken(f"shown: {name} is {'tainted as' if is_tainted else 'not tainted though'} in use")


def what_is_there_is_described(folder: Folder, daemon: Daemon, host: LivingHost) -> None:
    """A container runtime finds every device of a resource that hands out CDI names. True after a scan."""
    found = _devices(folder)
    for resource in daemon.resources:
        if resource.api == "dra" or not resource.cdi:
            continue
        assert isinstance(resource.selector, Ids)
        kind = f"{cdi.kind_of(resource.name)}="
        named = {name.removeprefix(kind).partition("_")[0] for name in found if name.startswith(kind)}
        with_nodes = {x for x in resource.selector.globs if x in host.plugged and x.startswith("misc-")}
        if not with_nodes <= named <= {*resource.selector.globs}:
            raise Broken(f"CDI: {resource.name} describes {sorted(named)}, there are {sorted(with_nodes)}")


def listed(encoded: bytes) -> dict[str, bool]:
    """A resource's list as the kubelet reads it: whether each unit is healthy."""
    return {x.ID: x.health == "Healthy" for x in api.ListAndWatchResponse.FromString(encoded).devices}


def _is_whole(folder: Folder, claim: Claim, found: Mapping[str, cdi.Device]) -> None:
    assert claim.answer is not None
    for name in (x for device in claim.answer for x in device.cdi_device_ids):
        if name not in found:
            raise Broken(f"lost: {claim.name} was told {name}, which no CDI file has")
    for request in {x.request for x in claim.results} if not claim.is_contested else ():
        path = folder.metadata / f"default_{claim.name}" / request / "metadata.json"
        try:
            said, _ = json.JSONDecoder().raw_decode(path.read_text())
        except (OSError, ValueError) as error:
            raise Broken(f"lost: the metadata of {claim.name}, request {request}: {error}") from error
        if said["metadata"]["uid"] != claim.uid:
            raise Broken(f"metadata: {claim.ref} reads what was said of {said['metadata']['uid']}")


def _uids_with_specs(folder: Folder) -> list[str]:
    names = [x.name for x in folder.cdi.iterdir()] if folder.cdi.exists() else []
    return [
        name.removeprefix(prefix).removesuffix(".json")
        for name in names
        for prefix in _CLAIM_FILES
        if name.startswith(prefix)
    ]


def _devices(folder: Folder) -> dict[str, cdi.Device]:
    """What a runtime finds, by qualified name."""
    specs = [cdi.decode(x.read_bytes()) for x in folder.cdi.glob("*.json")] if folder.cdi.exists() else []
    return {cdi.qualified_name(spec.kind, device.name): device for spec in specs for device in spec.devices}
