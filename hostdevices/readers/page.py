"""The catalogue as a page: `python -m hostdevices.readers.page docs/device-classes.md` writes it."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from hostdevices.readers import BY_KIND
from hostdevices.readers.location import EVERYWHERE, ON_PCI, ON_USB
from hostdevices.readers.reader import Attribute, Reader

_HEAD = """\
# Device classes

What `nodeplug discover` finds, class by class: written by `python -m hostdevices.readers.page docs/device-classes.md`
from the readers themselves. [Adding one](add-a-device-class.md) is a file.

An attribute is there only where the host says it; of booleans, some are always there. Ids of vendors and models
(hexadecimal) are lower-case digits without 0x, in quotes where YAML would take them for numbers. Texts are cut at 64
bytes. A preset selects the kind, or those of the kind that it says. Health is sampled every few seconds where it says
so here, else with each rescan; what sits on a PCI function is also unhealthy when that has lost power, does not answer,
is too hot, or its PCIe errors grow.
"""


def page() -> str:
    """Return the page."""
    return "\n".join((_HEAD, *_common(), *(line for reader in BY_KIND.values() for line in _section(reader))))


def _common() -> Iterator[str]:
    for title, table in (
        ("Every kind", EVERYWHERE),
        ("Kinds that sit on a PCI function (`bus` pci)", ON_PCI),
        ("Kinds that sit on a USB device (`bus` usb)", ON_USB),
    ):
        yield f"## {title}\n"
        yield from _table(table)


def _section(reader: Reader) -> Iterator[str]:
    yield f"## {reader.kind}\n"
    facts = [f"One device per {reader.one_per}."]
    if reader.presets:
        facts.append(f"Presets: {', '.join(f'`{name}`' for name in reader.presets)}.")
    if reader.is_polled:
        facts.append("Health is sampled.")
    if not reader.can_be_renumbered:
        facts.append("Its nodes keep their names.")
    yield " ".join(facts) + "\n"
    yield from _table(reader.attributes)


def _table(attributes: Mapping[str, Attribute]) -> Iterator[str]:
    if attributes:
        yield "| attribute | type | |"
        yield "|---|---|---|"
        yield from (f"| `{name}` | {attribute.type} | {attribute.about} |" for name, attribute in attributes.items())
        yield ""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
