"""What the leases of a container's units store: its answer, and its devices at that time.

All units of one answer have the same bytes, which the ledger stores once.
"""

import msgspec
from msgspec import Struct

from hostdevices.presence import Seen
from resources.resource import NodeAccess


class ContainerRecord(Struct, frozen=True, array_like=True):
    """An answer to Allocate.

    The encoded ContainerAllocateResponse, and how its devices are described to the runtime.
    """

    response: bytes
    devices: tuple[Seen, ...] = ()
    permissions: str = "rw"
    access: NodeAccess | None = None
    is_named: bool = False  # the answer has CDI names of nodeplug
    with_driver: bool = False  # and they bring the driver's files


def encode(record: ContainerRecord) -> bytes:
    """Return the bytes that the leases store; equal records have equal bytes."""
    return msgspec.msgpack.encode(record)


def decode(record: bytes) -> ContainerRecord | None:
    """Return the record in a lease; None if this version cannot read it."""
    try:
        return msgspec.msgpack.decode(record, type=ContainerRecord)
    except msgspec.MsgspecError:
        return None
