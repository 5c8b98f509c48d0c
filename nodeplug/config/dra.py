"""The key `dra` of a resource: amounts, partitions, conditions, and the names of DeviceClasses.

The rules are those of the API server, which would refuse a whole ResourceSlice for one wrong device.
"""

import ipaddress
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from dra_plugin.publishing.attributes import MAX_TOTAL, MEMORY, OWN_ATTRIBUTES, SHARES, capacity, fits, is_name
from dra_plugin.publishing.counters import MAX_COUNTERS
from dra_plugin.publishing.device_class import class_name
from hostdevices.attributes import ATTRIBUTES, STANDARD
from hostdevices.readers.sysfs import TEXT_LIMIT
from nodeplug.config.document import Document, Path, suggestion
from nodeplug.config.fields import filled_template
from nodeplug.config.schema import (
    CapacityEntry,
    DraEntry,
    InterfaceEntry,
    PartitionEntry,
    ResourceEntry,
    Value,
)
from nodeplug.config.selectors import KINDS
from resourceapi.objects import ErrorList, Quantity, QuantityError
from resourceapi.objects.capacity_rules import capacity_of_shared_device
from resourceapi.objects.field_rules import binding_conditions
from resourceapi.objects.names import dns_label, dns_subdomain
from resources.resource import Capacity, DraOptions, DriverBinding, InterfaceMoves, Partition
from resources.selector import Selection, concerns

_Amount: TypeAlias = int | str
_KUBERNETES = "resource.kubernetes.io/"
_NUMBERS = range(-(2**63), 2**63)


def dra_options(document: Document, path: Path, entry: ResourceEntry) -> DraOptions:
    """Return the DRA options of the resource at `path`; findings go to the document."""
    _check_name(document, (*path, "name"), entry.name)
    if entry.api == "dra" and entry.annotations:
        hint = "leave them out; a claim's DeviceClass can have a configuration instead"
        document.at((*path, "annotations"), "only the device plugin API has annotations", hint, key=True)
    if entry.dra is UNSET:
        return DraOptions()
    dra, place = entry.dra, (*path, "dra")
    if dra.extended_resource and entry.api == "both":
        message = f"the kubelet already counts {entry.name} through the device plugin API: pods could get it twice"
        document.at((*place, "extendedResource"), message, "leave this out, or set `api: dra`")
    counters = _counters(document, place, dra)
    partitions = tuple(
        _partition(document, (*place, "partitions", i), part, counters) for i, part in enumerate(dra.partitions)
    )
    _check_partitions(document, path, entry, dra)
    capacities = {
        name: _capacity(document, (*place, "capacity", name), capacity_entry, is_shared=entry.is_shared)
        for name, capacity_entry in dra.capacity.items()
        if _is_named(document, (*place, "capacity", name), name)
    }
    if entry.is_shared and SHARES in capacities:
        document.at((*place, "capacity", SHARES), "the capacity `shares` is set by the key `shares`", key=True)
    if MEMORY in capacities and any(x.memory is not UNSET for x in entry.shares_of):
        document.at((*place, "capacity", MEMORY), "the capacity `memory` is set by the key `sharesOf`", key=True)
    if partitions and capacities:
        message = "a device with partitions is not offered as a whole"
        document.at((*place, "capacity"), message, "say what each partition has", key=True)
    attributes = {
        name: _attribute(document, (*place, "attributes", name), name, value) for name, value in dra.attributes.items()
    }
    at = "capacity" if dra.capacity else "attributes"
    _check_number(document, (*place, at), [*capacities, MEMORY, SHARES], attributes)
    _check_conditions(document, place, dra)
    return DraOptions(
        taint=dra.taint,
        attributes=attributes,
        capacity=capacities,
        counters={name: str(amount) for name, amount in dra.counters.items()},
        partitions=partitions,
        binding_conditions=dra.binding_conditions,
        binding_failure_conditions=dra.binding_failure_conditions,
        extended_resource=dra.extended_resource,
        interface=_interface(document, path, entry, dra.interface),
        bind=_binding(document, path, entry, dra),
    )


