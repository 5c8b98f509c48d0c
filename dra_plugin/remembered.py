"""Devices that claims hold and that no scan has found since we started, as the claims' leases remember them."""

from collections.abc import Iterable, Set

from checkpoint import Lease
from dra_plugin.driver import API
from dra_plugin.preparing.claim_plan import name_of
from dra_plugin.preparing.claim_record import record_of
from dra_plugin.publishing.offers import Offered
from resources.resource import Resource
from resources.selector import NOTHING


def remembered(names: Set[str], leases: Iterable[Lease], resources: Iterable[Resource]) -> dict[str, Offered]:
    """Return what claims hold under names that slices gave it, without attributes; nothing of what nobody knows.

    What the configuration says of its resource today holds for it: whether its pods are ended.
    """
    known = {resource.name: resource for resource in resources}
    found: dict[str, Offered] = {}
    for lease in leases:
        name = name_of(lease.unit)
        if lease.api != API or name not in names or name in found or (record := record_of(lease)) is None:
            continue
        for each in record.allocated:
            if each.name == name:
                resource = known.get(each.resource) or Resource(each.resource, NOTHING)
                found.setdefault(name, Offered(name, resource, each.seen.device, each.partition))
    return found
