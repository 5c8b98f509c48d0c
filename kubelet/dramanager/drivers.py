"""Registers and deregisters the plugins of DRA drivers that the plugin watcher finds, and follows their connections.

Source: DRA specification, sections 1.3, 1.5 and 4.8; correction 30.
"""

from collections.abc import Callable, Sequence

from kubelet.dramanager.health_streams import HealthStreams
from kubelet.dramanager.plugins import DRAPlugin, PluginStore, choose_service
from kubelet.dramanager.slices import SliceWiper
from kubelet.errors import RegistrationError
from kubelet.metrics import KubeletMetrics
from kubelet.rpc import Timeouts

PLUGIN_TYPE = "DRAPlugin"


class DriverHandler:
    """The plugin watcher's handler for plugins of the type `DRAPlugin`."""

    def __init__(
        self,
        store: PluginStore,
        streams: HealthStreams,
        wiper: SliceWiper,
        timeouts: Timeouts,
        metrics: KubeletMetrics,
        on_change: Callable[[str, str, str], None],
    ) -> None:
        """`on_change` is called after each change with: what happened, the driver, and the endpoint."""
        self._store = store
        self._streams = streams
        self._wiper = wiper
        self._timeouts = timeouts
        self._metrics = metrics
        self._on_change = on_change

    def validate_plugin(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Check the versions, and nothing else. Raises `RegistrationError`."""
        try:
            choose_service(versions)
        except RegistrationError as error:
            raise RegistrationError(
                f"invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}: {error}"
            ) from error

    async def register_plugin(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Register an instance, which need not be serving yet. Raises `RegistrationError`."""
        self.validate_plugin(name, endpoint, versions)
        plugin = DRAPlugin(name, endpoint, versions, self._timeouts, self._metrics, self._connection_changed)
        self._store.add(plugin)
        plugin.start()
        self._sync_wiper(name)
        self._streams.open(plugin)
        self._on_change("driver registered", name, endpoint)

    async def deregister_plugin(self, name: str, endpoint: str) -> None:
        """Deregister an instance and close its connection."""
        plugin = self._store.remove(name, endpoint)
        if plugin is None:
            return
        self._sync_wiper(name)
        await self._streams.close(plugin)
        await plugin.close()
        self._on_change("driver deregistered", name, endpoint)

    async def stop(self) -> None:
        """Close all connections. Idempotent."""
        await self._streams.stop()
        for driver in self._store.drivers():
            for plugin in self._store.instances(driver):
                self._store.remove(driver, plugin.endpoint)
                await plugin.close()

    def _connection_changed(self, plugin: DRAPlugin) -> None:
        self._sync_wiper(plugin.driver)
        kind = "driver connected" if plugin.is_connected else "driver disconnected"
        self._on_change(kind, plugin.driver, plugin.endpoint)

    def _sync_wiper(self, driver: str) -> None:
        if self._store.is_usable(driver):
            self._wiper.driver_connected(driver)
        else:
            self._wiper.driver_disconnected(driver)
