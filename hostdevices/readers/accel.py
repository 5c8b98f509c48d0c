"""Compute accelerators that have a class of their own.

Classes: accel (NPUs, Gaudi, AIC100, XDNA), habanalabs, Neuron, Coral (apex), Hailo, Tenstorrent.

Source for the last two: hailo-ai/hailort-drivers, linux/pcie; tenstorrent/tt-kmd, docs/sysfs-attributes.md.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.readers.location import SysfsLocations
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.signals import state
from hostdevices.readers.sysfs import devnodes, known, natural, text

_CLASSES = ("accel", "habanalabs", "neuron_device", "apex", "hailo_chardev", "hailo1x", "tenstorrent")
_MODELS = ("device/card_type", "device/device_type", "tt_card_type")
_CONTROL = re.compile(r"(?:accel|hl)_controlD([0-9]+)")  # Gaudi's second node of the same card
_NUMBER = re.compile(r"[0-9]+$")


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per accelerator that has a node."""
    locations = SysfsLocations(host)
    for name in _CLASSES:
        found = {path: _CONTROL.fullmatch(path.rpartition("/")[2]) for path in entries(host, f"/sys/class/{name}")}
        controls = {control[1]: path for path, control in found.items() if control}
        cards = (path for path, control in found.items() if not control)
        yield from each(cards, partial(_card, host, locations, name, controls))


def _card(
    host: Host, locations: SysfsLocations, class_name: str, controls: Mapping[str, str], syspath: str
) -> Device | None:
    name = syspath.rpartition("/")[2]
    location = locations.of(syspath)
    identity, parents = locations.identify("accel", location)
    nodes = devnodes(host, syspath)
    if not nodes:
        return None
    index = _NUMBER.search(name)
    if index and index[0] in controls:
        nodes += devnodes(host, controls[index[0]])
    facts: dict[str, AttributeValue | None] = {
        "name": name,
        **location.attributes,
        "type": class_name,
        "model": next(filter(None, (text(host, f"{syspath}/{file}") for file in _MODELS)), None),
        "module": natural(host, f"{syspath}/device/module_id"),
        "index": int(index[0]) if index else None,
    }
    return Device(
        id=identity,
        kind="accel",
        name=name,
        syspath=syspath,
        attributes=known(facts),
        devnodes=nodes,
        numa_nodes=location.numa_nodes,
        parents=parents,
    )


ACCEL = Reader(
    "accel",
    frozenset(_CLASSES),
    read,
    one_per="accel, habanalabs, neuron, apex, hailo or tenstorrent class device",
    attributes=attributes("""
        type    text     the class in sysfs: "accel", "habanalabs"
        model   text
        module  integer  of a Gaudi: its place on the board
        index   integer  the number in the name of the node
    """),
    presets={"accel": PresetFacts("compute accelerators: accel class, Gaudi, Neuron, Coral, Hailo, Tenstorrent")},
    signals=state("device/status", "operational"),
    is_polled=True,
)
READERS = (ACCEL,)
