"""Rules for the status of claims (allocator.md 4.5, "ResourceClaim status")."""

import ipaddress
from typing import NamedTuple

from resourceapi.objects import names, v1
from resourceapi.objects.claim_rules import (
    RequestNames,
    request_names,
    request_reference,
    request_references,
    toleration,
)
from resourceapi.objects.errors import ErrorList, Token, quoted_text
from resourceapi.objects.field_rules import (
    MAX_CONFIGS,
    binding_conditions,
    check_items,
    conditions,
    configuration,
    dns_label,
    driver_name,
    node_selector,
    pool_name,
    raw_object,
    share_id,
    skipped_operations,
)
from resourceapi.objects.metadata_rules import immutable
from resourceapi.objects.release import LATEST, Release

MAX_RESULTS = 32
MAX_USERS = 256
MAX_CONDITIONS = 8
MAX_IPS = 16
MAX_INTERFACE_NAME = 256
MAX_HARDWARE_ADDRESS = 128


class _AllocatedDevice(NamedTuple):
    driver: str
    pool: str
    device: str
    share_id: str

    def shown(self) -> dict[str, str]:
        return dict(zip(("Driver", "Pool", "Device", "ShareID"), self, strict=True))


def claim_status(
    errors: ErrorList, path: str, new: v1.ResourceClaim, old: v1.ResourceClaim, release: Release = LATEST
) -> None:
    """Check a claim's new status. A new allocation is checked; an existing one cannot be changed, only removed."""
    status, before = new.status, old.status
    check_items(errors, f"{path}.reservedFor", status.reserved_for, MAX_USERS, _user, lambda user: Token(user.uid))
    _devices(errors, f"{path}.devices", status, release)
    if status.reserved_for:
        if status.allocation is None:
            errors.forbidden(f"{path}.reservedFor", "may not be specified when `allocated` is not set")
        elif new.metadata.deletion_timestamp is not None and any(
            user not in before.reserved_for for user in status.reserved_for
        ):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            errors.forbidden(f"{path}.reservedFor", text)
    if status.allocation is not None:
        if before.allocation is not None:
            immutable(errors, f"{path}.allocation", status.allocation, before.allocation)
        else:
            _allocation(errors, f"{path}.allocation", status.allocation, request_names(new.spec.devices), release)


def _user(errors: ErrorList, path: str, user: v1.ResourceClaimConsumerReference) -> None:
    for name in ("resource", "name", "uid"):
        if not getattr(user, name):
            errors.required(f"{path}.{name}")


def _allocation(
    errors: ErrorList, path: str, allocation: v1.AllocationResult, known: RequestNames, release: Release
) -> None:
    def result(errors: ErrorList, path: str, result: v1.DeviceRequestAllocationResult) -> None:
        request_reference(errors, f"{path}.request", result.request, known)
        driver_name(errors, f"{path}.driver", result.driver, release)
        pool_name(errors, f"{path}.pool", result.pool)
        dns_label(errors, f"{path}.device", result.device)
        binding_conditions(errors, path, result.binding_conditions, result.binding_failure_conditions)
        if result.share_id is not None:
            share_id(errors, f"{path}.shareID", result.share_id)
        if release.checks_allocated_tolerations:
            check_items(errors, f"{path}.tolerations", result.tolerations, None, toleration)
        skipped_operations(errors, f"{path}.skipNodeOperations", result.skip_node_operations)

    def config(errors: ErrorList, path: str, config: v1.DeviceAllocationConfiguration) -> None:
        if not config.source:
            errors.required(f"{path}.source")
        elif config.source not in (v1.FROM_CLAIM, v1.FROM_CLASS):
            errors.not_supported(f"{path}.source", config.source, [v1.FROM_CLAIM, v1.FROM_CLASS])
        request_references(errors, f"{path}.requests", config.requests, known)
        configuration(errors, path, config.opaque, stored=False)

    check_items(errors, f"{path}.devices.results", allocation.devices.results, MAX_RESULTS, result)
    check_items(errors, f"{path}.devices.config", allocation.devices.config, 2 * MAX_CONFIGS, config)
    if allocation.node_selector is not None:
        node_selector(errors, f"{path}.nodeSelector", allocation.node_selector)


def _devices(errors: ErrorList, path: str, status: v1.ResourceClaimStatus, release: Release) -> None:
    results = status.allocation.devices.results if status.allocation else ()
    allocated = {_AllocatedDevice(x.driver, x.pool, x.device, x.share_id or "") for x in results}

    def rule(errors: ErrorList, path: str, device: v1.AllocatedDeviceStatus) -> None:
        driver_name(errors, f"{path}.driver", device.driver, release)
        pool_name(errors, f"{path}.pool", device.pool)
        dns_label(errors, f"{path}.device", device.device)
        if device.share_id is not None:
            share_id(errors, f"{path}.shareID", device.share_id)
        if _key(device) not in allocated:
            errors.invalid(path, _key(device).shown(), "must be an allocated device in the claim")
        if len(device.conditions) > MAX_CONDITIONS:
            errors.too_many(f"{path}.conditions", len(device.conditions), MAX_CONDITIONS)
        conditions(errors, f"{path}.conditions", device.conditions, release)
        if device.data is not None:
            raw_object(errors, f"{path}.data", device.data, stored=False)
        if device.network_data is not None:
            _network_data(errors, f"{path}.networkData", device.network_data)

    check_items(errors, path, status.devices, None, rule)
    seen = set()
    for index, device in enumerate(status.devices):
        key = _key(device)
        if key in seen:
            errors.duplicate(f"{path}[{index}]", key.shown())
        seen.add(key)


def _key(device: v1.AllocatedDeviceStatus) -> _AllocatedDevice:
    return _AllocatedDevice(device.driver, device.pool, device.device, device.share_id or "")


def _network_data(errors: ErrorList, path: str, data: v1.NetworkDeviceData) -> None:
    if names.size(data.interface_name) > MAX_INTERFACE_NAME:
        errors.too_long(f"{path}.interfaceName", MAX_INTERFACE_NAME)
    if names.size(data.hardware_address) > MAX_HARDWARE_ADDRESS:
        errors.too_long(f"{path}.hardwareAddress", MAX_HARDWARE_ADDRESS)
    check_items(errors, f"{path}.ips", data.ips, MAX_IPS, _interface_address, lambda address: address)


def _interface_address(errors: ErrorList, path: str, address: str) -> None:
    """Check `address/prefix`, which must be in canonical form."""
    host, slash, prefix = address.partition("/")
    try:
        if not slash or not prefix.isascii() or not prefix.isdigit() or "%" in host:
            raise ValueError(address)
        # Drop leading zeros of IPv4 numbers, so that the address parses and the canonical form below reports them.
        plain = host if ":" in host else ".".join(part.lstrip("0") or part[-1:] for part in host.split("."))
        interface = ipaddress.ip_interface(f"{plain}/{prefix}")
    except ValueError:
        text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        errors.invalid(path, address, text)
        return
    canonical = str(interface)
    mapped = interface.ip.ipv4_mapped if isinstance(interface.ip, ipaddress.IPv6Address) else None
    if mapped is not None and interface.network.prefixlen >= 96:
        canonical = f"{mapped}/{interface.network.prefixlen - 96}"
    if address != canonical:
        errors.invalid(path, address, f"must be in canonical form ({quoted_text(canonical)})")
