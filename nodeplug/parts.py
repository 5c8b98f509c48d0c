"""The daemon's parts that are made from a configuration: the plugins for both kubelet APIs, and the witnesses.

The DRA side is imported only if devices are offered or held through it, because it needs the client of the API server,
and that needs TLS.
"""

import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from checkpoint import Ledger
from checkpoint.reconciler import Witnesses
from deviceplugin import DevicePlugins, Paths
from folderwatch import FolderWatcher, path_exists
from hostdevices import Host
from hostdevices.pod_cgroups import pods_with_processes, running_pods
from hostdevices.presence import Presence
from hostdevices.readers import BY_KIND
from nodeplug.config import Config, Settings, node_name
from nodeplug.config_file import ConfigFile
from nodeplug.kubelet_root import other_kubelet
from nodeplug.logs import LASTING
from resources.resource import Resource
from resources.selector import concerns
from telemetry import Telemetry
from witnesses import KubeletFiles, NodeWitnesses, PodResources

if TYPE_CHECKING:
    from dra_plugin import DraPlugin, DriverOptions
    from nodeplug.ddp_profiles import DdpProfiles
    from nodeplug.events.cluster import ClusterEvents
    from nodeplug.eviction import Evictions
    from nodeplug.health_files import HealthFiles
    from nodeplug.node_features import NodeFeatures
    from nodeplug.node_labels import NodeLabels
    from nvml import NvmlMonitor
    from resourceapi.client import AsyncClient
    from resourceapi.client.credentials import Source

_API_TIMEOUT = 10.0  # seconds for an answer of the API server; a stop waits for requests in progress
_EVENT_TIMEOUT = 5.0
_RENUMBERED = frozenset(kind for kind, reader in BY_KIND.items() if reader.can_be_renumbered)
_SLICES = 8 * 1024 * 1024  # bytes that the ResourceSlices of this node can have: 10,000 devices stay below that
log = logging.getLogger("nodeplug")


class CannotOffer(Exception):
    """Nothing can be offered: the message names what a resource's API lacks, or the wrong setting, and the fix."""


def device_plugins(
    config: Config, host: Host, presence: Presence, ledger: Ledger, watcher: FolderWatcher, telemetry: Telemetry
) -> DevicePlugins:
    """Make the device plugin side. Without any resource, it serves the existing leases of pods."""
    return DevicePlugins(
        device_plugin_resources(config),
        host,
        presence,
        ledger,
        paths_of(config.settings),
        watcher,
        through_watcher=config.settings.register_through_plugin_watcher,
        renumbered=_RENUMBERED,
        transport=config.settings.transport,
        telemetry=telemetry,
    )


def device_plugin_resources(config: Config) -> list[Resource]:
    """Return what is offered through the device plugin API."""
    return [resource for resource in config.resources if resource.api != "dra"]


def dra_resources(config: Config) -> list[Resource]:
    """Return what is offered through DRA."""
    return [resource for resource in config.resources if resource.api != "device-plugin"]


def needs_dra(config: Config, ledger: Ledger) -> bool:
    """Return whether a resource is offered through DRA, or a claim has a lease from before."""
    return bool(dra_resources(config) or ledger.resources("dra"))


def dra_plugin(
    config: Config, host: Host, presence: Presence, ledger: Ledger, watcher: FolderWatcher, telemetry: Telemetry
) -> "DraPlugin":
    """Make the DRA side. Raises `CannotOffer` if resources are offered through it and there is no API server."""
    from dra_plugin import DraPlugin
    from resourceapi.client import AsyncClient, CredentialsError, Limits

    resources = dra_resources(config)
    credentials = _credentials(config.settings)
    client: AsyncClient | None = AsyncClient(credentials, timeout=_API_TIMEOUT, limits=Limits(collection=_SLICES))
    try:
        credentials()  # reports missing credentials now, and not with every request
    except CredentialsError as error:
        if resources:
            names = ", ".join(resource.name for resource in resources)
            raise CannotOffer(
                f"{names}: DRA needs the API server: {error}; set settings.kubeconfig, or `api: device-plugin`"
            ) from error
        client = None
    if not resources:
        log.info("claims have devices that are not offered through DRA any more; the driver stays until their pods end")
    options = driver_options(config.settings)
    return DraPlugin(resources, host, presence, ledger, client, options, watcher, telemetry)


