"""The catalogue as a page: `python -m hostdevices.readers.page docs/device-classes.md` writes it."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hostdevices.readers import BY_KIND
from hostdevices.readers.location import EVERYWHERE, ON_PCI, ON_USB
from hostdevices.readers.reader import Attribute, Reader

_HEAD = """\
# Device classes

This page lists what `nodeplug discover` finds, class by class. It is generated from the code, with
`python -m hostdevices.readers.page docs/device-classes.md`.
[Adding a device class](add-a-device-class.md) takes one file.

- A device has an attribute only if the host provides its value. A boolean that is described as "true if" is missing
  otherwise; other booleans are always there.
- Ids of vendors and models (hexadecimal) are lower-case digits without 0x. Put them in quotes if YAML would read them
  as numbers. Texts have at most 64 bytes.
- A preset selects all devices of a kind, or some of them.
- Health is sampled every few seconds if the class says so below, otherwise with each rescan. A device on a PCI
  function is also unhealthy when the function has lost power, does not answer or is too hot, or when its PCIe errors
  increase.
"""


def page() -> str:
    """Return the page."""
    small = [reader for reader in BY_KIND.values() if set(reader.attributes) == {"model"}]
    sections = (line for reader in BY_KIND.values() if reader not in small for line in _section(reader))
    return "\n".join((_HEAD, *_common(), *sections, *_small(small)))


def _common() -> Iterator[str]:
    for title, table in (
        ("Every kind", EVERYWHERE),
        ("Kinds on a PCI function (`bus` pci)", ON_PCI),
        ("Kinds on a USB device (`bus` usb)", ON_USB),
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
        facts.append("The names of its nodes never change.")
    yield " ".join(facts) + "\n"
    yield from _table(reader.attributes)


def _small(readers: Sequence[Reader]) -> Iterator[str]:
    yield "## Other kinds\n"
    yield "One device per device node of the class. The only attribute besides the common ones is `model`.\n"
    yield "| kind | preset | devices |"
    yield "|---|---|---|"
    for reader in readers:
        ((preset, facts),) = reader.presets.items()
        yield f"| `{reader.kind}` | `{preset}` | {facts.help}{' (dangerous)' if facts.is_dangerous else ''} |"
    yield ""


def _table(attributes: Mapping[str, Attribute]) -> Iterator[str]:
    if attributes:
        yield "| attribute | type | meaning |"
        yield "|---|---|---|"
        yield from (f"| `{name}` | {attribute.type} | {attribute.about} |" for name, attribute in attributes.items())
        yield ""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
