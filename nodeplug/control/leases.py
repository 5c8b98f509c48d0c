"""`leases`: the holders of all devices, from the ledger."""

from typing import Literal

from msgspec import Struct

from checkpoint import Api, Lease
from nodeplug.control.running import RunningDaemon


class Question(Struct, frozen=True, tag_field="question", tag="leases"):
    """Which leases are there?"""


class LeaseView(Struct, frozen=True, rename="camel"):
    """A lease. Names are a contract with scripts.

    For a unit, `pod` and `container` are known once the kubelet has named them. For a claim, `claim` is its name and
    `pod_uids` are its pods. `devices` are those that the lease takes whole, `shared` those of which it takes a part.
    """

    resource: str
    api: Api
    unit: str
    holder: str
    namespace: str
    pod: str
    container: str
    claim: str
    claim_uid: str
    pod_uids: tuple[str, ...]
    devices: tuple[str, ...]
    shared: tuple[str, ...]
    phase: Literal["intended", "done"]
    granted_at: float  # seconds since the epoch


class Answer(Struct, frozen=True):
    """All leases, in the order of their grants."""

    leases: tuple[LeaseView, ...]


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `leases`."""
    del question
    return Answer(tuple(map(view, running.ledger.leases())))


def view(lease: Lease) -> LeaseView:
    """Return the view of a lease."""
    namespace = pod = container = claim = claim_uid = ""
    match lease.holder.split("/"):
        case ["pod", namespace, pod, container]:
            pass
        case ["claim", namespace, claim, claim_uid]:
            pass
        case ["claim", claim_uid]:
            pass
    return LeaseView(
        resource=lease.resource,
        api=lease.api,
        unit=lease.unit,
        holder=lease.holder,
        namespace=namespace,
        pod=pod,
        container=container,
        claim=claim,
        claim_uid=claim_uid,
        pod_uids=tuple(sorted(lease.pods)),
        devices=tuple(sorted(lease.exclusive)),
        shared=tuple(sorted(lease.shared)),
        phase=lease.phase,
        granted_at=lease.granted_at,
    )
