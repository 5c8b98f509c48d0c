"""Masks: serial numbers, hardware addresses and UUIDs of a recording are replaced before it is published.

The same value gets the same replacement everywhere, also in names and link targets, so that references stay valid. The
replacement has the form of the original (`00:00:00:00:00:03`) and contains nothing of it.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import structs

from hostdevices.recording import Entry

# The names of attributes and variables in which the kernel shows identifiers of a single piece of hardware.
_ATTRIBUTES = re.compile(
    r"(.*_)?(serial|serial_number|serial_no|serialnr|unique_id|uniq|uid|wwid|wwn|eui|nguid|uuid|guid|asset_tag|vpd_pg8[03]"
    r"|phys_switch_id|phys_port_id)"
)
_VARIABLES = re.compile(r"^(?:[A-Z0-9_]*(?:SERIAL|UUID|UNIQ|WWN|WWID)[A-Z0-9_]*)=\"?([^\"\n]*)\"?$", re.MULTILINE)

# Forms that identify hardware in any file.
_FORMS = re.compile(
    r"(?<![0-9A-Za-z])(?:"
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"  # UUID
    r"|(?:[0-9a-fA-F]{2}[:-]){5,}[0-9a-fA-F]{2}"  # MAC, InfiniBand hardware address
    r"|(?:[0-9a-fA-F]{4}:){3,7}[0-9a-fA-F]{4}"  # InfiniBand GUID and GID
    r"|(?:0x)?[0-9a-fA-F]{32}"  # the same without separators, IPv6 addresses of /proc
    r"|(?:naa|eui|nvme|t10)\.[0-9A-Za-z._-]+"  # world-wide names of disks
    r")(?![0-9A-Za-z])"
)
_HARDWARE_ADDRESS = re.compile(r"(?:[0-9a-f]{2}:){5,}[0-9a-f]{2}")
_MIN_LENGTH = 4  # a shorter "serial number" identifies nothing and would match everywhere
_MIN_LENGTH_IN_WORDS = 8  # a value of this length is also replaced inside of words: nqn.2014...:<serial>, enx<MAC>
_MAX_BINARY_BYTES = 64  # of a binary file: the standard header of PCI configuration space; serial numbers come after it


class Mask:
    """The confidential values of a recording, and the replacement of each."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        """Find the values."""
        values = sorted({value for entry in entries for value in _values(entry)})
        self._instead = {value: _pseudonym(value, number) for number, value in enumerate(values, start=1)}
        for value in filter(_HARDWARE_ADDRESS.fullmatch, values):
            self._instead[value.replace(":", "")] = self._instead[value].replace(":", "")
        longest_first = sorted(self._instead, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_anywhere, longest_first)))

    def apply(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return the entries without the values, sorted."""
        return sorted(map(self._masked, entries))

    def _masked(self, entry: Entry) -> Entry:
        if entry.what == "bytes" and len(entry.content) > _MAX_BINARY_BYTES * 4 // 3 + 4:
            entry = structs.replace(entry, what="there", content="")
        content = entry.content if entry.what == "bytes" else self._text(entry.content)
        return structs.replace(entry, path=self._text(entry.path), content=content)

    def _text(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._instead[found[0]], text) if self._instead else text


def _values(entry: Entry) -> Iterator[str]:
    texts = [entry.path] if entry.what == "bytes" else [entry.path, entry.content]
    for text in texts:
        yield from (found for found in _FORMS.findall(text) if set(found) - set("0fFx:-"))
    if entry.what != "text":
        return
    named = _VARIABLES.findall(entry.content)
    if _ATTRIBUTES.fullmatch(entry.path.rpartition("/")[2]):
        named.append(entry.content.strip())
    parents = set(entry.path.split("/"))  # a root hub has its controller's address as its serial number
    yield from (value for value in named if len(value) >= _MIN_LENGTH and value not in parents)


def _anywhere(value: str) -> str:
    """Return the expression that matches `value`; a short one as a whole word only."""
    return (
        re.escape(value)
        if len(value) >= _MIN_LENGTH_IN_WORDS
        else rf"(?<![0-9A-Za-z]){re.escape(value)}(?![0-9A-Za-z])"
    )


def _pseudonym(value: str, number: int) -> str:
    """Write `number` over the letters and digits of `value`, from the end, with zeros before it."""
    digits = iter(f"{number:x}"[::-1])
    return "".join(next(digits, "0") if character.isalnum() else character for character in reversed(value))[::-1]
