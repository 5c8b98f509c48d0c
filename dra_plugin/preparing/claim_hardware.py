"""Hardware of the host that changes for a claim and is restored afterwards: interfaces that move, and drivers.

Each change is recorded in the claim's lease before it is made. The next step follows from the record and the present
state, at any moment and after any crash (interface_moves.py, driver_binding.py).
"""

from collections.abc import Callable, Mapping, Sequence

from dra_plugin.preparing.claim_bindings import ClaimBindings, bindings_of
from dra_plugin.preparing.claim_interfaces import ClaimInterfaces, is_moving
from dra_plugin.preparing.claim_record import Record
from dra_plugin.preparing.host_work import HostWork
from hostdevices import Device, Host
from hostdevices.presence import Presence


class ClaimHardware:
    """Belongs to the loop."""

    def __init__(self, host: Host, presence: Presence, work: HostWork, runtime: str, moved: Callable[[], None]) -> None:
        """Prepare. `runtime` is the setting `ociRuntime`; `moved` is called when an interface may be somewhere else."""
        self.interfaces = ClaimInterfaces(host, presence, work, runtime, moved)
        self.bindings = ClaimBindings(host, presence, work)

    async def apply(self, record: Record) -> None:
        """Have all as the claim is to find it. Raises `InterfaceRefused` and `BindRefused`."""
        await self.bindings.apply(record)
        await self.interfaces.apply(record)

    async def restore(self, record: Record) -> None:
        """Have all as it was. Raises `InterfaceRefused` and `BindRefused` while somebody still has something."""
        await self.interfaces.restore(record)
        await self.bindings.restore(record)

    def follow(self, records: Sequence[Record]) -> None:
        """Keep scans and events true to what these claims of this boot have from now on, and no others."""
        self.interfaces.follow(records)
        self.bindings.follow(records)

    def with_lent(self, devices: Mapping[str, Device]) -> Mapping[str, Device]:
        """Return the devices of a scan, with those of claims as they were; any thread may."""
        return self.interfaces.with_lent(self.bindings.with_lent(devices))

    def where(self, record: Record) -> object:
        """Return what the description of a claim's devices depends on."""
        bound = tuple(map(self.bindings.nodes, bindings_of(record).values()))
        return self.interfaces.places(record), bound

    def close(self) -> None:
        """Hear of nothing any more."""
        self.interfaces.close()


def changes(record: Record) -> bool:
    """Tell whether something changes for a claim."""
    return is_moving(record) or bool(bindings_of(record))
