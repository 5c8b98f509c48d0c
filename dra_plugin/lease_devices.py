"""Devices that claims hold and that were not offered since the daemon started, rebuilt from the claims' leases."""

from collections.abc import Iterable, Mapping, Set

from msgspec import structs

from checkpoint import Lease
from dra_plugin.driver import API
from dra_plugin.preparing.claim_plan import name_of
from dra_plugin.preparing.claim_record import Record, record_of
from dra_plugin.preparing.metadata import DeviceMetadata
from dra_plugin.publishing.attributes import OWN_ATTRIBUTES
from dra_plugin.publishing.offers import Offered
from hostdevices import AttributeValue, Version
from resourceapi.objects import DecodeError, from_dict, v1
from resources.resource import Resource
from resources.selector import NOTHING


def devices_from_leases(names: Set[str], leases: Iterable[Lease], resources: Iterable[Resource]) -> dict[str, Offered]:
    """Return the devices that claims hold under these names; a name without a readable lease record is left out.

    A device has the attributes that it had when the claim was prepared: Multus finds the devices of a pod by them, and
    the pod's sandbox can be recreated at any time. Its resource has today's configuration, which decides whether pods
    are evicted.
    """
    known = {resource.name: resource for resource in resources}
    found: dict[str, Offered] = {}
    matching = (lease for lease in leases if lease.api == API and name_of(lease.unit) in names)
    for lease in {lease.record: lease for lease in matching}.values():  # a claim's leases have one record
        if (record := record_of(lease)) is None:
            continue
        attributes = _attributes(record)
        for each in record.allocated:
            if each.name in names and each.name not in found:
                resource = known.get(each.resource) or Resource(each.resource, NOTHING)
                device = structs.replace(each.seen.device, attributes=attributes.get(each.name, {}))
                found[each.name] = Offered(each.name, resource, device, each.partition)
    return found


def _attributes(record: Record) -> Mapping[str, Mapping[str, AttributeValue]]:
    """Return the attributes in the claim's metadata, by device name, without those that every device has."""
    found: dict[str, Mapping[str, AttributeValue]] = {}
    for metadata in record.metadata:
        try:
            described = from_dict(DeviceMetadata, metadata.content)
        except DecodeError:  # written by another version of nodeplug
            continue
        for device in (device for request in described.requests for device in request.devices):
            values = {key: _value(attribute) for key, attribute in device.attributes.items()}
            own = {key: value for key, value in values.items() if value is not None and key not in OWN_ATTRIBUTES}
            found.setdefault(device.name, own)
    return found


def _value(attribute: v1.DeviceAttribute) -> AttributeValue | None:
    if attribute.version_value is not None:
        return Version(attribute.version_value)
    return next((x for x in (attribute.string_value, attribute.int_value, attribute.bool_value) if x is not None), None)
