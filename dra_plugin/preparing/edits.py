"""What containers get for a claim's devices: one CDI spec per claim, with a CDI device per allocation result.

Every device brings its nodes. The first device of each request also brings what belongs to the request as a whole: the
mounts, the configured variables, and these variables:

    NODEPLUG_<CLAIM>__<REQUEST>                     the devices, joined by commas
    NODEPLUG_<CLAIM>__<REQUEST>__CAPACITY_<NAME>    the amount of a capacity for each of them, in the same order
    NODEPLUG_<CLAIM>__<REQUEST>__ADMIN_ACCESS       `true` for an administrator's access
    NODEPLUG_<CLAIM>__<REQUEST>__INTERFACES         the interfaces that have moved into the pod, by their names there

CLAIM is the pod's name for the claim: its own name, or for a claim from a template the name in the pod's spec. REQUEST
is the base request, whichever alternative was chosen. Both are in capitals, with `_` for other characters.

The spec names an interface (`netDevices`, CDI 1.1.0) unless it is in a pod: a runtime refuses a container whose
interface has already moved. If an interface at home were missing from the spec, the container would start without it.

Source: DRA specification 6.1, 6.4, 6.5.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, structs

import cdi
from dra_plugin.driver import ClaimRef
from dra_plugin.errors import DraPluginError
from dra_plugin.preparing.binding_record import Binding
from dra_plugin.preparing.claim_record import AllocatedDevice, Record
from dra_plugin.preparing.device_config import process_group
from dra_plugin.preparing.interface_record import Interface, Location
from dra_plugin.preparing.metadata_files import base_request
from hostdevices import Device
from hostdevices.device import Devnode
from hostdevices.presence import Presence
from resources.resource import VHOST_NET, Mount
from resources.template import named, render

MAX_ENV_BYTES = 256 * 1024
"""The most bytes of all variables of a claim's devices: an eighth of a program's limit (ARG_MAX)."""


class TooManyVariables(DraPluginError):
    """The variables of a claim's devices together exceed the limit for a container."""


class ClaimDevice(Struct, frozen=True):
    """A device that a claim got, and its current state; None if it is not there."""

    allocated: AllocatedDevice
    device: Device | None


def device_names(driver: str, claim: ClaimRef, devices: Sequence[ClaimDevice]) -> tuple[str, ...]:
    """Return the CDI device of each, named after the device and not after its nodes; empty without any edits.

    Raises `CdiError` if there is no valid CDI name.
    """
    names: list[str] = []
    requests: set[str] = set()
    for each in devices:
        request = base_request(each.allocated.request)
        has_nodes = each.allocated.binding is not None or (each.device is not None and each.device.devnodes)
        has_edits = request not in requests or has_nodes
        requests.add(request)
        names.append(cdi.qualified_name(_kind(driver), _unit(claim, each.allocated)) if has_edits else "")
    return tuple(names)


def claim_spec(
    driver: str,
    record: Record,
    presence: Presence,
    location: Callable[[Interface], Location] = lambda _: Location.HOME,
    bound_nodes: Callable[[Binding], tuple[Devnode, ...]] = lambda _: (),
) -> cdi.Spec | None:
    """Describe the devices of a prepared claim as they are now; None if there is nothing to describe.

    `location` returns where an interface is, `bound_nodes` the nodes of a device that has another driver for the claim.

    A device that is gone is left out: a runtime then refuses the container instead of using another device in its
    place. A request with a lost interface is left out, too: runtimes find interfaces by name, and another one might
    have that name now. Raises `ValueTooLong` or `FieldMissing` for a variable, `TooManyVariables` for all of them
    together.
    """
    devices = [ClaimDevice(each, _current_device(each, presence, bound_nodes)) for each in record.allocated]
    lost = {
        base_request(each.request)
        for each in record.allocated
        if each.interface is not None and location(each.interface) is Location.LOST
    }
    edits: dict[str, cdi.Device] = {}
    described: set[str] = set()
    for each in devices:
        request = base_request(each.allocated.request)
        is_first = request not in described
        described.add(request)
        if each.device is None or request in lost:
            continue
        found = _node_edits(each.allocated, each.device)
        if is_first:
            request_devices = [x for x in devices if base_request(x.allocated.request) == request]
            found = _with_request(found, record, request, request_devices, location)
        name = _unit(record.claim, each.allocated)
        edits[name] = cdi.Device.of(name, found)  # an administrator's two results can name the same device
    size = sum(len(text.encode(errors="surrogatepass")) for x in edits.values() for text in x.container_edits.env)
    if size > MAX_ENV_BYTES:
        raise TooManyVariables(
            f"claim {record.claim}: its devices have {size} bytes of variables, the limit is {MAX_ENV_BYTES};"
            " use fewer attributes in them"
        )
    with_edits = [x for x in edits.values() if x.container_edits != cdi.ContainerEdits()]
    return cdi.Spec.of(_kind(driver), with_edits) if with_edits else None


