"""The daemon's two fronts, made from a configuration: which resources each of them offers, and where it does.

The DRA side is imported only where a resource is offered through it: it brings the client of the API server, and that
brings TLS.
"""

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from checkpoint import Ledger
from deviceplugin import DevicePlugins, Paths
from hostdevices import Device, Host
from hostdevices.resource import Resource
from nodeplug.config import Config, Settings
from nodeplug.config.limits import why_too_long

if TYPE_CHECKING:
    from dra_plugin import DraPlugin, Place

_PATIENCE = 10.0  # seconds for an answer of the API server; a stop waits for those that are under way
log = logging.getLogger("nodeplug")


class CannotOffer(Exception):
    """What a resource's API needs is not there; says what and where to set it."""


class Front(Protocol):
    """One of the kubelet's APIs: `update` before `start`, and after it whenever the devices change."""

    async def update(self, assigned: Mapping[str, tuple[Device, ...]]) -> None:
        """Take over which devices each resource has now."""
        ...

    async def start(self) -> None:
        """Serve and register."""
        ...

    async def stop(self) -> None:
        """Stop serving. Idempotent."""
        ...


class WithinLimits:
    """The device plugin side without the resources whose lists the kubelet would refuse, by dropping the plugin."""

    def __init__(self, plugins: DevicePlugins, resources: Sequence[Resource]) -> None:
        """Pass on to `plugins` what fits."""
        self._plugins = plugins
        self._shares = {resource.name: resource.shares for resource in resources}
        self._too_long: dict[str, str] = {}
        self.start, self.stop, self.status = plugins.start, plugins.stop, plugins.status

    async def update(self, assigned: Mapping[str, tuple[Device, ...]]) -> None:
        """Take over which devices each resource has now, but for those that have too many."""
        reasons = {name: why_too_long(len(assigned[name]), shares) for name, shares in self._shares.items()}
        for name, reason in reasons.items():
            if reason and reason != self._too_long.get(name):
                log.error("not offered: %s", reason, extra={"resource": name})
        self._too_long = reasons
        await self._plugins.update({name: () if reason else assigned[name] for name, reason in reasons.items()})


def device_plugins(config: Config, host: Host, ledger: Ledger) -> WithinLimits | None:
    """Make the device plugin side; None where no resource is offered through it."""
    resources = [resource for resource in config.resources if resource.api != "dra"]
    if not resources:
        return None
    through_watcher = config.settings.register_through_plugin_watcher
    plugins = DevicePlugins(resources, host, ledger, paths_of(config.settings), through_watcher)
    return WithinLimits(plugins, resources)


def dra_plugin(config: Config, host: Host) -> "DraPlugin | None":
    """Make the DRA side; None where no resource is offered through it. Raises `CannotOffer`."""
    resources = [resource for resource in config.resources if resource.api != "device-plugin"]
    if not resources:
        return None
    from dra_plugin import DraPlugin
    from resourceapi.client import Client, CredentialsError, from_kubeconfig, in_cluster

    path = config.settings.kubeconfig
    credentials = from_kubeconfig(Path(path)) if path else in_cluster()
    try:
        credentials()  # what is missing is said now, and not with every request
    except CredentialsError as error:
        names = ", ".join(resource.name for resource in resources)
        raise CannotOffer(
            f"{names}: DRA needs the API server: {error}; set settings.kubeconfig, or `api: device-plugin`"
        ) from error
    return DraPlugin(resources, host, Client(credentials, timeout=_PATIENCE), place_of(config.settings))


def paths_of(settings: Settings) -> Paths:
    """Return where the kubelet and the runtime look for device plugins, by the settings."""
    kubelet = Path(settings.kubelet_root)
    return Paths(
        device_plugins=kubelet / "device-plugins",
        plugins_registry=kubelet / "plugins_registry",
        pod_resources=kubelet / "pod-resources" / "kubelet.sock",
        cdi=Path(settings.cdi_directory),
    )


def place_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> "Place":
    """Return who the DRA driver is and where the kubelet and the runtime look, by the settings and the pod's facts."""
    from dra_plugin import Folders, Place

    paths = paths_of(settings)
    return Place(
        driver=settings.driver_name,
        node=settings.node_name or environment.get("NODE_NAME", "") or socket.gethostname().lower(),
        folders=Folders(paths.plugins_registry, Path(settings.kubelet_root) / "plugins" / settings.driver_name),
        pod_resources=paths.pod_resources,
        cdi=paths.cdi,
        pod_uid=environment.get("POD_UID", ""),
        allowed_mounts=settings.allowed_mounts,
    )
