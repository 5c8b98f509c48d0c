"""What a question may see of the daemon, and the little that it may ask of it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from nodeplug.digest import sha256
from nodeplug.readiness import why_not_ready

if TYPE_CHECKING:
    from checkpoint import Ledger
    from checkpoint.reconciler import Reconciler
    from deviceplugin import DevicePlugins
    from dra_plugin import DraPlugin
    from hostdevices import Host
    from nodeplug.config import Config
    from nodeplug.config_file import ConfigFile
    from nodeplug.offering import Offering
    from telemetry import Telemetry
    from telemetry.exposition import Metric


class Running(Struct, frozen=True, kw_only=True):
    """The daemon's parts. Everything belongs to its loop.

    `file` is None where it follows none, `dra` where it has no DRA side. `starts_anew` says whether it does with a
    configuration. `serves_at_once`: beside an older instance, and not only once the state is ours. `began` is when it
    did, by the loop's clock.
    """

    host: "Host"
    telemetry: "Telemetry"
    ledger: "Ledger"
    reconciler: "Reconciler"
    plugins: "DevicePlugins"
    dra: "DraPlugin | None"
    file: "ConfigFile | None"
    offering: "Offering"
    starts_anew: "Callable[[Config], bool]"
    serves_at_once: bool
    began: float

    def not_ready(self) -> list[str]:
        """Return what keeps the daemon from being ready, in words; nothing where it is, or waits for the state."""
        if not (self.ledger.is_owned or self.serves_at_once):
            return []
        why = self.offering.why_incomplete()
        if self.offering.inventory is None:
            return why
        return [*why, *why_not_ready(self.plugins.status(), self.dra.status() if self.dra is not None else None)]

    def metrics(self) -> "Iterator[Metric]":
        """Yield what is counted."""
        from nodeplug.metrics import collect  # for those who ask

        return collect(
            self.plugins.status(),
            self.dra.status() if self.dra is not None else None,
            self.offering.scan_status(),
            self.file.status if self.file is not None else None,
            self.telemetry,
            self.ledger.leases(),
            sha256(self.file.content) if self.file is not None else "",
            leases_writable=not self.ledger.problem,
            leases_checked=not self.reconciler.defect,
        )
