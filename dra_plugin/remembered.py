"""Devices that claims hold and that no scan has found since we started, as the claims' leases remember them."""

from collections.abc import Iterable

from checkpoint import Lease
from dra_plugin.driver import API
from dra_plugin.preparing.claim_plan import name_of
from dra_plugin.preparing.claim_record import record_of
from dra_plugin.publishing.offers import Offered
from resources.resource import Resource
from resources.selector import NOTHING


def remembered(name: str, leases: Iterable[Lease], resources: Iterable[Resource]) -> Offered | None:
    """Return what claims hold under the name that slices gave it, without attributes; None where nobody knows.

    What the configuration says of its resource today holds for it: whether its pods are ended.
    """
    records = (record_of(lease) for lease in leases if lease.api == API and name_of(lease.unit) == name)
    allocated = (each for record in records if record is not None for each in record.allocated if each.name == name)
    for each in allocated:
        resource = next((x for x in resources if x.name == each.resource), None)
        return Offered(name, resource or Resource(each.resource, NOTHING), each.seen.device, each.partition)
    return None
