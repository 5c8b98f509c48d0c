"""The node as a drawing: a box for each NUMA node, in it a row for each PCI root, in it a tile for each device.

Rules:
1. Colour is never the only sign: an unhealthy tile has a mark and the reason, a leased one is hatched and has a name.
2. A screen reader gets the same as a list; the label of each tile is complete. Dark and light follow the user's
   setting.
3. Nothing is loaded from elsewhere. At most `MAX_DEVICES` tiles are drawn, and the last one has the number of the
   others.
"""

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from hostdevices.printable import escaped, printable
from nodeplug.topology.layout import Item, NumaNode

MAX_DEVICES: Final = 2000
_WIDTH, _MARGIN, _GAP = 1000, 16, 8
_TILE_WIDTH, _TILE_HEIGHT = 228, 78
_PER_ROW = (_WIDTH - 4 * _MARGIN + _GAP) // (_TILE_WIDTH + _GAP)
_HEADING = 26
_MAX_LINE_LENGTH = 29  # characters of a line in a tile
_MARKS = {"healthy": "", "unavailable": "– ", "unhealthy": "⚠ "}
_STYLE = """
svg { font: 12px system-ui, sans-serif } .name { font-weight: 600 } .heading { font-size: 15px; font-weight: 600 }
text { fill: #1a1a1a } .paper { fill: #ffffff } .box { fill: #f3f5f7; stroke: #5c6670 } .tile { stroke: #5c6670 }
.healthy { fill: #d3f0da } .unavailable { fill: #e3e6ea } .unhealthy { fill: #ffd9d4; stroke-width: 2.5 }
.hatch { stroke: #1a1a1a; stroke-opacity: .22; stroke-width: 4 }
.leased text { paint-order: stroke; stroke-width: 4; stroke-linejoin: round }
.on-healthy text { stroke: #d3f0da } .on-unavailable text { stroke: #e3e6ea } .on-unhealthy text { stroke: #ffd9d4 }
@media (prefers-color-scheme: dark) {
text { fill: #f2f4f6 } .paper { fill: #14171a } .box { fill: #20252a; stroke: #9aa5b1 } .tile { stroke: #9aa5b1 }
.healthy { fill: #1d4a2b } .unavailable { fill: #3a4149 } .unhealthy { fill: #6e2219 } .hatch { stroke: #ffffff }
.on-healthy text { stroke: #1d4a2b } .on-unavailable text { stroke: #3a4149 } .on-unhealthy text { stroke: #6e2219 }
}
"""


def draw(nodes: Sequence[NumaNode], name: str) -> str:
    """Return the drawing of the node with this name."""
    total = sum(len(root.items) for numa in nodes for root in numa.roots)
    leased = sum(item.is_leased for numa in nodes for root in numa.roots for item in root.items)
    unhealthy = sum(item.state == "unhealthy" for numa in nodes for root in numa.roots for item in root.items)
    title = f"Devices of {name}" if name else "Devices"
    summary = f"devices: {total}, NUMA nodes: {len(nodes)}, leased: {leased}, unhealthy: {unhealthy}"
    body: list[str] = []
    y, left = 2 * _MARGIN + _HEADING, MAX_DEVICES
    for numa in nodes:
        drawn, height = _numa(numa, y, left)
        left = max(0, left - sum(len(root.items) for root in numa.roots))
        body += drawn
        y += height + _MARGIN
    if total > MAX_DEVICES:
        body.append(_text(_MARGIN, y + 12, f"and {total - MAX_DEVICES} more: nodeplug status -o wide lists all"))
        y += _HEADING
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="group"'
            ' aria-labelledby="title summary">',
            f'<title id="title">{_xml(title)}</title>',
            f'<desc id="summary">{_xml(summary)}</desc>',
            f"<style>{_STYLE}</style>",
            '<defs><pattern id="leased" width="10" height="10" patternUnits="userSpaceOnUse"'
            ' patternTransform="rotate(45)"><path class="hatch" d="M0 0V10"/></pattern></defs>',
            f'<rect class="paper" width="{_WIDTH}" height="{y}"/>',
            _text(_MARGIN, _MARGIN + 14, title, "heading"),
            _text(_MARGIN, _MARGIN + 32, f"{summary}. Hatched: leased. ⚠ unhealthy, – unavailable."),
            *body,
            "</svg>\n",
        )
    )


def _numa(numa: NumaNode, top: int, left: int) -> tuple[list[str], int]:
    """Return the elements of a NUMA node and its height; at most `left` tiles."""
    heading = f"NUMA node {numa.name}" if numa.name else "No NUMA node"
    y = top + _HEADING
    inner: list[str] = []
    for root in numa.roots:
        items = root.items[:left]
        left -= len(items)
        if not items:
            continue
        place = root.name or "not on PCI"
        inner.append(f'<g role="list" aria-label={_attribute(f"{heading}, {place}")}>')
        inner.append(_text(2 * _MARGIN, y + 14, place))
        y += _HEADING - 6
        for number, item in enumerate(items):
            row, column = divmod(number, _PER_ROW)
            inner.append(_tile(item, 2 * _MARGIN + column * (_TILE_WIDTH + _GAP), y + row * (_TILE_HEIGHT + _GAP)))
        inner.append("</g>")
        y += -(-len(items) // _PER_ROW) * (_TILE_HEIGHT + _GAP) + _GAP
    height = y - top
    box = f'<rect class="box" x="{_MARGIN}" y="{top}" width="{_WIDTH - 2 * _MARGIN}" height="{height}" rx="6"/>'
    return [box, _text(2 * _MARGIN, top + 19, heading, "heading"), *inner], height


def _tile(item: Item, x: int, y: int) -> str:
    size = f'x="{x}" y="{y}" width="{_TILE_WIDTH}" height="{_TILE_HEIGHT}" rx="4"'
    hatch = f'<rect {size} fill="url(#leased)"/>' if item.is_leased else ""
    leased = ", ".join(item.holders) or "leased" if item.is_leased else ""
    below = [", ".join(item.resources) or item.kind, leased, item.reason if item.state != "healthy" else ""]
    rows = [_text(x + 8, y + 18, f"{_MARKS[item.state]}{item.id}", "name")]
    rows += [_text(x + 8, y + 35 + 17 * number, text) for number, text in enumerate(filter(None, below))]
    words = _attribute(str(item))
    ground = f' class="leased on-{item.state}"' if item.is_leased else ""  # keeps the hatching from crossing the text
    return (
        f'<g role="listitem" aria-label={words}{ground}><title>{_xml(str(item))}</title>'
        f'<rect class="tile {item.state}" {size}/>{hatch}{"".join(rows)}</g>'
    )


def _text(x: int, y: int, text: str, style: str = "") -> str:
    if not text:
        return ""
    is_long = bool(style != "heading" and len(text) > _MAX_LINE_LENGTH and x > _MARGIN)
    cut = f"{text[: _MAX_LINE_LENGTH - 1]}…" if is_long else text
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x}" y="{y}"{kind} aria-hidden="true">{_xml(cut)}</text>'


def _xml(text: str) -> str:
    return escape(escaped(text))


def _attribute(text: str) -> str:
    return quoteattr(printable(text, 1000))
