"""What a question may see of the daemon, and the little that it may ask of it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from checkpoint import Ledger
    from checkpoint.reconciler import Reconciler
    from deviceplugin import DevicePlugins
    from dra_plugin import DraPlugin
    from hostdevices import Host, Inventory
    from nodeplug.config import Config
    from nodeplug.config_file import ConfigFile
    from nodeplug.metrics import Metric, ScanStatus
    from telemetry import Telemetry


class Running(Struct, frozen=True, kw_only=True):
    """The daemon's parts. Everything belongs to its loop.

    `file` is None where it follows none, `dra` where it has no DRA side, `inventory` before the host was first read.
    `why_empty` says of each resource without a device why it has none, and may be called in a thread.
    `starts_anew` says whether it does with a configuration; `configured` returns once it offers what its configuration
    says. `began` is when it did, by the loop's clock.
    """

    host: "Host"
    telemetry: "Telemetry"
    ledger: "Ledger"
    reconciler: "Reconciler"
    plugins: "DevicePlugins"
    dra: "DraPlugin | None"
    file: "ConfigFile | None"
    config: "Callable[[], Config]"
    inventory: "Callable[[], Inventory | None]"
    scan: "Callable[[], ScanStatus | None]"
    why_empty: Callable[[], Mapping[str, str]]
    not_ready: Callable[[], list[str]]
    metrics: "Callable[[], Iterable[Metric]]"
    starts_anew: "Callable[[Config], bool]"
    configured: Callable[[], Awaitable[object]]
    began: float
