"""Compute accelerators that have a class of their own: accel (NPUs, Gaudi, AIC100, XDNA), habanalabs, Neuron, Coral."""

import re
from collections.abc import Iterator, Mapping
from functools import partial

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.readers.place import Places
from hostdevices.readers.reader import Finding, Reader, each, entries
from hostdevices.readers.sysfs import devnodes, known, natural, text

_CLASSES = ("accel", "habanalabs", "neuron_device", "apex")
_CONTROL = re.compile(r"(?:accel|hl)_controlD([0-9]+)")  # Gaudi's second node of the same card
_NUMBER = re.compile(r"[0-9]+$")


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per accelerator that has a node."""
    places = Places(host)
    for name in _CLASSES:
        found = {path: _CONTROL.fullmatch(path.rpartition("/")[2]) for path in entries(host, f"/sys/class/{name}")}
        controls = {control[1]: path for path, control in found.items() if control}
        cards = (path for path, control in found.items() if not control)
        yield from each(cards, partial(_card, host, places, name, controls))


def _card(host: Host, places: Places, class_name: str, controls: Mapping[str, str], syspath: str) -> Device | None:
    name = syspath.rpartition("/")[2]
    place = places.of(syspath)
    identity, within = places.identify("accel", place)
    nodes = devnodes(host, syspath)
    if not nodes:
        return None
    index = _NUMBER.search(name)
    if index and index[0] in controls:
        nodes += devnodes(host, controls[index[0]])
    attributes: dict[str, AttributeValue | None] = {
        "name": name,
        **place.attributes,
        "type": class_name,
        "model": text(host, f"{syspath}/device/card_type") or text(host, f"{syspath}/device/device_type"),
        "module": natural(host, f"{syspath}/device/module_id"),
    }
    return Device(
        id=identity,
        kind="accel",
        name=name,
        syspath=syspath,
        attributes=known(attributes),
        devnodes=nodes,
        numa_nodes=place.numa_nodes,
        within=within,
    )


ACCEL = Reader("accel", frozenset(_CLASSES), read)
