"""The node as lines: NUMA nodes, PCI roots and devices below each other, one device a line."""

from collections.abc import Iterator, Sequence

from hostdevices.printable import escaped
from nodeplug.topology.layout import Item, NumaNode

_MARKS = {"healthy": "+", "unavailable": "-", "unhealthy": "!"}
LEGEND = "+ healthy   - unavailable   ! unhealthy   [leased]"


def lines(nodes: Sequence[NumaNode]) -> Iterator[str]:
    """Yield the lines of the picture."""
    for numa in nodes:
        yield f"NUMA node {numa.name}" if numa.name else "no NUMA node"
        for root in numa.roots:
            yield f"  {root.name}" if root.name else "  not on PCI"
            yield from (f"    {escaped(_line(item))}" for item in root.items)
    yield ""
    yield LEGEND


def _line(item: Item) -> str:
    leased = f"  [{', '.join(item.holders) or 'leased'}]" if item.is_leased else ""
    reason = f"  {item.state}: {item.reason}" if item.reason else ""
    return f"{_MARKS[item.state]} {item.id}  {', '.join(item.resources) or item.kind}{leased}{reason}"
