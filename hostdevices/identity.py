"""Device ids: the strongest stable property of a device, written as a DNS label.

This is a serial number, a PCI address, a USB port chain, a uuid or a singleton's name, and never a number that the
kernel assigns (`card1`, `devnum 7`). The kubelet documents 63 characters for a device id and DRA demands a DNS label.
"""

import re
from collections.abc import Iterable

MAX_LENGTH = 63
PORT = "port"
"""The first fact of an id that denotes a USB port, whichever device is plugged in there."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DIGEST = 10  # hexadecimal characters: 40 bits distinguish ids with the same readable part


def device_id(kind: str, *facts: str) -> str:
    """Join `kind` and `facts` to an id, `("pci", "0000:3b:00.0")` -> `pci-0000-3b-00-0`.

    Facts that are no valid label (upper case, other characters than separators, too long) are folded, and a digest of
    the original keeps different facts apart.
    """
    raw = "-".join((kind, *facts))
    label = re.sub(r"[^a-z0-9]+", "-", raw.lower()).strip("-")
    if re.sub(r"[:._/-]", "-", raw) == label and len(label) <= MAX_LENGTH:
        return label
    import hashlib  # imported here: it loads OpenSSL

    digest = hashlib.sha256(raw.encode()).hexdigest()[:_DIGEST]
    return f"{label[: MAX_LENGTH - _DIGEST - 1].rstrip('-')}-{digest}"


def port_id(kind: str, ids: Iterable[str]) -> str:
    """Return the id among these that a device of `kind` has by its USB port alone; empty if there is none."""
    return next((x for x in ids if x.startswith(f"{kind}-{PORT}-")), "")


def is_device_id(text: str) -> bool:
    """Return whether `text` is a DNS label of at most 63 characters."""
    return len(text) <= MAX_LENGTH and _LABEL.fullmatch(text) is not None
