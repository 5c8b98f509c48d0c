"""All that is looked at, in the order in which things depend on each other."""

from collections.abc import Iterator
from pathlib import Path

from hostdevices import Host
from nodeplug.doctor import configuration, daemon, host, kubelet, observers, runtime
from nodeplug.doctor.finding import Finding


def findings(path: Path, machine: Host) -> Iterator[Finding]:
    """Yield what is found; `path` is the daemon's configuration, `machine` the host."""
    config, found = configuration.examine(path)
    yield from found
    settings = config.settings if config is not None else configuration.settings()
    has_dra = config is not None and any(x.api != "device-plugin" for x in config.resources)
    yield from daemon.examine(settings, path)
    yield from kubelet.examine(settings, needs_registry=has_dra or settings.register_through_plugin_watcher)
    yield from runtime.examine(machine, settings, config)
    yield from host.examine(machine, config)
    yield from observers.examine(settings)
    if has_dra:
        from nodeplug.doctor import cluster  # with TLS

        yield from cluster.examine(settings)
