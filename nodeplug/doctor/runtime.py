"""The container runtime: whether it supports CDI, without which containers of claims and `cdi: true` have no devices.

CDI is on by default in containerd since 2.0; before, `enable_cdi` of its CRI plugin enables it. In CRI-O it is on. Only
the files show it: a runtime that ignores CDI names reports nothing. Also checks for CDI specs of other programs that
define our devices.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cdi.files import FILE_PREFIX
from hostdevices import Host
from hostdevices.tree import Folder
from nodeplug.config import Config, Settings
from nodeplug.doctor.finding import Finding, Outcome
from nodeplug.foreign_specs import defined_cdi_devices

_SUBJECT = "runtime"
_CONTAINERD = (
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/etc/k0s/containerd.toml",
    "/run/k0s/containerd-cri.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
)
_MAX_BYTES = 1 << 20
_SINCE_2 = 3  # version of the files that containerd writes since 2.0


def examine(host: Host, settings: Settings, config: Config | None) -> Iterator[Finding]:
    """Check the runtime's files on `host` for what the configuration needs of it."""
    needing = [x.name for x in config.resources if x.cdi is True or x.api != "device-plugin"] if config else []
    needed = f"CDI is needed by {', '.join(needing)}" if needing else "nothing that is offered needs it"
    is_known = False
    for path in _CONTAINERD:
        text = _text(host.root / path.lstrip("/"))
        if text is None:
            continue
        is_known = True
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            yield Finding("note", _SUBJECT, f"{path} cannot be read: {error}")
            continue
        cdi_setting = _cdi_setting(document)
        if cdi_setting is False:
            outcome: Outcome = "wrong" if needing else "note"
            yield Finding(outcome, _SUBJECT, f"{path} disables CDI; {needed}", "set enable_cdi = true in it")
        elif cdi_setting is True or (isinstance(version := document.get("version"), int) and version >= _SINCE_2):
            yield Finding("ok", _SUBJECT, f"CDI is enabled in containerd ({path})")
        else:
            hint = "with containerd before 2.0 set enable_cdi = true"
            yield Finding("note", _SUBJECT, f"{path} does not show whether CDI is enabled; {needed}", hint)
    if needing and not is_known:
        hint = (
            "CDI is on by default in CRI-O and in containerd since 2.0; with an older containerd set enable_cdi = true"
        )
        yield Finding("note", _SUBJECT, f"no file here shows whether CDI is enabled; {needed}", hint)
    if moving := [x.name for x in config.resources if x.dra.interface is not None] if config else []:
        from dra_plugin.preparing.oci_runtime import OciRuntime

        words = f"{', '.join(moving)}: interfaces move into pods"
        try:
            why = OciRuntime(settings.oci_runtime).problem()
        except OSError as error:
            why = f"it is not known whether the runtime can move them: {error}"
        if why:
            yield Finding("wrong", _SUBJECT, f"{words}, and claims are refused: {why}", "runc can since 1.4")
        else:
            yield Finding("ok", _SUBJECT, f"{words}, and the runtime moves them")
    folder = Path(settings.cdi_directory)
    if folder not in (Path("/var/run/cdi"), Path("/run/cdi"), Path("/etc/cdi")):
        hint = f"add {folder} to the runtime's cdi_spec_dirs"
        yield Finding(
            "note", _SUBJECT, f"CDI specs are written to {folder}, which runtimes do not read by default", hint
        )
    yield from _duplicate_cdi_devices(folder)


def _duplicate_cdi_devices(folder: Path) -> Iterator[Finding]:
    """Yield each foreign file that describes a device of ours: of two descriptions, a runtime uses neither."""
    files, _ = defined_cdi_devices(Folder(""), [str(folder)])
    ours = {path: names for path, names in files.items() if Path(path).name.startswith(FILE_PREFIX)}
    all_ours = set().union(*ours.values())
    for path, names in files.items():
        if path not in ours and (both := sorted(names & all_ours)):
            more = f" (and {len(both) - 1} more)" if len(both) > 1 else ""
            says = f"{path} also defines {both[0]}{more}: no container with this device can start"
            yield Finding("wrong", _SUBJECT, says, "remove that file, or let its program use another CDI kind")


def _text(path: Path) -> str | None:
    """Return the text of a file of the runtime; None if it cannot be read. A live host reads only /sys and /proc."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return None


def _cdi_setting(document: dict[str, Any]) -> bool | None:
    """Return the CDI setting of any plugin in a containerd configuration; None if there is none."""
    plugins = document.get("plugins")
    named = plugins.values() if isinstance(plugins, dict) else ()
    found = [x["enable_cdi"] for x in named if isinstance(x, dict) and "enable_cdi" in x]
    return bool(found[0]) if found else None
