"""The table of `nodeplug allocate`: each node's devices, or first the reason and then the numbers."""

from collections.abc import Sequence

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controlplane.structured.explain import NodeReport, RequestReport
from hostdevices.printable import escaped


def show(
    reports: Sequence[NodeReport], before: Sequence[NodeReport] | None, claims: Sequence[str] | None = None
) -> None:
    """Print the nodes; with `before`, print first what a what-if changes.

    With the names of the claims, each node is printed separately, with the claim of each device.
    """
    console = Console(highlight=False, soft_wrap=True)
    if before is not None:
        _show_change(console, before, reports)
    _show_summary(console, reports)
    for same in _alike(reports) if claims is None else [[report] for report in reports]:
        report, names = same[0], _names(same)
        if report.allocations is not None:
            console.print(Text.assemble("\n", _text(names, "bold green"), "  fits"))
            console.print(_devices(report, claims))
            continue
        console.print(Text.assemble("\n", _text(names, "bold red"), _text(f"  {report.reason}")))
        for fault in report.pools:
            console.print(_text(f"  {fault}", "yellow"))
        if report.requests:
            console.print(_requests(report.requests))


def _alike(reports: Sequence[NodeReport]) -> list[list[NodeReport]]:
    """Group nodes with equal reports, so that each report is printed once."""
    groups: list[list[NodeReport]] = []
    for report in reports:
        same = next((group for group in groups if replace(group[0], node=report.node) == report), None)
        if same is None:
            groups.append([report])
        else:
            same.append(report)
    return groups


def _names(reports: Sequence[NodeReport]) -> str:
    names = [report.node for report in reports]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _show_change(console: Console, before: Sequence[NodeReport], after: Sequence[NodeReport]) -> None:
    was = {report.node for report in before if report.allocations is not None}
    now = {report.node for report in after if report.allocations is not None}
    parts = []
    if now - was:
        parts.append(f"would fit now: {', '.join(sorted(now - was))}")
    if was - now:
        parts.append(f"would no longer fit: {', '.join(sorted(was - now))}")
    console.print(_text(f"what if: {'; '.join(parts) or 'the same nodes fit'}", "bold"))


def _show_summary(console: Console, reports: Sequence[NodeReport]) -> None:
    fits = [report.node for report in reports if report.allocations is not None]
    total = f"{len(reports)} node{'' if len(reports) == 1 else 's'}"
    if fits:
        console.print(_text(f"{len(fits)} of {total} can serve the claims: {', '.join(fits)}", "bold"))
    else:
        reasons = list(dict.fromkeys(report.reason for report in reports))
        more = " (other nodes: see below)" if len(reasons) > 1 else ""
        console.print(_text(f"none of {total} can serve the claims: {reasons[0]}{more}", "bold"))


def _devices(report: NodeReport, claims: Sequence[str] | None) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for number, allocation in enumerate(report.allocations or ()):
        claim = () if claims is None else (_text(f"  {claims[number]}"),)
        for result in allocation.devices.results:
            notes = ["admin access"] if result.admin_access else []
            notes += [f"share {result.share_id}"] if claims is not None and result.share_id else []
            notes += [f"{name} {amount}" for name, amount in result.consumed_capacity.items()]
            device = f"{result.driver}/{result.pool}/{result.device}"
            table.add_row(*claim, _text(f"  {result.request}"), _text(device), _text(", ".join(notes), "dim"))
    return table


def _requests(requests: Sequence[RequestReport]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for request in requests:
        wanted = "all" if request.wanted is None else str(request.wanted)
        table.add_row(
            _text(f"  {request.claim} {request.request}"),
            f"wants {wanted}",
            f"{request.considered} considered",
            f"{request.left} left",
        )
        for removal in request.removed:
            table.add_row("", "", f"- {removal.count}", _text(f"{removal.rule}  {removal.detail}".rstrip(), "dim"))
    return table


def _text(text: str, style: str = "") -> Text:
    """Return foreign text without interpreting it as markup."""
    return Text(escaped(text), style)
