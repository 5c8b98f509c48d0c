"""Rules for slices and taint rules (allocator.md 4.5, "ResourceSlice" and "DeviceTaintRule")."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from resourceapi.objects import names, v1
from resourceapi.objects.capacity_rules import capacity_of_exclusive_device, capacity_of_shared_device
from resourceapi.objects.errors import ErrorList
from resourceapi.objects.field_rules import (
    add_invalid,
    binding_conditions,
    check_items,
    dns_label,
    driver_name,
    each_entry,
    fully_qualified_name,
    label_name,
    node_selector,
    pool_name,
    qualified_name,
    skipped_operations,
)
from resourceapi.objects.metadata_rules import immutable
from resourceapi.objects.release import LATEST, Release

MAX_DEVICES = 128
MAX_DEVICES_WITH_EXTRAS = 64
MAX_ATTRIBUTES_AND_CAPACITIES = 32
MAX_ATTRIBUTE_VALUES = 48
MAX_ATTRIBUTE_VALUE = 64
MAX_COUNTER_SETS = 8
MAX_COUNTERS = 32
MAX_COUNTER_CONSUMPTIONS = 2
MAX_TAINTS = 16

_NUMBER = r"(0|[1-9][0-9]*)"
_PRERELEASE = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9a-zA-Z-]+"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?", re.ASCII
)


def slice_spec(
    errors: ErrorList,
    path: str,
    spec: v1.ResourceSliceSpec,
    old: v1.ResourceSliceSpec | None,
    release: Release = LATEST,
) -> None:
    """Check a slice; pool, driver and node name cannot change."""
    driver_name(errors, f"{path}.driver", spec.driver, release)
    pool_name(errors, f"{path}.pool.name", spec.pool.name)
    if spec.pool.resource_slice_count <= 0:
        errors.invalid(f"{path}.pool.resourceSliceCount", spec.pool.resource_slice_count, "must be greater than zero")
    if spec.pool.generation < 0:
        errors.invalid(f"{path}.pool.generation", spec.pool.generation, "must be greater than or equal to zero")
    if old is not None:
        immutable(errors, f"{path}.pool.name", spec.pool.name, old.pool.name)
        immutable(errors, f"{path}.driver", spec.driver, old.driver)
        immutable(errors, f"{path}.nodeName", spec.node_name, old.node_name)
    _slice_nodes(errors, path, spec)
    if spec.shared_counters and spec.devices:
        errors.invalid(path, "", "only one of `sharedCounters` or `devices` is allowed")

    before = {device.name: device for device in old.devices} if old else {}

    def device(errors: ErrorList, path: str, device: v1.Device) -> None:
        per_device = bool(spec.per_device_node_selection)
        _device(errors, path, device, before.get(device.name), release, per_device=per_device)

    extras = any(_has_extras(device) for device in spec.devices)
    limit = MAX_DEVICES_WITH_EXTRAS if extras else MAX_DEVICES
    check_items(errors, f"{path}.devices", spec.devices, limit, device, lambda device: device.name)
    counter_sets = spec.shared_counters
    check_items(errors, f"{path}.sharedCounters", counter_sets, MAX_COUNTER_SETS, _counter_set, lambda x: x.name)
    skipped_operations(errors, f"{path}.skipNodeOperations", spec.skip_node_operations)
    if spec.partition_type_attribute is not None:
        _partition_type(errors, path, spec)


def taint_rule_spec(
    errors: ErrorList,
    path: str,
    spec: v1.DeviceTaintRuleSpec,
    old: v1.DeviceTaintRuleSpec | None,
    release: Release = LATEST,
) -> None:
    """Check a taint rule; an unknown effect is accepted if the stored rule has it."""
    selector = spec.device_selector
    if selector is not None:
        if selector.driver is not None:
            driver_name(errors, f"{path}.deviceSelector.driver", selector.driver, release)
        if selector.pool is not None:
            pool_name(errors, f"{path}.deviceSelector.pool", selector.pool)
        if selector.device is not None:
            dns_label(errors, f"{path}.deviceSelector.device", selector.device)
    _taint(errors, f"{path}.taint", spec.taint, known_effect=old.taint.effect if old else None)


def _slice_nodes(errors: ErrorList, path: str, spec: v1.ResourceSliceSpec) -> None:
    chosen = []
    if spec.node_name is not None:
        if spec.node_name:
            chosen.append("`nodeName`")
            add_invalid(errors, f"{path}.nodeName", spec.node_name, names.dns_subdomain(spec.node_name))
        else:
            errors.invalid(f"{path}.nodeName", "", "must be either unset or set to a non-empty string")
    if spec.node_selector is not None:
        chosen.append("`nodeSelector`")
        node_selector(errors, f"{path}.nodeSelector", spec.node_selector)
        terms = spec.node_selector.node_selector_terms
        if len(terms) != 1:
            text = "must have exactly one node selector term"
            errors.invalid(f"{path}.nodeSelector.nodeSelectorTerms", terms, text)
    for name, value in (("allNodes", spec.all_nodes), ("perDeviceNodeSelection", spec.per_device_node_selection)):
        if value:
            chosen.append(f"`{name}`")
        elif value is not None:
            errors.invalid(f"{path}.{name}", value, "must be either unset or set to true")
    text = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not chosen:
        errors.required(path, text)
    elif len(chosen) > 1:
        errors.invalid(path, f"{{{', '.join(chosen)}}}", f"{text}, but multiple fields are set")


def _has_extras(device: v1.Device) -> bool:
    """Return whether a device has features that make slices large and so lower the limit on devices."""
    return bool(device.taints or device.consumes_counters) or any(
        _list_values(attribute) is not None for attribute in device.attributes.values()
    )


def _device(
    errors: ErrorList, path: str, device: v1.Device, old: v1.Device | None, release: Release, *, per_device: bool
) -> None:
    dns_label(errors, f"{path}.name", device.name)
    count = len(device.attributes) + len(device.capacity)
    if count > MAX_ATTRIBUTES_AND_CAPACITIES:
        limit = MAX_ATTRIBUTES_AND_CAPACITIES
        errors.invalid(path, count, f"the total number of attributes and capacities must not exceed {limit}")
    values = sum(_list_values(attribute) or 1 for attribute in device.attributes.values())
    if values > MAX_ATTRIBUTE_VALUES:
        errors.invalid(path, values, f"the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}")
    each_entry(errors, f"{path}.attributes", device.attributes, None, qualified_name, _attribute)
    if old is None or old.capacity != device.capacity or not release.skips_unchanged_values:
        capacity = capacity_of_exclusive_device
        if device.allow_multiple_allocations:
            capacity = partial(capacity_of_shared_device, release=release)
        each_entry(errors, f"{path}.capacity", device.capacity, None, qualified_name, capacity)
    if old is None or old.taints != device.taints:
        check_items(errors, f"{path}.taints", device.taints, MAX_TAINTS, _taint)
    consumed = device.consumes_counters
    limit = MAX_COUNTER_CONSUMPTIONS
    check_items(errors, f"{path}.consumesCounters", consumed, limit, _counter_consumption, lambda x: x.counter_set)
    _device_nodes(errors, path, device, per_device=per_device)
    binding_conditions(errors, path, device.binding_conditions, device.binding_failure_conditions)
    for name in sorted(device.node_allocatable_resources):
        here = f"{path}.nodeAllocatableResources[{name}]"
        _allocatable(errors, here, name, device.node_allocatable_resources[name], device)


def _device_nodes(errors: ErrorList, path: str, device: v1.Device, *, per_device: bool) -> None:
    if not per_device:
        if device.node_name is not None or device.node_selector is not None or device.all_nodes is not None:
            text = (
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection`"
                " is set to true in the ResourceSlice spec"
            )
            errors.invalid(path, None, text)
        return
    chosen = []
    if device.node_name is not None:
        if device.node_name:
            chosen.append("`nodeName`")
            add_invalid(errors, f"{path}.nodeName", device.node_name, names.dns_subdomain(device.node_name))
        else:
            errors.invalid(f"{path}.nodeName", "", "must not be empty")
    if device.node_selector is not None:
        chosen.append("`nodeSelector`")
        node_selector(errors, f"{path}.nodeSelector", device.node_selector)
    if device.all_nodes:
        chosen.append("`allNodes`")
    elif device.all_nodes is not None:
        errors.invalid(f"{path}.allNodes", device.all_nodes, "must be either unset or set to true")
    text = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection`"
        " is set to true in the ResourceSlice spec"
    )
    if not chosen:
        errors.required(path, text)
    elif len(chosen) > 1:
        errors.invalid(path, f"{{{', '.join(chosen)}}}", text)


def _list_values(attribute: v1.DeviceAttribute) -> int | None:
    """Return how many values an attribute's lists have; None if it has no list."""
    lists = (attribute.int_values, attribute.bool_values, attribute.string_values, attribute.version_values)
    present = [len(values) for values in lists if values is not None]
    return sum(present) if present else None


