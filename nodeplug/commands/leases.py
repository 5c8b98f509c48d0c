"""`nodeplug leases`: the holders of devices, why a lease stays, and ending one by hand.

Exit codes: 0 done, 1 there is no such lease or it is not released, 2 the command line is wrong, 4 no daemon answers.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec import Struct

from checkpoint.lease import UNREPORTED_POD
from nodeplug.commands.columns import aligned
from nodeplug.commands.examples import examples
from nodeplug.commands.failure import Failure
from nodeplug.commands.group import CommandGroup
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.running_daemon import ask, check_resource, clock, failure, state_option
from nodeplug.commands.structured import as_text
from nodeplug.config.document import did_you_mean
from nodeplug.control import client, witnesses
from nodeplug.control import release as releasing
from nodeplug.control.client import LONG_TIMEOUT, NotRunning
from nodeplug.control.leases import Answer, LeaseView, Question
from nodeplug.control.protocol import Refusal

_MAX_NAMED = 8  # the most units in a message


class _Shown(Struct, frozen=True):
    leases: tuple[witnesses.Answer, ...]


@click.group(
    cls=CommandGroup,
    epilog=examples("nodeplug leases list", "nodeplug leases show default/train-0", "nodeplug leases release misc-kvm"),
)
def leases() -> None:
    """Show which pod or claim has which device, and end a lease by hand."""


@leases.command(
    "list", epilog=examples("nodeplug leases list", "nodeplug leases list --resource example.com/gpu -o wide")
)
@state_option
@output_option
@click.option("--resource", default="", help="Only leases of this resource.")
def list_(state: Path, output: Output, resource: str) -> None:
    """List the leases: resource, unit, and the pod and container, or the claim, that has it."""
    leased = ask(state, Question(), Answer).leases
    found = tuple(x for x in leased if resource in ("", x.resource))
    if resource and not found:
        check_resource(state, resource)
    if output in ("json", "yaml"):
        click.echo(as_text(Answer(found), output), nl=False)
    elif found:
        click.echo("\n".join(lease_lines(found, is_wide=output == "wide")))
    else:
        click.echo("nothing is leased", err=True)


@leases.command(epilog=examples("nodeplug leases show misc-kvm", "nodeplug leases show default/train-0"))
@state_option
@output_option
@click.argument("name")
def show(state: Path, output: Output, name: str) -> None:
    """Show each lease of NAME, and what each witness reports about it now.

    NAME is a unit, a device, a pod or a claim; NAMESPACE/NAME is a pod or claim of one namespace. If the pod of a
    lease is gone, this command ends the lease.
    """
    found = tuple(_with_statements(state, x) for x in _leases_named(state, name))
    if output in ("json", "yaml"):
        click.echo(as_text(_Shown(found), output), nl=False)
        return
    for number, each in enumerate(found):
        click.echo("\n".join((*([""] if number else []), *_details(each))))


@leases.command(
    epilog=examples("nodeplug leases release misc-kvm", "nodeplug leases release misc-kvm --resource example.com/kvm")
)
@state_option
@output_option
@click.option("--resource", default="", help="The resource, if several have a unit of this name.")
@click.option(
    "--force",
    is_flag=True,
    help="Release even if a witness says that the device is held. The device can then get a second holder.",
)
@click.argument("unit")
def release(state: Path, output: Output, resource: str, force: bool, unit: str) -> None:
    """End the lease of UNIT by hand; for a unit of a claim, end all leases of the claim. The log records the holder.

    A lease ends by itself when the kubelet or the kernel shows that its pod is gone. Use this command for a lease
    that stays because they cannot show it: the kubelet never starts again, or the API server is gone. The daemon
    refuses while a witness reports that the pod has the device or runs; then delete the pod instead. If a running pod
    still has the device, the daemon restores the lease within 30 s.
    """
    leased = ask(state, Question(), Answer).leases
    meant = [x for x in leased if x.unit == unit and resource in ("", x.resource)]
    if not meant:
        raise _no_such(unit, leased)
    if len({(x.resource, x.api) for x in meant}) > 1:
        names = ", ".join(sorted({x.resource for x in meant}))
        raise click.UsageError(f"several resources have a lease of {unit}; name one with --resource: {names}")
    question = releasing.Question(meant[0].resource, meant[0].api, unit, force)
    ended = ask(state, question, releasing.Answer, LONG_TIMEOUT)
    if output in ("json", "yaml"):
        click.echo(as_text(ended, output), nl=False)
        return
    for x in ended.leases:
        click.echo(f"released: {x.resource} {x.unit}, which {x.holder or UNREPORTED_POD} had")
    if output == "wide":
        click.echo("\n".join(("", *lease_lines(ended.leases, is_wide=True))))


def lease_lines(found: Sequence[LeaseView], *, is_wide: bool) -> Iterator[str]:
    """Yield the table of leases."""
    header = ("LEASED", "RESOURCE", "API", "NAMESPACE", "POD OR CLAIM", "CONTAINER")
    more = ("GRANTED", "PHASE", "DEVICES", "POD UIDS") if is_wide else ()
    yield from aligned((*header, *more), (_row(x, is_wide=is_wide) for x in found))


def _row(x: LeaseView, *, is_wide: bool) -> tuple[str, ...]:
    who = x.pod or x.claim or x.claim_uid or "not reported yet"
    row = (x.unit, x.resource, x.api, x.namespace, who, x.container)
    devices = ",".join((*x.devices, *(f"part of {each}" for each in x.shared)))
    return (*row, clock(x.granted_at), x.phase, devices, ",".join(x.pod_uids)) if is_wide else row


def _leases_named(state: Path, name: str) -> list[LeaseView]:
    leased = ask(state, Question(), Answer).leases
    found = [x for x in leased if name in _names(x)]
    if not found:
        raise _no_such(name, leased)
    return found


def _with_statements(state: Path, x: LeaseView) -> witnesses.Answer:
    try:
        return client.ask(state, witnesses.Question(x.resource, x.api, x.unit), witnesses.Answer, LONG_TIMEOUT)
    except Refusal:  # it has ended since, for example when another lease of the pod was checked
        return witnesses.Answer(x, ())
    except NotRunning as error:
        raise failure(error) from None


def _names(x: LeaseView) -> Iterator[str]:
    """Yield the names by which a lease can be selected."""
    yield from filter(None, (x.unit, x.unit.partition(".")[0], *x.devices, *x.pod_uids, x.claim_uid))
    for holder in filter(None, (x.pod, x.claim)):
        yield from (holder, f"{x.namespace}/{holder}")


def _no_such(name: str, leased: Sequence[LeaseView]) -> Failure:
    """Return the error for an unknown lease, with the ones that were probably meant."""
    units = list(dict.fromkeys(x.unit for x in leased if name in _names(x)))
    if units:
        more = f" and {len(units) - _MAX_NAMED} more" if len(units) > _MAX_NAMED else ""
        return Failure(f"{name} is not a unit; it has the units {', '.join(units[:_MAX_NAMED])}{more}: name one")
    hint = did_you_mean(name, {each for x in leased for each in _names(x)}) or "nodeplug leases list shows all"
    return Failure(f"there is no lease of {name}; {hint}")


def _details(found: witnesses.Answer) -> Iterator[str]:
    x = found.lease
    facts = (
        ("unit", x.unit),
        ("resource", f"{x.resource} ({x.api})"),
        ("holder", x.holder or UNREPORTED_POD),
        ("pods", " ".join(x.pod_uids) or "not known"),
        ("devices", " ".join(x.devices)),
        ("part of", " ".join(x.shared)),
        ("granted", clock(x.granted_at)),
        ("phase", "half prepared" if x.phase == "intended" else ""),
        *((each.witness, each.text + (" (holds it)" if each.holds else "")) for each in found.statements),
        *(() if found.statements else (("now", "it has ended, or no witness answers"),)),
    )
    width = max(len(name) for name, _ in facts)
    yield from (f"{name.ljust(width)}  {text}" for name, text in facts if text)
