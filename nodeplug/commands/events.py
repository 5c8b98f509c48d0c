"""`nodeplug events`: past and new events of devices, leases, registrations and the configuration.

Exit codes: 0 shown, 1 too many clients follow already, 2 the command line is wrong, 4 no daemon answers.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from hostdevices.printable import escaped
from nodeplug.commands.examples import examples
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.running_daemon import ask, check_resource, clock, failure, state_option
from nodeplug.commands.structured import as_text
from nodeplug.control import client
from nodeplug.control.client import NotRunning
from nodeplug.control.events import MAX_SECONDS, Answer, Question
from nodeplug.control.protocol import Refusal
from telemetry import Event

_RETRY = 0.5  # seconds between questions to a daemon that does not answer
_HEADER = ("WHEN", "WHAT", "RESOURCE", "DEVICE", "MESSAGE")


@click.command(
    epilog=examples("nodeplug events", "nodeplug events --follow --warnings", "nodeplug events -o json | jq .events")
)
@state_option
@output_option
@click.option("-f", "--follow", is_flag=True, help="Continue with new events, until Ctrl-C.")
@click.option("--warnings", is_flag=True, help="Only events that may need action.")
@click.option("--resource", default="", help="Only events of this resource.")
def events(state: Path, output: Output, follow: bool, warnings: bool, resource: str) -> None:
    """Show the latest events, the oldest first.

    Events report devices that were plugged in or unplugged, became unhealthy or healthy again, were allocated or
    released; refused requests; the kubelet's restarts and registrations; and changes of the configuration. The daemon
    keeps the latest 500 in memory. With --follow, json prints a line for each event and yaml a document, and if the
    daemon ends, the command waits for the next one.
    """

    def is_selected(event: Event) -> bool:
        return (event.is_warning or not warnings) and resource in ("", event.resource)

    found = ask(state, Question(), Answer)
    selected = tuple(filter(is_selected, found.events))
    if resource and not follow and all(x.resource != resource for x in found.events):
        check_resource(state, resource)
    if not follow and output in ("json", "yaml"):
        shown = {"log": found.log, "latest": found.latest, "isIncomplete": found.is_incomplete, "events": selected}
        click.echo(as_text(shown, output), nl=False)
        return
    table = _Table(output)
    table.show(selected)
    if not follow:
        if not selected:
            what = "nothing to warn of" if warnings else "nothing"
            click.echo(f"{what} has happened{f' to {resource}' if resource else ''}", err=True)
        return
    try:
        for answer in _next(state, found):
            table.show(filter(is_selected, answer.events))
    except KeyboardInterrupt:
        return


def _next(state: Path, found: Answer) -> Iterator[Answer]:
    """Yield the answers after an answer, for ever."""
    is_away = False
    while True:
        question = Question(found.latest, found.log, MAX_SECONDS)
        try:
            answer = client.ask(state, question, Answer, MAX_SECONDS + client.TIMEOUT)
        except NotRunning as error:
            if not is_away:
                click.echo(f"waiting for the daemon: {error}", err=True)
            is_away = True
            time.sleep(_RETRY)
            continue
        except Refusal as refusal:
            raise failure(refusal) from None
        is_away = False
        if answer.log != found.log:
            click.echo("the daemon has restarted, and knows of nothing before that", err=True)
        elif answer.is_incomplete:
            click.echo("the daemon keeps only the latest events: some are missing here", err=True)
        found = answer
        yield answer


class _Table:
    """Prints lines for events as they arrive; columns grow with their content."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._widths = [19, 17, 0, 0]
        self._has_header = False

    def show(self, found: "Iterator[Event] | tuple[Event, ...]") -> None:
        """Print events."""
        shown = list(found)
        if self._output == "json":
            lines = [msgspec.json.encode(event).decode() for event in shown]
        elif self._output == "yaml":
            lines = ["---\n" + as_text(event, "yaml").rstrip("\n") for event in shown]
        else:
            lines = self._rows(shown)
        if lines:
            click.echo("\n".join(lines))

    def _rows(self, found: list[Event]) -> list[str]:
        rows = [_cells(event, is_wide=self._output == "wide") for event in found]
        if rows and not self._has_header:
            self._has_header = True
            rows.insert(0, _HEADER)
        for row in rows:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=False)]
        widths = (*self._widths, 0)
        return ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cells(event: Event, *, is_wide: bool) -> tuple[str, ...]:
    times = f" ({event.count} times)" if event.count > 1 else ""
    holder = f" [{event.holder}]" if is_wide and event.holder else ""
    text = f"{event.message}{times}{holder}"
    return (clock(event.time), event.kind, *(escaped(cell) or "-" for cell in (event.resource, event.device, text)))
