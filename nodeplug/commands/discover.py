"""`nodeplug discover`: the devices of this host, or of a recorded one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hostdevices import Device, HealthTracker, Host, HostDevicesError, Inventory, Problem, Version, scan
from hostdevices.readers import READERS
from nodeplug.commands.examples import examples
from nodeplug.commands.options import Output, output_option, root_option
from nodeplug.commands.structured import as_text


@click.command(
    epilog=examples(
        "nodeplug discover",
        "nodeplug discover --kind nic -o wide",
        "nodeplug discover --kind nic --kind gpu -o json",
        "nodeplug discover --id misc-kvm",
    )
)
@root_option
@output_option
@click.option("--kind", "kinds", multiple=True, help="Only devices of this kind (nic, gpu, pci ...); repeatable.")
@click.option("--id", "ids", multiple=True, help="Only the device with this id, with all its properties; repeatable.")
def discover(root: Path, output: Output, kinds: tuple[str, ...], ids: tuple[str, ...]) -> None:
    """Show the devices of this machine: id, kernel name, device nodes, NUMA node, attributes, health.

    An ordinary user sees only what that user can read. Exits with 1 if a device that --id names does not exist.
    """
    try:
        host = Host(root)
        inventory = HealthTracker().sample(host, scan(host))
    except HostDevicesError as error:
        raise click.ClickException(str(error)) from None
    chosen = _chosen(inventory, kinds, ids)
    if output in ("table", "wide"):
        from nodeplug.commands.discover_table import show_details, show_table, show_wide  # rich: for tables only

        if output == "wide":
            show_wide(chosen, inventory.problems)
        elif ids:
            show_details(chosen)
        else:
            show_table(chosen, inventory.problems)
    else:
        click.echo(as_text(described(chosen, inventory.problems), output), nl=False)
    missing = [wanted for wanted in ids if wanted not in inventory.devices]
    for wanted in missing:
        click.echo(f"no device {wanted!r} here{_did_you_mean(wanted, list(inventory.devices))}", err=True)
    if missing:
        sys.exit(1)


def described(devices: Sequence[Device], problems: Sequence[Problem]) -> dict[str, Any]:
    """Return devices and problems for JSON and YAML. Names and order are a contract with scripts."""
    return {
        "devices": [
            {
                "id": device.id,
                "kind": device.kind,
                "name": device.name,
                "syspath": device.syspath,
                "devnodes": [
                    {"path": node.path, "type": node.kind, "major": node.major, "minor": node.minor}
                    for node in device.devnodes
                ],
                "numaNodes": list(device.numa_nodes),
                "attributes": {
                    name: {"version": value.text} if isinstance(value, Version) else value
                    for name, value in sorted(device.attributes.items())
                },
                "within": list(device.parents),
                "health": {"healthy": device.health.healthy, "reason": device.health.reason},
            }
            for device in devices
        ],
        "problems": [{"where": problem.where, "reason": problem.reason} for problem in problems],
    }


def _chosen(inventory: Inventory, kinds: tuple[str, ...], ids: tuple[str, ...]) -> list[Device]:
    known = {reader.kind for reader in READERS} | {device.kind for device in inventory.devices.values()}
    for kind in kinds:
        if kind not in known:
            raise click.BadParameter(f"no such kind: {kind!r}{_kind_hint(kind, sorted(known))}", param_hint="--kind")
    return [
        device
        for device in inventory.devices.values()
        if (not kinds or device.kind in kinds) and (not ids or device.id in ids)
    ]


def _kind_hint(word: str, kinds: Sequence[str]) -> str:
    """Return the kinds that a preset selects, or the kind that `word` probably means; all kinds if none is similar."""
    from resources.presets import PRESETS
    from resources.selector import concerns

    if word in PRESETS:
        found = (kind for kind in kinds if concerns(PRESETS[word].selector, kind))
        return f"; it is a preset, for devices of kind {', '.join(found)}"
    return _did_you_mean(word, kinds) or f"; known are {', '.join(kinds)}"


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    from nodeplug.config.document import similar_name  # imported here: only mistakes need it

    return f"; did you mean {near!r}?" if (near := similar_name(word, known)) else ""