def _attribute(errors: ErrorList, path: str, attribute: v1.DeviceAttribute) -> None:
    if attribute.string_value is not None:
        _text(errors, f"{path}.string", attribute.string_value)
    if attribute.version_value is not None:
        _version(errors, f"{path}.version", attribute.version_value)
    rules: tuple[tuple[str, Sequence[object] | None, Callable[[ErrorList, str, str], None] | None], ...] = (
        ("bools", attribute.bool_values, None),
        ("ints", attribute.int_values, None),
        ("strings", attribute.string_values, _text),
        ("versions", attribute.version_values, _version),
    )
    for name, values, rule in rules:
        if values is not None and not values:
            errors.invalid(f"{path}.{name}", [], "must not be empty if specified")
        for index, value in enumerate(values or ()):
            if rule is not None and isinstance(value, str):
                rule(errors, f"{path}.{name}[{index}]", value)
    single = (attribute.int_value, attribute.bool_value, attribute.string_value, attribute.version_value)
    count = sum(value is not None for value in (*single, *(values for _, values, _ in rules)))
    if count != 1:
        errors.invalid(path, attribute if count else "", "exactly one value must be specified")


def _text(errors: ErrorList, path: str, value: str) -> None:
    if names.size(value) > MAX_ATTRIBUTE_VALUE:
        errors.too_long(path, MAX_ATTRIBUTE_VALUE)