def cluster_events(config: Config, telemetry: Telemetry) -> "ClusterEvents | None":
    """Make the writer of Events to the API server; None if the settings do not ask for it, or without an API server."""
    if not config.settings.cluster_events:
        return None
    from nodeplug.events.cluster import ClusterEvents

    client = _client_if_any(config.settings, "settings.clusterEvents: no Event is written")
    return ClusterEvents(client, node_name(config.settings.node_name), telemetry) if client is not None else None


def nvml_monitor(config: Config, host: Host) -> "NvmlMonitor | None":
    """Make the reader of NVIDIA's library; None unless the settings ask for it."""
    settings = config.settings
    if not settings.nvml:
        return None
    from nvml import NvmlMonitor

    return NvmlMonitor(host, settings.driver_root, settings.ignored_xids)


def may_have_uplinks(config: Config) -> bool:
    """Return whether a resource can select network cards, or the devices that contain them."""
    return any(concerns(resource.selector, kind) for resource in config.resources for kind in ("nic", "pci", "usb"))


def ddp_profiles(config: Config) -> "DdpProfiles | None":
    """Make the reader of the DDP packages of network cards; None unless the settings ask for it."""
    if not config.settings.devlink:
        return None
    from nodeplug.ddp_profiles import DdpProfiles

    return DdpProfiles()


def health_files(config: Config) -> "HealthFiles | None":
    """Make the reader of the results of the administrator's own probes; None unless the settings name their folder."""
    if not config.settings.health_directory:
        return None
    from nodeplug.health_files import HealthFiles

    return HealthFiles(Path(config.settings.health_directory))


def needs_evictions(config: Config) -> bool:
    """Return whether a resource asks for the eviction of pods whose devices are gone."""
    return any(x.evict_after_seconds and x.api != "dra" for x in config.resources)


def evictions(config: Config, telemetry: Telemetry) -> "Evictions | None":
    """Make what evicts pods whose devices are gone; None if no resource asks for it, or there is no API server."""
    if not needs_evictions(config):
        return None
    from nodeplug.eviction import Evictions

    client = _client_if_any(config.settings, "evictAfterSeconds: no pod is evicted")
    return Evictions(client, node_name(config.settings.node_name), telemetry) if client is not None else None


def node_labels(config: Config, file: ConfigFile | None, failed: Callable[[str], None]) -> "NodeLabels | None":
    """Make the reader of this node's labels; None if no resource needs them.

    Raises `CannotOffer` if one does and there is no API server.
    """
    if file is None or not config.selects_nodes:
        return None
    from nodeplug.node_labels import NodeLabels
    from resourceapi.client import AsyncClient, CredentialsError

    credentials = _credentials(config.settings)
    try:
        credentials()
    except CredentialsError as error:
        raise CannotOffer(
            f"nodeSelector needs the API server: {error}; set settings.kubeconfig, or `onNodes`"
        ) from error
    client = AsyncClient(credentials, attempts=1, timeout=_API_TIMEOUT)
    name = node_name(config.settings.node_name)
    return NodeLabels(client, name, Path(config.settings.state_directory), file.labels, file.relabel, failed)


def node_features(config: Config) -> "NodeFeatures | None":
    """Make the writer of the offered devices for node-feature-discovery; None if the settings do not ask for it."""
    settings = config.settings
    if not settings.features_directory:
        return None
    from nodeplug.node_features import NodeFeatures

    return NodeFeatures(Path(settings.features_directory), Path(settings.state_directory))


def remove_features(settings: Settings) -> None:
    """Remove what was written for node-feature-discovery while the settings asked for it."""
    state = Path(settings.state_directory)
    if settings.features_directory:
        return
    try:
        if not path_exists(state / "node-features"):
            return
    except OSError:  # the ledger is in the same directory and reports what is wrong with it
        return
    from nodeplug.node_features import remove_stale_file

    try:
        remove_stale_file(state)
    except OSError as error:
        log.warning("features of this node that are no longer configured stay until they expire: %s", error)


