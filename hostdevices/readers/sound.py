"""Sound cards: all nodes of a card are one device; all cards share the sequencer's and the timer's."""

import re
from collections.abc import Iterator

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.readers.location import SysfsLocations
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.sysfs import devnodes, known, natural_order, shared_node, text

_CARD = re.compile(r"card[0-9]+")
_NODE = re.compile(r"(controlC|pcmC|midiC|hwC|ump|comprC)[0-9]+.*")


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per sound card that has nodes."""
    locations = SysfsLocations(host)

    def card(syspath: str) -> Device | None:
        name = syspath.rpartition("/")[2]
        location = locations.of(syspath)
        identity, parents = locations.identify("sound", location)
        children = sorted(filter(_NODE.fullmatch, host.list(syspath)), key=natural_order)
        nodes = tuple(node for child in children for node in devnodes(host, f"{syspath}/{child}"))
        if not nodes:
            return None
        facts: dict[str, AttributeValue | None] = {
            "name": name,
            **location.attributes,
            "card": text(host, f"{syspath}/id"),
            "capture": any(node.path.startswith("/dev/snd/pcm") and node.path.endswith("c") for node in nodes),
            "playback": any(node.path.startswith("/dev/snd/pcm") and node.path.endswith("p") for node in nodes),
        }
        return Device(
            id=identity,
            kind="sound",
            name=name,
            syspath=syspath,
            attributes=known(facts),
            devnodes=nodes + shared_node(host, "/dev/snd/seq") + shared_node(host, "/dev/snd/timer"),
            numa_nodes=location.numa_nodes,
            parents=parents,
        )

    yield from each(entries(host, "/sys/class/sound", lambda x: _CARD.fullmatch(x) is not None), card)


SOUND = Reader(
    "sound",
    frozenset({"sound", "usb"}),
    read,
    one_per="sound card, all its nodes",
    attributes=attributes("""
        card      text     the id of the card: "PCH"
        capture   boolean  it can record
        playback  boolean  it can play
    """),
    presets={"sound": PresetFacts("sound cards, each with all its nodes")},
)
READERS = (SOUND,)
