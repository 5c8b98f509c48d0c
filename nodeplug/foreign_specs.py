"""Whether a CDI spec on this machine defines the devices in `cdiDevices`. For commands; the daemon does not check it.

A runtime does not start a container with a CDI device that no spec defines.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hostdevices import Device, Host, Problem
from hostdevices.tree import Folder
from nodeplug.config import Config
from resources.foreign_cdi import foreign_names

_FOLDERS = ("/etc/cdi", "/var/run/cdi")  # where runtimes read, and generators write
_LARGEST_FILE = 4 * 1024 * 1024  # bytes of a file


def undefined_cdi_devices(host: Host, config: Config, assigned: Mapping[str, Sequence[Device]]) -> Iterator[Problem]:
    """Yield the foreign devices that accompany ours and that no spec on `host` describes; none for a capture.

    `assigned` are the devices of each resource.
    """
    naming = [x for x in config.resources if x.cdi_devices and assigned[x.name]]
    if not naming or not host.root.is_dir():
        return
    folders = tuple(dict.fromkeys((*_FOLDERS, config.settings.cdi_directory)))
    files, problems = defined_cdi_devices(Folder("" if host.is_live() else str(host.root)), folders)
    yield from problems
    known = set().union(*files.values())
    for resource in naming:
        for device in assigned[resource.name]:
            for name in () if device.unavailable else foreign_names(resource.cdi_devices, device):
                if name not in known:
                    reason = f"no CDI spec in {', '.join(folders)} defines {name}, so its container would not start"
                    yield Problem(
                        f"{resource.name} {device.id}", f"{reason}; make one (NVIDIA: nvidia-ctk cdi generate)"
                    )


def defined_cdi_devices(tree: Folder, folders: Iterable[str]) -> tuple[dict[str, set[str]], list[Problem]]:
    """Return the qualified names of the devices that each spec describes, by its path, and the unreadable files."""
    from resourceapi.manifests import ManifestError, read_yaml  # imported here: few resources need yaml

    found: dict[str, set[str]] = {}
    problems: list[Problem] = []
    for folder in folders:
        for name in sorted(tree.names(folder)):
            path = f"{folder}/{name}"
            if name.startswith(".") or not name.endswith((".json", ".yaml")):
                continue
            try:
                spec = read_yaml(tree.read(path, _LARGEST_FILE) or b"")
            except ManifestError as error:
                problems.append(Problem(path, str(error)))
                continue
            found[path] = set(_names(spec))
    return found, problems


def _names(spec: object) -> Iterator[str]:
    """Yield the devices that a spec describes; none if it is not a spec."""
    if not isinstance(spec, dict) or not isinstance(kind := spec.get("kind"), str):
        return
    devices = spec.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict) and isinstance(name := device.get("name"), str):
            yield f"{kind}={name}"