@asynccontextmanager
async def traced(config: Config, telemetry: Telemetry) -> AsyncIterator[None]:
    """Record and send spans during the context, if the settings ask for it."""
    if not config.settings.tracing:
        yield
        return
    from nodeplug.tracing import start_tracing  # imported here: it brings all of OpenTelemetry

    close = start_tracing(telemetry, node_name(config.settings.node_name))
    try:
        yield
    finally:
        await close()


def _client_if_any(settings: Settings, without: str) -> "AsyncClient | None":
    """Make a separate client for an optional purpose, so that no claim waits behind its requests.

    None outside of a cluster if no kubeconfig is named. A kubeconfig that cannot be used yet is read again with each
    request.
    """
    from resourceapi.client import AsyncClient, CredentialsError

    credentials = _credentials(settings)
    try:
        credentials()
    except CredentialsError as error:
        if not settings.kubeconfig:
            log.warning("%s: %s", without, error, extra=LASTING)
            return None
        log.warning("%s: %s", without, error, extra={"is_current": partial(_are_unusable, credentials)})
    return AsyncClient(credentials, attempts=1, timeout=_EVENT_TIMEOUT)


def _are_unusable(credentials: "Source") -> bool:
    from resourceapi.client import CredentialsError

    try:
        credentials()
    except CredentialsError:
        return True
    return False


def _credentials(settings: Settings) -> "Source":
    from resourceapi.client import from_kubeconfig, in_cluster

    return from_kubeconfig(Path(settings.kubeconfig)) if settings.kubeconfig else in_cluster()


def check_kubelet(settings: Settings, ledger: Ledger) -> None:
    """Raise `CannotOffer` if the leases belong to pods of another kubelet: this one cannot report when they end."""
    are_unknown = ledger.is_owned and not ledger.is_loaded  # the disk cannot be read
    if (ledger.leases() or are_unknown) and (words := other_kubelet(settings)):
        raise CannotOffer(words)


def witnesses(config: Config, host: Host, plugins: DevicePlugins, dra: "DraPlugin | None") -> Witnesses:
    """Return the witnesses of which holder has which device."""
    settings = config.settings
    kubelet = Path(settings.kubelet_root)
    driver = settings.driver_name if dra is not None else ""
    nodes = {settings.node_name, os.environ.get("NODE_NAME", ""), socket.gethostname().lower()}
    return NodeWitnesses(
        PodResources(
            kubelet / "pod-resources/kubelet.sock",
            plugins.serves,
            driver,
            sorted(filter(None, nodes)),
            settings.transport,
        ),
        KubeletFiles(kubelet / "device-plugins", kubelet, plugins.serves, driver),
        partial(running_pods, host),
        dra.wanted if dra is not None else None,
        partial(pods_with_processes, host),
    )


def paths_of(settings: Settings) -> Paths:
    """Return the paths that the kubelet and the runtime use for device plugins, from the settings."""
    kubelet = Path(settings.kubelet_root)
    return Paths(
        device_plugins=kubelet / "device-plugins",
        plugins_registry=kubelet / "plugins_registry",
        cdi=Path(settings.cdi_directory),
        device_info=Path(settings.device_info_directory),
    )


def driver_options(settings: Settings, environment: Mapping[str, str] = os.environ) -> "DriverOptions":
    """Return the DRA driver's name, node and paths, from the settings and the pod's environment."""
    from dra_plugin import DriverOptions, Folders

    kubelet = Path(settings.kubelet_root)
    return DriverOptions(
        driver=settings.driver_name,
        node=node_name(settings.node_name, environment),
        folders=Folders(
            registry=kubelet / "plugins_registry",
            data=kubelet / "plugins" / settings.driver_name,
            kubelet_socket=kubelet / "device-plugins/kubelet.sock",
        ),
        cdi=Path(settings.cdi_directory),
        pod_uid=environment.get("POD_UID", ""),
        allowed_mounts=settings.allowed_mounts,
        transport=settings.transport,
        oci_runtime=settings.oci_runtime,
    )
