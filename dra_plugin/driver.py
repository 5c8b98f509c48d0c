"""The interface between the gRPC side and the preparing side of the plugin."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from checkpoint import Api
from hostdevices.shown import shown
from resourceapi.objects import v1
from telemetry import RefusalReason

API: Api = "dra"
"""What a lease says of where it came from."""
_LONGEST = 500  # characters; namespace, name and uid of a claim have at most 63, 253 and 128


class ClaimRef(Struct, frozen=True):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """Return `namespace/name:uid`, as much of it as a valid claim can have."""
        return shown(f"{self.namespace}/{self.name}:{self.uid}", _LONGEST)


class PreparedDevice(Struct, frozen=True):
    """One device of a claim, ready for containers.

    `requests` are as in the allocation result (`gpu`, `gpu/large`); empty: whatever request a container names.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_device_ids: tuple[str, ...] = ()
    share_id: str | None = None


class ClaimFailed(Struct, frozen=True):
    """Why one claim could not be prepared or unprepared; the others of the call are not concerned.

    `counted_as` is for metrics.
    """

    reason: str
    counted_as: RefusalReason = "not-ready"


Prepared: TypeAlias = tuple[PreparedDevice, ...] | ClaimFailed


class Driver(Protocol):
    """Prepares claims. Both calls can be repeated at any moment, after any crash, with the same answer."""

    async def known(self) -> None:
        """Return once it is known what pods have, or cannot be found out in time: before a claim's turn is taken."""
        ...

    async def prepare(self, claims: Sequence[v1.ResourceClaim]) -> Mapping[str, Prepared]:
        """Make the devices of allocated claims ready; return every claim's outcome by uid."""
        ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, ClaimFailed | None]:
        """Undo `prepare`, without the claim objects; return every claim's outcome by uid. Unknown claims are done."""
        ...
