"""The interface between the gRPC side and the preparing side of the plugin."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from checkpoint import Api
from hostdevices.printable import printable
from resourceapi.objects import v1
from telemetry import RefusalReason

API: Api = "dra"
"""The API that the leases of this side name."""
_MAX_TEXT = 500  # characters of a claim's text; namespace, name and uid have at most 63, 253 and 128


class ClaimRef(Struct, frozen=True):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """Return `namespace/name:uid`, cut to the length that a valid claim can have."""
        return printable(f"{self.namespace}/{self.name}:{self.uid}", _MAX_TEXT)


class PreparedDevice(Struct, frozen=True):
    """One device of a claim, ready for containers.

    `requests` are as in the allocation result (`gpu`, `gpu/large`); empty: any request that a container names.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_device_ids: tuple[str, ...] = ()
    share_id: str | None = None


class ClaimFailed(Struct, frozen=True):
    """Why one claim could not be prepared or unprepared; the other claims of the call are not affected.

    `counted_as` is the reason in metrics.
    """

    reason: str
    counted_as: RefusalReason = "not-ready"


Prepared: TypeAlias = tuple[PreparedDevice, ...] | ClaimFailed


class Driver(Protocol):
    """Prepares claims. Both calls can be repeated at any moment, after any crash, with the same answer."""

    async def wait_restored(self) -> None:
        """Wait until the devices that pods hold are known, or the time for that is over.

        Call it before acquiring a claim's lock.
        """
        ...

    async def prepare(self, claims: Sequence[v1.ResourceClaim]) -> Mapping[str, Prepared]:
        """Make the devices of allocated claims ready; return the outcome of every claim by uid."""
        ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, ClaimFailed | None]:
        """Undo `prepare`, without the claim objects; return the outcome of every claim by uid.

        Unknown claims succeed.
        """
        ...
