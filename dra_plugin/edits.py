"""What containers get of a claim's devices, as one CDI spec per claim with a CDI device per allocation result.

Every device brings its nodes. The first one of each request brings what concerns the request as a whole: mounts and
environment, which are the configured variables and ours:

    NODEPLUG_<CLAIM>__<REQUEST>                     the devices, joined by commas
    NODEPLUG_<CLAIM>__<REQUEST>__CAPACITY_<NAME>    how much of a capacity each of them gives, in the same order
    NODEPLUG_<CLAIM>__<REQUEST>__ADMIN_ACCESS       `true` for an administrator's access

CLAIM is the name by which the pod knows the claim: its own, or the pod's for a claim from a template. REQUEST is the
base request, whichever alternative was chosen. Both are in capitals, with `_` for other characters. A device without
any edits has no CDI device: there is nothing to ask a runtime for. Interfaces do not move into containers: `netDevices`
needs CDI 1.1.0, which runtimes of today refuse a file for.

Source: DRA specification 6.1, 6.4, 6.5.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

import cdi
from dra_plugin.device_config import Settings
from dra_plugin.metadata_files import base_request, pod_claim_name
from dra_plugin.offers import Offered
from hostdevices.resource import Mount, NodeAccess
from hostdevices.template import render
from resourceapi.objects import v1

_GROUP_BITS = 0o060


class Given(Struct, frozen=True):
    """A device that a claim got: the allocation's result, what it names, and what holds for it."""

    result: v1.DeviceRequestAllocationResult
    offered: Offered
    settings: Settings

    @property
    def is_admin(self) -> bool:
        """Tell whether this is an administrator's access: beside whoever has the device, and never changing it."""
        return bool(self.result.admin_access)


class ClaimEdits(Struct, frozen=True):
    """The spec, None where no device has edits; and each result's CDI device in the order given, empty for none."""

    spec: cdi.Spec | None
    device_ids: tuple[str, ...]


def claim_edits(driver: str, claim: v1.ResourceClaim, given: Sequence[Given]) -> ClaimEdits:
    """Describe a claim's devices to the container runtime. Raises `CdiError` for what can have no CDI name."""
    kind = f"{driver}/claim"
    devices: dict[str, cdi.Device] = {}
    names: list[str] = []
    described: set[str] = set()
    for each in given:
        request = base_request(each.result.request)
        edits = _node_edits(each)
        if request not in described:
            described.add(request)
            together = [x for x in given if base_request(x.result.request) == request]
            edits = _with_request(edits, claim, request, together)
        if edits == cdi.ContainerEdits():
            names.append("")
            continue
        device = cdi.Device.of(_unit(claim, each.result), edits)
        devices[device.name] = device  # two results may name the same thing: an administrator's, twice
        names.append(cdi.qualified_name(kind, device.name))
    return ClaimEdits(cdi.Spec.of(kind, devices.values()) if devices else None, tuple(names))


def variable(claim: v1.ResourceClaim, request: str) -> str:
    """Return the variable that tells a container which devices a base request of a claim got."""
    return f"NODEPLUG_{_capitals(pod_claim_name(claim) or claim.metadata.name)}__{_capitals(request)}"


def _unit(claim: v1.ResourceClaim, result: v1.DeviceRequestAllocationResult) -> str:
    parts = [claim.metadata.uid, result.request.replace("/", "."), result.device]
    return "_".join((*parts, result.share_id) if result.share_id else parts)


def _node_edits(given: Given) -> cdi.ContainerEdits:
    access = given.settings.access
    nodes = tuple(
        cdi.DeviceNode.of(
            node.path,
            container_path=node.container_path,
            target=node.target,
            permissions=given.offered.resource.permissions,
            uid=access.uid,
            gid=access.gid,
            file_mode=access.mode,
        )
        for node in given.offered.device.devnodes
    )
    return cdi.ContainerEdits(device_nodes=nodes, additional_gids=_gids(access) if nodes else ())


def _gids(access: NodeAccess) -> tuple[int, ...]:
    """Return the group that a process needs to open the nodes.

    Without an owner the runtime gives the nodes to the process's own user, so the group only matters with one.
    """
    opens = access.mode is None or access.mode & _GROUP_BITS
    return (access.gid,) if access.uid is not None and access.gid and opens else ()


def _with_request(
    edits: cdi.ContainerEdits, claim: v1.ResourceClaim, request: str, given: Sequence[Given]
) -> cdi.ContainerEdits:
    """Add what concerns all devices of a request."""
    env = _configured(given) | _facts(variable(claim, request), given)
    mounts = {mount.container_path: mount for each in given for mount in each.settings.mounts}
    return cdi.ContainerEdits(
        env=tuple(f"{name}={value}" for name, value in env.items()),
        device_nodes=edits.device_nodes,
        mounts=tuple(map(_mount, mounts.values())),
        additional_gids=edits.additional_gids,
    )


def _configured(given: Sequence[Given]) -> dict[str, str]:
    """Fill the configured variables with the facts of the devices that they are for."""
    templates = {name: template for each in given for name, template in each.settings.env.items()}
    env = {}
    for name, template in templates.items():
        meant = [x.offered for x in given if x.settings.env.get(name) == template]
        devices = {x.device.id: x.device for x in meant}
        env[name] = render(template, [x.name for x in meant], list(devices.values()))
    return env


def _facts(name: str, given: Sequence[Given]) -> dict[str, str]:
    env = {name: ",".join(x.offered.name for x in given)}
    for capacity in sorted({capacity for x in given for capacity in x.result.consumed_capacity}):
        amounts = (str(x.result.consumed_capacity.get(capacity, "")) for x in given)
        env[f"{name}__CAPACITY_{_capitals(capacity)}"] = ",".join(amounts)
    if any(x.is_admin for x in given):
        env[f"{name}__ADMIN_ACCESS"] = "true"
    return env


def _capitals(text: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", text.upper())


def _mount(mount: Mount) -> cdi.Mount:
    options = ("ro" if mount.read_only else "rw", "bind")
    return cdi.Mount(host_path=mount.host_path, container_path=mount.container_path, options=options)
