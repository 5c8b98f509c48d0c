"""Presets: names for commonly used classes of devices. The readers of the devices declare them."""

from collections.abc import Mapping

from msgspec import Struct

from hostdevices.readers import READERS
from hostdevices.readers.reader import PresetFacts, Value
from resources.selector import AllOf, AnyOf, Attribute, Kinds, Not, Preset, Selection


class PresetEntry(Struct, frozen=True):
    """A preset: `selector` for the program, `help` for people.

    `is_dangerous`: only a resource with `dangerous: true` gets any of these.
    """

    selector: Selection
    help: str
    is_dangerous: bool = False


def preset(name: str) -> Preset:
    """Return the selector with this name. Raises `KeyError` if there is none."""
    return Preset(name, PRESETS[name].selector)


_LACKING_REASONS = {
    "driver": "it decodes, encodes or converts images, and captures none",
    "partitioned": "it is partitioned (MIG, SR-IOV), and its parts are devices of their own",
}
"""Why a preset excludes the devices with an attribute, if the attribute does not explain it."""


def _selector(kind: str, facts: PresetFacts) -> Selection:
    selectors: list[Selection] = [*_attributes(facts.having)]
    unwanted = _attributes(facts.lacking)
    if unwanted:
        because = next((words for name, words in _LACKING_REASONS.items() if name in facts.lacking), "")
        selectors.append(Not(unwanted[0] if len(unwanted) == 1 else AnyOf(unwanted), because))
    return AllOf((Kinds((kind,)), *selectors)) if selectors else Kinds((kind,))


def _attributes(facts: Mapping[str, Value | tuple[Value, ...]]) -> tuple[Attribute, ...]:
    return tuple(Attribute(name, value if isinstance(value, tuple) else (value,)) for name, value in facts.items())


PRESETS: Mapping[str, PresetEntry] = {
    name: PresetEntry(
        _selector(reader.kind, facts), facts.help + (" (dangerous)" if facts.is_dangerous else ""), facts.is_dangerous
    )
    for reader in READERS
    for name, facts in reader.presets.items()
}
