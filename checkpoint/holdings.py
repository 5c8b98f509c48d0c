"""What each witness reports about the holders of devices, and which reports end a lease. Pure.

A unit of the device plugin API; the first matching row decides:

| pod-resources | the kubelet's file | the kernel | the lease |
|---|---|---|---|
| names the unit | | | is held |
| | | a cgroup of its pod is there | is held |
| | | the cgroups of all its pods were seen and are gone | ends |
| silent, or does not know its pods yet | | | not known |
| names it for no container | cannot be read | no cgroup of its pod, which is known | ends |
| names it for no container | cannot be read | its pod is not known, or no cgroups can be seen | not known |
| names it for no container | does not name it | | ends |
| names it for no container | names it, written after pod-resources was asked | | is held |
| names it for no container | names it, older than that | | the kubelet is asked to write its file again |

A claim:

| pod-resources | the kubelet's file | the kernel | the API server | the lease |
|---|---|---|---|---|
| names its devices | | | | is held |
| | | a cgroup of its pods is there | | is held |
| silent, or does not know its pods yet | | | | not known |
| names none of it | names the claim | | | is held |
| names none of it | cannot be read | its pods are not known, or no cgroups can be seen | | not known |
| names none of it | otherwise | | wants it prepared | is held |
| names none of it | otherwise | | reports: gone, replaced, not allocated here; or is not configured | ends |
| names none of it | otherwise | | does not answer | not known |

The pods of a claim are those in the lease and those in the kubelet's file. Several witnesses are needed: List is
empty until a kubelet knows its pods, and omits plain init containers; the file keeps dead pods until the kubelet writes
it for another reason; cgroups show pods and no devices; an API server forgets a claim that was deleted by force while
its container runs. Sources: device manager specification 4.7, 9; observations 47, 51; DRA specification 1.7, 1.8, 4.4.
"""

from collections.abc import Mapping, Sequence, Set
from enum import Enum, auto

from msgspec import Struct

from checkpoint.lease import Lease


class Verdict(Enum):
    """What happens to a lease."""

    HELD = auto()
    ENDED = auto()
    NOT_KNOWN = auto()
    FILE_TOO_OLD = auto()  # the kubelet must write its file again
    ASK_SERVER = auto()


class Listed(Struct, frozen=True):
    """What pod-resources lists: the holders of units, and the devices that claims have.

    `units`: (resource, unit) -> `pod/<namespace>/<name>/<container>`. `claims`: (namespace, name) -> units of
    nodeplug's driver, `<device>` or `<device>/<share id>`. `pods`: `<namespace>/<name>` of all of them.
    `knows_its_pods`: since its start this kubelet has listed a pod from the API server; before that an empty list means
    nothing (static pods come from files and are listed at once). `kubelet` identifies it; None if that is unknown.
    """

    units: Mapping[tuple[str, str], str] = {}
    claims: Mapping[tuple[str, str], frozenset[str]] = {}
    knows_its_pods: bool = False
    pods: frozenset[str] = frozenset()
    kubelet: object = None


class UnitEntry(Struct, frozen=True):
    """The pod and container for which the kubelet's file names a unit, and the answer that the kubelet got for it."""

    pod: str  # uid
    container: str
    response: bytes | None = None


class DeviceFile(Struct, frozen=True):
    """`kubelet_internal_checkpoint`: units by (resource, unit). `is_fresh`: written after pod-resources was asked."""

    units: Mapping[tuple[str, str], UnitEntry] = {}
    is_fresh: bool = True


class ClaimEntry(Struct, frozen=True):
    """A claim in the kubelet's file: its name, the uids of its pods, and the units in nodeplug's answer.

    Without an answer no container has started with the claim: the kubelet records both before the start.
    """

    namespace: str
    name: str
    pods: frozenset[str] = frozenset()
    units: frozenset[str] = frozenset()


