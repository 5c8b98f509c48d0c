"""The host's hardware that changes for a claim and is restored afterwards: interfaces that move, and drivers.

Each change is recorded in the claim's lease before it is made. The next step follows from the record and the current
state, at any moment and after any crash (interface_moves.py, driver_binding.py).
"""

from collections.abc import Callable, Mapping, Sequence

from dra_plugin.preparing.claim_bindings import ClaimBindings, bindings_of
from dra_plugin.preparing.claim_interfaces import ClaimInterfaces, moves_interface
from dra_plugin.preparing.claim_record import Record
from dra_plugin.preparing.host_work import HostWork
from hostdevices import Device, Host
from hostdevices.presence import Presence


class ClaimHardware:
    """Changes and restores the hardware of claims. Belongs to the loop."""

    def __init__(self, host: Host, presence: Presence, work: HostWork, runtime: str, moved: Callable[[], None]) -> None:
        """Prepare. `runtime` is the setting `ociRuntime`; `moved` is called when an interface might have moved."""
        self.interfaces = ClaimInterfaces(host, presence, work, runtime, moved)
        self.bindings = ClaimBindings(host, presence, work)

    async def apply(self, record: Record) -> None:
        """Make the hardware as the claim needs it. Raises `InterfaceRefused` and `BindRefused`."""
        await self.bindings.apply(record)
        await self.interfaces.apply(record)

    async def restore(self, record: Record) -> None:
        """Restore the hardware. Raises `InterfaceRefused` and `BindRefused` while something is still in use."""
        await self.interfaces.restore(record)
        await self.bindings.restore(record)

    def track(self, records: Sequence[Record]) -> None:
        """Let scans and events cover what exactly these claims have; all of them are of this boot."""
        self.interfaces.track(records)
        self.bindings.track(records)

    def with_original_devices(self, devices: Mapping[str, Device]) -> Mapping[str, Device]:
        """Return the devices of a scan, with those of claims as they were. Thread-safe."""
        return self.interfaces.with_original_devices(self.bindings.with_original_devices(devices))

    def spec_inputs(self, record: Record) -> object:
        """Return the state that the description of a claim's devices depends on."""
        bound = tuple(map(self.bindings.nodes, bindings_of(record).values()))
        return self.interfaces.locations(record), bound

    def close(self) -> None:
        """Stop listening to events."""
        self.interfaces.close()


def changes_hardware(record: Record) -> bool:
    """Return whether a claim changes any hardware."""
    return moves_interface(record) or bool(bindings_of(record))
