"""`nodeplug status`: the state of the running daemon.

Exit codes: 0 the kubelet has everything that is offered, 1 something is wrong (each problem has a line), 2 the command
line is wrong, 4 no daemon answers.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from nodeplug.commands.columns import aligned
from nodeplug.commands.examples import examples
from nodeplug.commands.leases import lease_lines
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.running_daemon import REFUSED, ask, clock, duration, state_option
from nodeplug.commands.structured import as_text
from nodeplug.control.status import Answer, DeviceView, Question, first_pod_note

_SHOWN_SHA = 12  # digits of the configuration's digest; json has all


@click.command(epilog=examples("nodeplug status", "nodeplug status -o wide", "nodeplug status -o json | jq .problems"))
@state_option
@output_option
def status(state: Path, output: Output) -> None:
    """Show what the running daemon offers, which pods have it, and what is wrong.

    Shows resources with their registration, devices that are not available, leases with pod and container, the
    configuration that is in effect, and the latest warnings and errors, except those whose cause is known to be gone.
    Exits with 0 if all is well, with 1 if something is wrong, and with 4 if no daemon answers.
    """
    found = ask(state, Question(), Answer)
    if output in ("json", "yaml"):
        click.echo(as_text(found, output), nl=False)
    else:
        click.echo("\n".join(_lines(found, is_wide=output == "wide")))
    if found.problems:
        sys.exit(REFUSED)


def _lines(found: Answer, *, is_wide: bool) -> Iterator[str]:
    daemon, configuration = found.daemon, found.configuration
    yield f"nodeplug {daemon.version}  pid {daemon.pid}  up {duration(daemon.uptime)}  state {daemon.state_directory}"
    digest = f"  sha256 {configuration.sha256[:_SHOWN_SHA]}" if configuration.sha256 else ""
    loaded = f"  loaded {clock(configuration.loaded_at)}" if configuration.loaded_at else ""
    yield f"configuration {configuration.file or 'built in'}{digest}{loaded}"
    if found.dra is not None:
        registered = "registered" if found.dra.is_registered else "not registered"
        yield f"DRA driver {found.dra.driver}  {registered}  prepared claims: {found.dra.claims}"
    for problem in (*found.problems, *configuration.problems):
        yield f"wrong: {problem}"
    if line := first_pod_note(found):
        yield f"note: {line}"
    yield ""
    yield from _resources(found, is_wide=is_wide)
    if devices := found.devices if is_wide else tuple(_unavailable_without_lease(found)):
        yield ""
        yield from _devices(devices)
    if found.withheld:
        yield ""
        kept = ((x.device, clock(x.since), "yes" if x.is_here else "no", x.reason) for x in found.withheld)
        yield from aligned(("WITHHELD", "SINCE", "HERE", "REASON"), kept)
    if found.leases:
        yield ""
        yield from lease_lines(found.leases, is_wide=is_wide)
    if found.recent:
        yield ""
        rows = (
            (clock(x.time), x.level, " ".join((x.message, *(f"{name}={text}" for name, text in x.fields.items()))))
            for x in found.recent
        )
        yield from aligned(("WHEN", "LEVEL", "MESSAGE"), rows)


def _unavailable_without_lease(found: Answer) -> Iterator[DeviceView]:
    """Yield the devices that are unavailable, with a reason that no other table shows."""
    explained = {i for x in found.leases for i in x.devices} | {x.device for x in found.withheld}
    for x in found.devices:
        if x.health == "unhealthy" or (x.health == "unavailable" and x.id not in explained):
            yield x


def _resources(found: Answer, *, is_wide: bool) -> Iterator[str]:
    header = ("RESOURCE", "API", "UNITS", "HEALTHY", "LEASED", "KUBELET", "REASON")
    more = ("REGISTRATIONS",) if is_wide else ()
    rows = (
        (
            x.name,
            x.api,
            str(x.units),
            str(x.healthy),
            str(x.leased),
            "registered" if x.is_registered else "not registered",
            x.empty if x.is_registered else x.last_error,
            *((str(x.registrations),) if is_wide else ()),
        )
        for x in found.resources
    )
    yield from aligned((*header, *more), rows)


def _devices(devices: tuple[DeviceView, ...]) -> Iterator[str]:
    rows = ((x.id, x.resource, x.api, x.health, str(x.leased), x.reason) for x in devices)
    yield from aligned(("DEVICE", "RESOURCE", "API", "HEALTH", "LEASED", "REASON"), rows)
