"""What each witness reports about one lease, in words: for those who ask why a lease stays. Pure.

The words follow the tables in holdings.py, which decide.
"""

from collections.abc import Iterator

from msgspec import Struct

from checkpoint.holdings import Holdings, claim_of
from checkpoint.lease import Lease


class Statement(Struct, frozen=True):
    """The report of one witness, and whether it shows that the lease is held."""

    witness: str
    text: str
    holds: bool = False


def statements(holdings: Holdings, lease: Lease) -> tuple[Statement, ...]:
    """Return the reports about a lease, one for each witness."""
    return tuple(_of_claim(holdings, lease) if lease.api == "dra" else _of_unit(holdings, lease))


def _of_unit(holdings: Holdings, lease: Lease) -> Iterator[Statement]:
    holder, entry = holdings.holder_of(lease), holdings.entry_of(lease)
    yield _listed(holdings, f"names it for {holder}" if holder else "")
    if holdings.device_file is None:
        yield Statement("kubelet's file", "cannot be read")
    elif entry is None:
        yield Statement("kubelet's file", "does not name it")
    else:
        yield Statement("kubelet's file", f"names it for {entry.container} of pod {entry.pod}", True)
    yield _kernel(holdings, lease)


def _of_claim(holdings: Holdings, lease: Lease) -> Iterator[Statement]:
    claim = claim_of(lease)
    yield _listed(holdings, "names its devices for the claim" if holdings.lists_claim(lease) else "")
    if holdings.claim_file is None:
        yield Statement("kubelet's file", "cannot be read")
    elif claim.uid in holdings.claim_file:
        yield Statement("kubelet's file", "names the claim", True)
    else:
        yield Statement("kubelet's file", "does not name the claim")
    yield _kernel(holdings, lease)
    if holdings.claims is None:
        yield Statement("API server", "is not configured")
    elif claim.uid in holdings.claims:
        wants = holdings.claims[claim.uid]
        yield Statement("API server", "wants it prepared" if wants else "does not want it prepared", wants)
    else:
        yield Statement("API server", "does not answer")


def _listed(holdings: Holdings, named: str) -> Statement:
    if named:
        return Statement("pod-resources", named, True)
    if holdings.listed is None:
        return Statement("pod-resources", "does not answer")
    if not holdings.listed.knows_its_pods:
        return Statement("pod-resources", "does not know its pods yet")
    return Statement("pod-resources", "names it for no container")


def _kernel(holdings: Holdings, lease: Lease) -> Statement:
    pods = holdings.pods_of(lease)
    if not pods:
        return Statement("kernel", "cannot say: the pod of the lease is not known")
    if holdings.pods is None:
        return Statement("kernel", "cannot say: the cgroups of pods are not visible")
    if running := sorted(pods & holdings.pods):
        return Statement("kernel", f"has a cgroup of pod {running[0]}", True)
    return Statement(
        "kernel",
        "had the cgroups of its pods, and they are gone"
        if pods <= holdings.ended_pods
        else "has no cgroup of its pods",
    )
