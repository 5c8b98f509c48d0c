"""The pool that a node publishes: what is offered, as slices of resource.k8s.io devices.

One pool, named like the node: first the slices of shared counters, then those of devices. The keys of taints begin with
the driver's name:
- `unhealthy`: the effect is the resource's setting
- `unavailable`: the configuration requires something that the device lacks, or no longer offers it
- `withheld`: an administrator has withheld the device
- `in-use`: a holder that the scheduler does not know has it: the device plugin API, or a claim from another
  configuration
"""

import re
from collections.abc import Set

from msgspec import structs

from dra_plugin.publishing.offers import Offered, Offers
from dra_plugin.publishing.slices.desired import DriverResources, Pool, Slice
from resourceapi.objects import v1

_MAX_LABEL_VALUE = 63  # characters of a taint's value, as of a label's
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9]+")


def driver_resources(
    offers: Offers, node: str, driver: str, leased: Set[str] = frozenset(), *, without_taints: bool = False
) -> DriverResources:
    """Return what `driver` publishes for `node`; a pool without devices has one slice without any.

    If the server drops taints (`without_taints`), devices with taints are left out, except those in `leased`: claims
    hold these names, and the scheduler must find them.
    """
    counters = tuple(Slice(shared_counters=sets) for sets in offers.counter_slices)
    published = [[_device(x, offers, driver) for x in group] for group in offers.slices]
    devices = tuple(
        Slice(devices=tuple(x for x in group if not (without_taints and x.taints and x.name not in leased)))
        for group in published
    )
    return DriverResources({node: Pool(slices=(*counters, *devices) or (Slice(),))})


def _device(offered: Offered, offers: Offers, driver: str) -> v1.Device:
    described, counters = offers.described(offered), offers.counters_of(offered.name)
    taints = _taints(offered, offers, driver)
    return structs.replace(described, consumes_counters=counters, taints=taints) if counters or taints else described


def _taints(offered: Offered, offers: Offers, driver: str) -> tuple[v1.DeviceTaint, ...]:
    """Return the taints of a device. They have no time: the server sets it, once."""
    taints: list[v1.DeviceTaint] = []
    health, policy = offered.device.health, offered.resource.dra.taint
    if not health.healthy and (policy != "none" or offers.is_gone(offered.name)):
        effect = v1.NO_SCHEDULE if policy == "none" else policy
        taints.append(v1.DeviceTaint(key=f"{driver}/unhealthy", value=label_value(health.reason), effect=effect))
    if reason := offered.device.unavailable:
        taints.append(v1.DeviceTaint(key=f"{driver}/unavailable", value=label_value(reason), effect=v1.NO_SCHEDULE))
    if reason := offered.device.withheld:
        taints.append(v1.DeviceTaint(key=f"{driver}/withheld", value=label_value(reason), effect=v1.NO_SCHEDULE))
    if (held := offers.in_use(offered.name)) is not None:
        taints.append(v1.DeviceTaint(key=f"{driver}/in-use", value=held.api, effect=v1.NO_SCHEDULE))
    return tuple(taints)


def label_value(text: str) -> str:
    """Return the beginning of a text as a label value, in whole words, without any part in brackets."""
    value = _NOT_IN_LABELS.sub("-", text.partition(" (")[0]).strip("-")
    if len(value) <= _MAX_LABEL_VALUE:
        return value
    cut, dash, _ = value[: _MAX_LABEL_VALUE + 1].rpartition("-")
    return cut if dash else value[:_MAX_LABEL_VALUE]