def _version(errors: ErrorList, path: str, value: str) -> None:
    if not _SEMVER.fullmatch(value):
        errors.invalid(path, value, "must be a string compatible with semver.org spec 2.0.0")
    _text(errors, path, value)


def _taint(errors: ErrorList, path: str, taint: v1.DeviceTaint, known_effect: str | None = None) -> None:
    label_name(errors, f"{path}.key", taint.key)
    if taint.value:
        add_invalid(errors, f"{path}.value", taint.value, names.label_value(taint.value))
    if taint.effect == known_effect:
        return
    if not taint.effect:
        errors.required(f"{path}.effect")
    elif taint.effect not in v1.TAINT_EFFECTS:
        errors.not_supported(f"{path}.effect", taint.effect, list(v1.TAINT_EFFECTS))


def _counter_set(errors: ErrorList, path: str, counter_set: v1.CounterSet) -> None:
    _counter_set_name(errors, f"{path}.name", counter_set.name)
    _counters(errors, f"{path}.counters", counter_set)


def _counter_consumption(errors: ErrorList, path: str, consumption: v1.DeviceCounterConsumption) -> None:
    _counter_set_name(errors, f"{path}.counterSet", consumption.counter_set)
    _counters(errors, f"{path}.counters", consumption)


def _counter_set_name(errors: ErrorList, path: str, name: str) -> None:
    if name:
        dns_label(errors, path, name)
    else:
        errors.required(path)


def _counters(errors: ErrorList, path: str, holder: v1.CounterSet | v1.DeviceCounterConsumption) -> None:
    if not holder.counters:
        errors.required(path)
    else:
        each_entry(errors, path, holder.counters, MAX_COUNTERS, dns_label, lambda _errors, _path, _counter: None)


def _allocatable(
    errors: ErrorList, path: str, name: str, resource: v1.NodeAllocatableResource, device: v1.Device
) -> None:
    """Check a device's share of a node resource (alpha in 1.37)."""
    if not names.is_native_resource(name):
        errors.invalid(path, name, "must be a node allocatable resource name")
    mapping, overhead = resource.mapping, resource.overhead
    if mapping is None and overhead is None:
        errors.invalid(path, "", "at least one of mapping or overhead must be set")
    if mapping is not None:
        if mapping.capacity_key is not None and mapping.capacity_key not in device.capacity:
            errors.not_found(f"{path}.mapping.capacityKey", mapping.capacity_key)
        for member, multiplier in (
            ("capacityMultiplier", mapping.capacity_multiplier),
            ("deviceMultiplier", mapping.device_multiplier),
        ):
            if multiplier is not None and multiplier.sign <= 0:
                errors.invalid(f"{path}.mapping.{member}", multiplier, "must be positive")
    if overhead is not None:
        for member, amount in (("perPod", overhead.per_pod), ("perContainer", overhead.per_container)):
            if amount is not None and amount.sign < 0:
                errors.invalid(f"{path}.overhead.{member}", amount, "must be non-negative")


def _partition_type(errors: ErrorList, path: str, spec: v1.ResourceSliceSpec) -> None:
    """Check the attribute that names the partition type of a device (alpha in 1.37)."""
    here, name = f"{path}.partitionTypeAttribute", spec.partition_type_attribute or ""
    fully_qualified_name(errors, here, name)
    consuming = [(index, device) for index, device in enumerate(spec.devices) if device.consumes_counters]
    if not consuming:
        errors.forbidden(here, "may only be set on a slice which declares devices that consume counters")
    for index, device in consuming:
        domain, _, identifier = name.rpartition("/")
        attribute = device.attributes.get(name)
        if attribute is None and domain == spec.driver:
            attribute = device.attributes.get(identifier)
        if attribute is None or attribute.string_value is None:
            attribute_path = f"{path}.devices[{index}].attributes[{name}]"
            errors.required(attribute_path, "must be a string attribute of every device that consumes counters")
