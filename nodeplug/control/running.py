"""What a request can read of the daemon, and the few actions that it can trigger."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from nodeplug.digest import sha256
from nodeplug.readiness import not_ready_reasons

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


class RunningDaemon(Struct, frozen=True, kw_only=True):
    """The daemon's parts. Everything belongs to its event loop.

    `file` is None if it follows none, `dra` if it has no DRA side. `needs_restart` returns whether the daemon restarts
    for a configuration. `serves_without_state`: also beside an older instance, before this one has the state. `started`
    is the time of the start, by the loop's clock.
    """

    host: "Host"
    telemetry: "Telemetry"
    ledger: "Ledger"
    reconciler: "Reconciler"
    plugins: "DevicePlugins"
    dra: "DraPlugin | None"
    file: "ConfigFile | None"
    offering: "Offering"
    needs_restart: "Callable[[Config], bool]"
    serves_without_state: bool
    started: float

    def not_ready(self) -> list[str]:
        """Return the reasons why the daemon is not ready; none if it is ready, or waits for the state."""
        if not (self.ledger.is_owned or self.serves_without_state):
            return []
        why = self.offering.incomplete_reasons()
        if self.offering.inventory is None:
            return why
        return [*why, *not_ready_reasons(self.plugins.status(), self.dra.status() if self.dra is not None else None)]

    def metrics(self) -> "Iterator[Metric]":
        """Yield the metrics."""
        from nodeplug.metrics import collect  # imported on first use

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