def check_classes(document: Document, entries: Mapping[int, ResourceEntry]) -> None:
    """Add findings about resources (by their place in the list) whose DeviceClasses would have the same name."""
    owners: dict[str, str] = {}
    for i, entry in entries.items():
        if entry.api == "device-plugin":
            continue
        name = class_name(entry.name)
        if (owner := owners.setdefault(name, entry.name)) != entry.name:
            message = f"{entry.name} and {owner} would both have the DeviceClass {name}"
            document.at(("resources", i, "name"), message, "give one of them another name")


def _check_name(document: Document, path: Path, name: str) -> None:
    if not fits(name):
        document.at(path, f"{name} is too long for DRA: an attribute has at most {TEXT_LIMIT} bytes")
    elif "/" in name and dns_subdomain(class_name(name)):
        message = f"the DeviceClass of {name} cannot be named {class_name(name)}"
        document.at(path, message, "after the slash, begin and end words between dots with a letter or a digit")


def _interface(
    document: Document, path: Path, entry: ResourceEntry, written: Literal["move"] | InterfaceEntry | UnsetType
) -> InterfaceMoves | None:
    if written is UNSET:
        return None
    place = (*path, "dra", "interface")
    if entry.is_shared or (entry.dra is not UNSET and entry.dra.partitions):
        document.at(place, "an interface is in one pod at a time", "leave out shares and partitions", key=True)
    if entry.api == "both":
        message = "through the device plugin API a pod would get the device without its interface"
        document.at(place, message, "set `api: dra`", key=True)
    if written == "move":
        return InterfaceMoves()
    for i, text in enumerate(written.addresses):
        try:
            network = ipaddress.ip_network(text)
        except ValueError as error:
            document.at((*place, "addresses", i), f"{text} is not a prefix: {error}", "write it as in 192.0.2.0/24")
            continue
        if not network.prefixlen:
            message = f"{text} contains every address, also those of the node and the API server"
            document.at((*place, "addresses", i), message, "name the network that the interfaces are for")
    return InterfaceMoves(written.name, written.mtu, written.mac, written.addresses)


def check_bound_kinds(document: Document, path: Path, selector: Selection) -> None:
    """Add a finding if the selector of a resource with `dra.bind` can select devices other than PCI functions."""
    if others := [kind for kind in KINDS if kind != "pci" and concerns(selector, kind)]:
        message = f"only PCI functions can be bound to another driver, and this may select devices of kind {others[0]}"
        document.at((*path, "select"), message, "add `kind: pci`; a card's interface or disk goes with it")


def _binding(document: Document, path: Path, entry: ResourceEntry, dra: DraEntry) -> DriverBinding | None:
    if dra.bind is UNSET:
        return None
    place = (*path, "dra", "bind")
    if entry.api == "both":
        message = "the device plugin API does not report the end of a pod, when its device must get its driver back"
        document.at(place, message, "set `api: dra`", key=True)
    if entry.is_shared or dra.partitions:
        document.at(
            place,
            "only one claim at a time can change the driver of a device",
            "leave out shares and partitions",
            key=True,
        )
    if dra.interface is not UNSET:
        document.at(place, "without its own driver a function has no interface to move", "leave one out", key=True)
    is_set_by_key = {
        "group": entry.group is not UNSET,
        "nodes": entry.nodes is not UNSET,
        "containerPath": bool(entry.container_path),
        "userspace": entry.userspace is not UNSET,
        "cdiDevices": bool(entry.cdi_devices),
        "mps": entry.mps is not UNSET,
    }
    message = "a device with another driver is its whole IOMMU group, with the nodes of that"
    for key in (name for name, is_set in is_set_by_key.items() if is_set):
        document.at((*path, key), message, "leave it out", key=True)
    return DriverBinding() if isinstance(dra.bind, str) else DriverBinding(dra.bind.driver, dra.bind.iommufd)


