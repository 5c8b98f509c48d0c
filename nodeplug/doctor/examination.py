"""All checks, in the order of their dependencies."""

from collections.abc import Iterator
from pathlib import Path

from hostdevices import Host
from nodeplug.doctor import configuration, daemon, host, kubelet, observers, runtime
from nodeplug.doctor.finding import Finding

_ROOT = "some checks need root: run this command as root"


def findings(path: Path, machine: Host, state: Path | None = None) -> Iterator[Finding]:
    """Yield all findings. `path` is the daemon's configuration, `machine` the host.

    `state` is the daemon's state directory, if it differs from the configuration's.
    """
    config, found = configuration.examine(path)
    yield from found
    settings = configuration.settings_of(config, state)
    has_dra = config is not None and any(x.api != "device-plugin" for x in config.resources)
    needs_registry = has_dra or settings.register_through_plugin_watcher
    yield from _until_permission_error("daemon", daemon.examine(settings, path))
    yield from _until_permission_error("kubelet", kubelet.examine(settings, needs_registry=needs_registry))
    yield from _until_permission_error("runtime", runtime.examine(machine, settings, config))
    yield from _until_permission_error("host", host.examine(machine, config))
    yield from _until_permission_error("observers", observers.examine(settings))
    if has_dra:
        from nodeplug.doctor import cluster  # imported here: it brings TLS

        yield from cluster.examine(settings)


def _until_permission_error(subject: str, found: Iterator[Finding]) -> Iterator[Finding]:
    """Yield findings until one needs a permission that this user lacks."""
    try:
        yield from found
    except PermissionError as error:
        yield Finding("wrong", subject, f"{error.filename}: {error.strerror}", _ROOT)