class Holdings(Struct, frozen=True):
    """What the witnesses reported at one moment; None for a witness without an answer.

    `claim_file` is `dra_manager_state`, by claim uid. `pods` are the uids of the pods that have cgroups, `ended_pods`
    those whose cgroups were seen in this boot and are gone: the kubelet removes them once it has ended the pod.
    `claims` is, by claim uid, whether the API server wants the claim prepared; None without an API server.
    """

    listed: Listed | None = None
    device_file: DeviceFile | None = None
    claim_file: Mapping[str, ClaimEntry] | None = None
    pods: frozenset[str] | None = None
    ended_pods: frozenset[str] = frozenset()
    claims: Mapping[str, bool] | None = {}

    def verdict(self, lease: Lease) -> Verdict:
        """Return what happens to a lease according to the tables above."""
        return self._of_claim(lease) if lease.api == "dra" else self._of_unit(lease)

    def names(self, lease: Lease) -> bool:
        """Return whether the kubelet names a unit now. An older file proves nothing: it keeps what was forgotten."""
        is_fresh = self.device_file is not None and self.device_file.is_fresh
        return bool(self.holder_of(lease)) or (is_fresh and self.entry_of(lease) is not None)

    @property
    def files_name_any(self) -> bool:
        """Return whether the kubelet's files name any unit or claim of nodeplug."""
        claims = (self.claim_file or {}).values()
        return bool(self.device_file and self.device_file.units) or any(claim.units for claim in claims)

    def pods_of(self, lease: Lease) -> frozenset[str]:
        """Return the uids of the pods that might use what was leased."""
        if lease.api == "dra":
            claim = (self.claim_file or {}).get(claim_of(lease).uid)
            return lease.pods | claim.pods if claim else lease.pods
        entry = self.entry_of(lease)
        return lease.pods | {entry.pod} if entry else lease.pods

    def holder_of(self, lease: Lease) -> str:
        """Return the holder for which pod-resources names a unit; empty if there is none."""
        return self.listed.units.get((lease.resource, lease.unit), "") if self.listed else ""

    def claim_holder_of(self, lease: Lease) -> str:
        """Return the claim that holds an old lease, which does not contain its name; empty if no file names it."""
        if lease.api != "dra" or (claim := claim_of(lease)).name:
            return ""
        entry = (self.claim_file or {}).get(claim.uid)
        return claim_holder(entry.namespace, entry.name, claim.uid) if entry is not None else ""

    def entry_of(self, lease: Lease) -> UnitEntry | None:
        """Return the kubelet's entry for a unit; None if its file does not name it."""
        return self.device_file.units.get((lease.resource, lease.unit)) if self.device_file else None

    def _of_unit(self, lease: Lease) -> Verdict:
        pods = self.pods_of(lease)
        if self.holder_of(lease) or not pods.isdisjoint(self.pods or ()):
            return Verdict.HELD
        if pods and pods <= self.ended_pods:
            return Verdict.ENDED
        if self.listed is None or not self.listed.knows_its_pods:
            return Verdict.NOT_KNOWN
        if self.device_file is None:
            return Verdict.ENDED if pods and self.pods is not None else Verdict.NOT_KNOWN
        if self.entry_of(lease) is None:
            return Verdict.ENDED
        return Verdict.HELD if self.device_file.is_fresh else Verdict.FILE_TOO_OLD

    def _of_claim(self, lease: Lease) -> Verdict:
        claim, pods = claim_of(lease), self.pods_of(lease)
        if self.lists_claim(lease) or not pods.isdisjoint(self.pods or ()):
            return Verdict.HELD
        if self.listed is None or not self.listed.knows_its_pods:
            return Verdict.NOT_KNOWN
        if self.claim_file is None and not (pods and self.pods is not None):
            return Verdict.NOT_KNOWN
        if self.claim_file is not None and claim.uid in self.claim_file:
            return Verdict.HELD
        if self.claims is None:
            return Verdict.ENDED
        if claim.uid not in self.claims:
            return Verdict.ASK_SERVER
        return Verdict.HELD if self.claims[claim.uid] else Verdict.ENDED

    def lists_claim(self, lease: Lease) -> bool:
        """Return whether pod-resources names the device of a lease for its claim."""
        if self.listed is None:
            return False
        claim = claim_of(lease)
        unit = lease.unit.partition("@")[0]  # the rest distinguishes an administrator's access
        if claim.name:
            return unit in self.listed.claims.get((claim.namespace, claim.name), ())
        return any(unit in units for units in self.listed.claims.values())


class ClaimName(Struct, frozen=True):
    """A claim, as in the holder of a lease; old ledgers did not store the name."""

    namespace: str
    name: str
    uid: str


def claim_of(lease: Lease) -> ClaimName:
    """Return the claim that holds a lease of DRA."""
    match lease.holder.split("/"):
        case [_, namespace, name, uid]:
            return ClaimName(namespace, name, uid)
        case [*_, uid]:
            return ClaimName("", "", uid)
    raise AssertionError("a text has parts")


def claim_holder(namespace: str, name: str, uid: str) -> str:
    """Return a lease's text for the claim that holds it."""
    return f"claim/{namespace}/{name}/{uid}"


def held_units(holdings: Holdings) -> dict[tuple[str, str], tuple[str, UnitEntry | None]]:
    """Return the units that are held for certain: named by pod-resources, or of a pod that runs."""
    entries = holdings.device_file.units if holdings.device_file else {}
    running = {unit: ("", entry) for unit, entry in entries.items() if entry.pod in (holdings.pods or ())}
    listed = holdings.listed.units.items() if holdings.listed else ()
    return {**running, **{unit: (holder, entries.get(unit)) for unit, holder in listed}}


def held_claims(holdings: Holdings) -> dict[ClaimName, Set[str]]:
    """Return the claims that hold nodeplug's devices for certain, with the named units."""
    entries, running = holdings.claim_file or {}, holdings.pods or frozenset()
    found: dict[ClaimName, Set[str]] = {
        ClaimName(entry.namespace, entry.name, uid): entry.units
        for uid, entry in entries.items()
        if entry.units and not entry.pods.isdisjoint(running)
    }
    uids: dict[tuple[str, str], list[str]] = {}
    for uid, entry in entries.items():
        uids.setdefault((entry.namespace, entry.name), []).append(uid)
    for (namespace, name), units in (holdings.listed.claims if holdings.listed else {}).items():
        claim = ClaimName(namespace, name, _uid_of(uids.get((namespace, name), ()), entries, units))
        found[claim] = found.get(claim, frozenset()) | units
    return found


def _uid_of(uids: Sequence[str], entries: Mapping[str, ClaimEntry], units: Set[str]) -> str:
    """Return the uid of the claim whose units pod-resources lists under a name; empty if the kubelet's file has none.

    Two claims can have one name, one that was deleted by force and the current one: the units distinguish them.
    """
    return next((uid for uid in uids if units <= entries[uid].units), next(iter(uids), ""))