def _counters(document: Document, path: Path, dra: DraEntry) -> dict[str, Quantity]:
    """Return the valid counters, by name."""
    found: dict[str, Quantity] = {}
    for name, written in dra.counters.items():
        place = (*path, "counters", name)
        if dns_label(name):
            document.at(place, f"{name} cannot be a counter", "lower-case letters, digits and dashes", key=True)
        if (amount := _amount(document, place, written)) is not None:
            found[name] = amount
    if len(dra.counters) > MAX_COUNTERS:
        document.at((*path, "counters"), f"{len(dra.counters)} counters; at most {MAX_COUNTERS} are possible")
    if dra.counters and not dra.partitions:
        document.at((*path, "counters"), "nothing takes from these counters", "add `partitions`", key=True)
    return found


def _check_partitions(document: Document, path: Path, entry: ResourceEntry, dra: DraEntry) -> None:
    place = (*path, "dra", "partitions")
    names = [part.name for part in dra.partitions]
    for i, name in enumerate(names):
        if name in names[:i]:
            document.at((*place, i, "name"), f"{name} is the name of two partitions")
    if not dra.partitions:
        return
    if entry.is_shared:
        document.at(place, "a device is offered in shares or in partitions, not in both", "leave one out", key=True)
    if entry.group is not UNSET:
        document.at(place, "a group is allocated as one device and has no partitions", "leave one out", key=True)
    if not dra.counters:
        document.at(place, "partitions need `counters` to consume", "say what a device has of each", key=True)


def _partition(document: Document, path: Path, entry: PartitionEntry, counters: Mapping[str, Quantity]) -> Partition:
    if dns_label(entry.name):
        hint = "lower-case letters, digits and dashes: it becomes a part of the device's name"
        document.at((*path, "name"), f"{entry.name} cannot be a partition", hint)
    if not entry.consumes:
        document.at((*path, "consumes"), "a partition must take something: nothing would keep it apart from the others")
    for name, written in entry.consumes.items():
        place = (*path, "consumes", name)
        amount = _amount(document, place, written)
        if name not in counters:
            if not document.is_wrong((*path[:-2], "counters")):
                hint = suggestion(name, counters) if counters else ""
                document.at(place, f"there is no counter {name}", hint, key=True)
        elif amount is not None and amount > counters[name]:
            document.at(place, f"{written} is more than the {counters[name]} that a device has of {name}")
    for name, value in entry.attributes.items():
        _check_attribute(document, (*path, "attributes", name), name, value)
    capacities = {
        name: _capacity(document, (*path, "capacity", name), written, is_shared=False)
        for name, written in entry.capacity.items()
        if _is_named(document, (*path, "capacity", name), name)
    }
    _check_number(document, path, capacities, entry.attributes)
    return Partition(
        name=entry.name,
        consumes={name: str(amount) for name, amount in entry.consumes.items()},
        count=entry.count,
        attributes=entry.attributes,
        capacity=capacities,
    )


def _check_attribute(document: Document, path: Path, name: str, value: Value) -> None:
    if name in OWN_ATTRIBUTES:
        document.at(path, f"the attribute {name} cannot be set here", "choose another name", key=True)
    elif _is_named(document, path, name):
        if isinstance(value, str) and not fits(value):
            document.at(path, f"an attribute has at most {TEXT_LIMIT} bytes")
        elif not isinstance(value, str) and value not in _NUMBERS:
            document.at(path, f"{value} has more than 64 bits")


def _attribute(document: Document, path: Path, name: str, value: Value) -> Value:
    """Return the value of an attribute that a resource adds to each device; a text has full names of attributes."""
    if name in ATTRIBUTES or name.startswith(_KUBERNETES):
        whose = "Kubernetes'" if name.startswith(_KUBERNETES) else "each device's"
        document.at(path, f"the attribute {name} is {whose} own", "choose another name", key=True)
        return value
    if not isinstance(value, str):
        _check_attribute(document, path, name, value)
        return value
    text = filled_template(document, path, value)
    _check_attribute(document, path, name, "" if "{" in text else text)  # its final length depends on the device
    return text


def _is_named(document: Document, path: Path, name: str) -> bool:
    if is_name(name):
        return True
    hint = "letters, digits, underscores, at most 32, with or without a domain and a slash in front"
    document.at(path, f"{name} cannot be the name of an attribute or a capacity", hint, key=True)
    return False