def _current_device(
    allocated: AllocatedDevice, presence: Presence, bound_nodes: Callable[[Binding], tuple[Devnode, ...]]
) -> Device | None:
    """Return a device as it is now; None if it is not there, or without the driver's files that its containers need.

    Attributes that its variables name and that it no longer has keep the values from when the claim got it.
    """
    device, moved = presence.find(allocated.seen), allocated.interface
    # in its pod, or back and not scanned yet: without it no container would start
    if device is None and moved is not None:
        device = structs.replace(allocated.seen.device, attributes=moved.device.attributes)
    if device is not None and allocated.binding is not None:
        nodes = bound_nodes(allocated.binding)
        device = structs.replace(device, devnodes=nodes) if nodes else None
    if device is None or (allocated.settings.with_driver and device.lacks_driver_files):
        return None
    recorded = {
        **dict.fromkeys((x for text in allocated.settings.env.values() for x in named(text)), ""),
        **allocated.facts,
    }
    return structs.replace(device, attributes={**recorded, **device.attributes}) if recorded else device


def variable(claim: str, request: str) -> str:
    """Return the name of the variable that lists the devices of a claim's base request."""
    return f"NODEPLUG_{_env_part(claim)}__{_env_part(request)}"


def _kind(driver: str) -> str:
    return f"{driver}/claim"


def _unit(claim: ClaimRef, allocated: AllocatedDevice) -> str:
    parts = [claim.uid, allocated.request.replace("/", "."), allocated.name]
    return "_".join((*parts, allocated.share_id) if allocated.share_id else parts)


def _node_edits(allocated: AllocatedDevice, device: Device) -> cdi.ContainerEdits:
    settings = allocated.settings
    access, group = settings.access, process_group(settings.access) if settings.grants_group else 0
    nodes = tuple(
        cdi.DeviceNode.of(
            node.path,
            container_path=node.container_path,
            target=node.target,
            permissions=allocated.permissions,
            uid=access.uid,
            gid=access.gid,
            file_mode=access.mode,
        )
        for node in device.devnodes
    )
    files = device.driver_files.mounts if settings.with_driver and device.driver_files is not None else ()
    return cdi.ContainerEdits(
        device_nodes=nodes,
        mounts=tuple(cdi.Mount.read_only(x.host_path, x.container_path) for x in files),
        additional_gids=(group,) if nodes and group else (),
    )


def _with_request(
    edits: cdi.ContainerEdits,
    record: Record,
    request: str,
    devices: Sequence[ClaimDevice],
    location: Callable[[Interface], Location],
) -> cdi.ContainerEdits:
    """Add the edits that concern all devices of a request."""
    env = _configured_env(request, devices) | _device_env(
        variable(record.pod_claim or record.claim.name, request), devices
    )
    mounts = {mount.container_path: mount for each in devices for mount in each.allocated.settings.mounts}
    return cdi.ContainerEdits(
        env=tuple(f"{name}={value}" for name, value in env.items()),
        device_nodes=(*edits.device_nodes, *_vhost_net(edits, devices)),
        net_devices=tuple(
            cdi.NetDevice(host_interface_name=each.home.name, name=each.inside.name)
            for each in _interfaces(devices)
            if location(each) is Location.HOME
        ),
        mounts=(*edits.mounts, *map(_mount, mounts.values())),
        additional_gids=edits.additional_gids,
    )


def _configured_env(request: str, devices: Sequence[ClaimDevice]) -> dict[str, str]:
    """Fill the configured variables with the attributes of their devices."""
    templates = {name: template for each in devices for name, template in each.allocated.settings.env.items()}
    env = {}
    for name, template in templates.items():
        users = [x for x in devices if x.allocated.settings.env.get(name) == template]
        present = {x.device.id: x.device for x in users if x.device is not None}
        names = [x.allocated.name for x in users]
        env[name] = render(template, names, list(present.values()), of=f"variable {name} of request {request}")
    return env


def _device_env(name: str, devices: Sequence[ClaimDevice]) -> dict[str, str]:
    allocated = [each.allocated for each in devices]
    env = {name: ",".join(each.name for each in allocated)}
    for capacity in sorted({capacity for each in allocated for capacity in each.consumed}):
        amounts = (each.consumed.get(capacity, "") for each in allocated)
        env[f"{name}__CAPACITY_{_env_part(capacity)}"] = ",".join(amounts)
    if interfaces := _interfaces(devices):
        env[f"{name}__INTERFACES"] = ",".join(each.inside.name for each in interfaces)
    if any(each.is_admin for each in allocated):
        env[f"{name}__ADMIN_ACCESS"] = "true"
    return env


def _vhost_net(edits: cdi.ContainerEdits, devices: Sequence[ClaimDevice]) -> list[cdi.DeviceNode]:
    paths = VHOST_NET if any(each.allocated.vhost_net for each in devices) else ()
    return [cdi.DeviceNode.of(x, permissions="rw") for x in paths if all(x != node.path for node in edits.device_nodes)]


def _interfaces(devices: Iterable[ClaimDevice]) -> list[Interface]:
    """Return the interfaces that move."""
    return [each.allocated.interface for each in devices if each.allocated.interface is not None]


def _env_part(text: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", text.upper())


def _mount(mount: Mount) -> cdi.Mount:
    options = ("ro" if mount.read_only else "rw", "bind")
    return cdi.Mount(host_path=mount.host_path, container_path=mount.container_path, options=options)
