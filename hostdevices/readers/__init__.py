"""One reader per device class; `READERS` is the catalogue in the order in which a scan runs them."""

from hostdevices.readers.misc import MISC
from hostdevices.readers.reader import Finding, Reader

READERS: tuple[Reader, ...] = (MISC,)

__all__ = ["READERS", "Finding", "Reader"]