def _check_number(
    document: Document, path: Path, capacities: Mapping[str, object] | list[str], attributes: Mapping[str, object]
) -> None:
    """Add a finding if these do not fit beside what every device has."""
    count = len(OWN_ATTRIBUTES) + len(STANDARD) + len({*capacities}) + len({*attributes} - {*STANDARD.values()})
    if count > MAX_TOTAL:
        message = f"with those that every device has, these are {count} attributes and capacities"
        document.at(path, message, f"at most {MAX_TOTAL} are possible")


def _capacity(document: Document, path: Path, written: _Amount | CapacityEntry, *, is_shared: bool) -> Capacity:
    entry = written if isinstance(written, CapacityEntry) else CapacityEntry(value=written)
    if isinstance(written, CapacityEntry):
        amounts = [_amount(document, (*path, name), x) for name, x in _policy(entry)]
        amounts += [_amount(document, (*path, "validValues", i), x) for i, x in enumerate(entry.valid_values)]
        amounts.append(_amount(document, (*path, "value"), entry.value))
    else:
        amounts = [_amount(document, path, written)]
    found = Capacity(
        value=str(entry.value),
        default=_text(entry.default),
        valid_values=tuple(map(str, entry.valid_values)),
        minimum=_text(entry.minimum),
        maximum=_text(entry.maximum),
        step=_text(entry.step),
    )
    if None not in amounts:
        _check_policy(document, path, entry, found, is_shared=is_shared)
    return found


def _check_policy(document: Document, path: Path, entry: CapacityEntry, parsed: Capacity, *, is_shared: bool) -> None:
    policy = [name for name, _ in _policy(entry)] + (["validValues"] if entry.valid_values else [])
    if not is_shared:
        if policy:
            document.at(path, f"{' and '.join(policy)}: a device without `shares` is allocated as a whole")
    elif not parsed.default:
        hint = "set what a claim gets if it requests no amount"
        document.at(
            path, "without `default` the first claim would get the whole amount, and the other shares nothing", hint
        )
    elif entry.valid_values and (parsed.minimum or parsed.maximum or parsed.step):
        document.at(path, "validValues and a range exclude each other")
    elif (parsed.maximum or parsed.step) and not parsed.minimum:
        document.at(path, "a range needs `min`", "add `min`")
    else:
        errors = ErrorList()
        capacity_of_shared_device(errors, "", capacity(parsed))
        for error in errors:
            member = error.path.rpartition(".")[2].partition("[")[0]
            document.at((*path, member), f"no API server accepts this: {error.message}")


def _policy(entry: CapacityEntry) -> list[tuple[str, _Amount]]:
    """Return the bounds of requests that an entry sets, each with its name in the file."""
    bounds = (("default", entry.default), ("min", entry.minimum), ("max", entry.maximum), ("step", entry.step))
    return [(name, value) for name, value in bounds if value is not UNSET]


def _check_conditions(document: Document, path: Path, dra: DraEntry) -> None:
    if bool(dra.binding_conditions) != bool(dra.binding_failure_conditions):
        present = "bindingConditions" if dra.binding_conditions else "bindingFailureConditions"
        hint = "say when the device can be had and when it cannot"
        document.at(
            (*path, present), "bindingConditions and bindingFailureConditions must be set together", hint, key=True
        )
        return
    errors = ErrorList()
    binding_conditions(errors, "", dra.binding_conditions, dra.binding_failure_conditions)
    for error in errors:
        member, _, index = error.path.removeprefix(".").removesuffix("]").partition("[")
        place: Path = (*path, member, int(index)) if index else (*path, member)
        document.at(place, f"no API server accepts this: {error.message}")


def _amount(document: Document, path: Path, written: _Amount) -> Quantity | None:
    """Return an amount; None after a finding."""
    try:
        amount = Quantity.parse(str(written))
    except QuantityError:
        document.at(path, f"{written} is not an amount", "write it as Kubernetes does: 40Gi, 25G, 100, 500m")
        return None
    if amount.sign <= 0:
        document.at(path, f"{written} is not more than nothing")
        return None
    return amount


def _text(written: _Amount | UnsetType) -> str:
    return "" if written is UNSET else str(written)
