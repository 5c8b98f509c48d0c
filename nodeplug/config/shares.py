"""`sharesOf`: different numbers of shares for devices of one resource."""

from msgspec import UNSET

from deviceplugin.limits import list_too_long_reason
from nodeplug.config.document import Document, Path
from nodeplug.config.schema import SharesEntry
from nodeplug.config.selectors import selection
from resources.resource import Shares


def shares_entry(document: Document, path: Path, entry: SharesEntry) -> Shares:
    """Return the shares of an entry at `path`; findings go to the document."""
    selector = None if entry.select is UNSET else selection(document, (*path, "select"), entry.select)
    if (entry.count is UNSET) == (entry.memory is UNSET):
        document.at(path, "an entry needs exactly one of `count` and `memory`", "give either `count` or `memory`")
        return Shares(selector)
    if entry.memory is UNSET:
        assert entry.count is not UNSET
        if why := list_too_long_reason(1, entry.count):
            document.at((*path, "count"), why)
        return Shares(selector, entry.count)
    return Shares(selector, memory=_bytes(document, (*path, "memory"), entry.memory))


def _bytes(document: Document, path: Path, written: int | str) -> int:
    """Return an amount of memory in bytes; at least one."""
    from resourceapi.objects import Quantity, QuantityError  # imported here: only shares by memory need it

    try:
        amount = Quantity.parse(str(written))
    except QuantityError:
        document.at(path, f"{written} is not an amount", "write it as in 10Gi")
        return 1
    if not Quantity.parse("1Mi") <= amount <= Quantity.parse("1Pi"):
        document.at(path, f"a share of {written} of memory is too small", "write it as in 10Gi")
        return 1
    return amount.value()
