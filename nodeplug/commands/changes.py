"""The text of a configuration's changes: for `nodeplug reload` and `nodeplug check --against`."""

from collections.abc import Iterator

from hostdevices.printable import printable
from nodeplug.commands.columns import aligned
from nodeplug.control.changes import Changes

_MAX_VALUE_LENGTH = 60  # the most characters of a value; json has all


def change_lines(found: Changes) -> Iterator[str]:
    """Yield what changes, and the effect on the leases that are concerned."""
    yield from difference_lines(found)
    if changed := [x for x in found.leases if x.change]:
        yield from aligned(
            ("LEASED", "RESOURCE", "HOLDER", "WHAT BECOMES OF IT"),
            ((x.unit, x.resource, x.holder or "not reported yet", str(x)) for x in changed),
        )
    elif found.leases:
        yield "nothing changes for what is leased"


def difference_lines(found: Changes) -> Iterator[str]:
    """Yield what changes, field by field."""
    details = {(x.where, x.field) for x in found.fields}
    for text in found.differences:
        if not any(text.startswith(f"{where} (") for where, _ in details):
            yield text
    for x in found.fields:
        before, after = (printable(text, _MAX_VALUE_LENGTH) or "not set" for text in (x.before, x.after))
        yield f"{x.where}: {x.field}: {before} -> {after}"
    if found.needs_restart:
        yield "the daemon restarts with it, in the same process; pods keep their devices"
