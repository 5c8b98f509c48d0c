"""Preparing claims: check, lease (intended), change the host, lease (done), answer; and undoing it all.

Rules:
1. A claim's devices are leased on disk before the host is changed for them, and again before the answer leaves.
2. Both calls can be repeated at any moment, after any crash: what is done gives the same answer again, what is half
   done is undone first.
3. Never another device: what is unknown, unhealthy, withheld, changed or held by somebody else is refused with words.
4. Claims do not wait for one another. Of one claim, one call works at a time; the next waits for it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from checkpoint import Ledger
from dra_plugin.driver import ClaimFailed, ClaimRef, Prepared
from dra_plugin.offers import Offered
from hostdevices import Device, Host
from resourceapi.client import Resource as ApiResource
from resourceapi.objects import v1

Find: TypeAlias = Callable[[str], Offered | None]
Attributes: TypeAlias = Callable[[Offered], Mapping[str, v1.DeviceAttribute]]
ApiClaims: TypeAlias = Callable[[], ApiResource[v1.ResourceClaim]]


class Paths(Struct, frozen=True):
    """Where files go and where the kubelet answers, on this host."""

    cdi: Path
    pod_resources: Path  # the socket
    metadata: Path | None = None  # the folder `dra-device-metadata` in the plugin's data folder; None: no metadata


class Preparer:
    """Prepares claims (`driver.Driver`). Belongs to the loop."""

    def __init__(
        self,
        driver: str,
        pool: str,
        host: Host,
        ledger: Ledger,
        paths: Paths,
        find: Find,
        attributes: Attributes,
        *,
        claims: ApiClaims | None = None,
        fresh_look: Callable[[], Awaitable[None]] | None = None,
        allowed_mounts: Sequence[str] = (),
    ) -> None:
        """Prepare. `driver` is the driver's name, `pool` its pool on this node.

        `find` says what is offered under a name, `attributes` what slices say of it. `claims` gives the API server's
        claims; it is called in a thread and may block. Without it no status is written and nothing is reconciled.
        `fresh_look` brings the other API's leases up to date with the kubelet. Mounts from device classes must lie
        below one of `allowed_mounts`.
        """
        raise NotImplementedError

    def update(self, assigned: Mapping[str, Sequence[Device]]) -> None:
        """Take over which devices there are, right after a scan: what they are now is what may be handed out."""
        raise NotImplementedError

    async def repair(self) -> None:
        """At start, before the first call: undo what is half done, put back the files of what is done, remove others.

        A disk that refuses is logged: each claim is repaired again when it is prepared.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Begin to reconcile now and then, while there are leases."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End background work and wait for the calls that are working. Leases and files stay. Idempotent."""
        raise NotImplementedError

    async def prepare(self, claims: Sequence[v1.ResourceClaim]) -> Mapping[str, Prepared]:
        """Make the devices of allocated claims ready; return every claim's outcome by uid."""
        raise NotImplementedError

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, ClaimFailed | None]:
        """Undo `prepare`, without the claim objects; return every claim's outcome by uid. Unknown claims are done."""
        raise NotImplementedError

    async def reconcile(self) -> None:
        """Unprepare the claims that are over: gone, replaced or not allocated, and named by no pod any more.

        Changes nothing while the API server or the kubelet does not answer.
        """
        raise NotImplementedError

    async def update_metadata(
        self, claim: ClaimRef, request: str, devices: Mapping[str, Mapping[str, v1.DeviceAttribute]]
    ) -> None:
        """Replace what a prepared claim's metadata says of a request's devices: attributes by device name.

        Containers that were created before keep what they see. Raises `MetadataError`.
        """
        raise NotImplementedError
