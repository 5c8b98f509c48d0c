"""The table of `nodeplug check`: the devices of each resource, then those without a resource and the reason."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from checkpoint.lease import UNREPORTED_POD
from hostdevices import Device, Devnode, Problem
from hostdevices.printable import escaped
from nodeplug.commands.columns import aligned
from nodeplug.commands.discover_table import health_in_words
from nodeplug.config import Config
from nodeplug.lease_changes import LeaseChange
from resources.assignment import Assignment, Unassigned
from resources.resource import Resource
from resources.selector import concerns, path_globs
from resources.shares import shares_of

_WAITING = "depends on this node's labels (--node-label)"
_MAX_NODES = 4  # the most nodes of one device; `-o json` has all
_AT_ANOTHER_PATH = ("its node ", "it has no device node")  # the beginnings of a path selector's reasons
_STEM = 4  # characters of a path from its last slash on that must match: /dev/ttyACM0 is similar to /dev/ttyUSB*
_MAX_ALIKE = 2  # the most devices without a resource, of one kind and for one reason, that are listed one by one


def show(
    config: Config,
    assignment: Assignment,
    problems: Sequence[Problem],
    empty: Mapping[str, str],
    leases: Sequence[LeaseChange] | None,
    *,
    is_wide: bool = False,
) -> None:
    """Print the owners: tables on a terminal, one device a line in a pipe; with `is_wide` a line with all details.

    `empty` has the reasons why resources have no device; `leases` are None unless asked for.
    """
    if is_wide:
        _wide(config, assignment, problems, empty, leases)
    elif sys.stdout.isatty():
        _for_people(Console(highlight=False), config, assignment, problems, empty, leases)
    else:
        _for_pipes(config, assignment, problems, empty, leases)


def _for_people(
    console: Console,
    config: Config,
    assignment: Assignment,
    problems: Sequence[Problem],
    empty: Mapping[str, str],
    leases: Sequence[LeaseChange] | None,
) -> None:
    for resource in config.resources:
        if devices := assignment.devices[resource.name]:
            console.print(Text.assemble((resource.name, "bold"), (f"  {_count(devices, resource)}", "dim")))
            console.print(_table((x.id, _about(x), "bold red" if _is_unavailable(x) else "") for x in devices))
    if empty:
        console.print(Text.assemble("\n", ("without a device", "bold yellow"), (f"  {len(empty)}", "dim")))
        console.print(_table((name, why, "dim") for name, why in empty.items()))
    if config.elsewhere:
        console.print(Text.assemble("\n", ("for other nodes", "bold"), (f"  {len(config.elsewhere)}", "dim")))
        console.print(Padding(Text("  ".join(config.elsewhere)), (0, 0, 0, 2)))
    if config.waiting:
        console.print(Text.assemble("\n", (_WAITING, "bold yellow"), (f"  {len(config.waiting)}", "dim")))
        console.print(Padding(Text("  ".join(config.waiting)), (0, 0, 0, 2)))
    if assignment.rest:
        console.print(Text.assemble("\n", ("no resource", "bold yellow"), (f"  {len(assignment.rest)}", "dim")))
        console.print(_table((name, why, "dim") for name, why in _unassigned_rows(config, assignment)))
    if leases is not None:
        console.print(Text.assemble("\n", ("leased", "bold"), (f"  {len(leases)}", "dim")))
        console.print(_table((_leased(x), _change_in_words(x), "bold yellow" if x.change else "dim") for x in leases))
    if problems:
        console.print(Text.assemble("\n", ("problems", "bold yellow"), (f"  {len(problems)}", "dim")))
        console.print(_table((problem.where, problem.reason, "") for problem in problems))


def _table(rows: Iterable[tuple[str, str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for name, about, style in rows:
        table.add_row(Text(f"  {escaped(name)}"), Text(escaped(about), style))
    return table


def _for_pipes(
    config: Config,
    assignment: Assignment,
    problems: Sequence[Problem],
    empty: Mapping[str, str],
    leases: Sequence[LeaseChange] | None,
) -> None:
    lines = [("RESOURCE", "DEVICE", "ABOUT")]
    for resource in config.resources:
        devices = assignment.devices[resource.name]
        lines += [(resource.name, device.id, _about(device)) for device in devices]
        if not devices:
            lines.append((resource.name, "-", empty[resource.name]))
    lines += [(name, "-", "for other nodes") for name in config.elsewhere]
    lines += [(name, "-", _WAITING) for name in config.waiting]
    lines += [("-", name, why) for name, why in _unassigned_rows(config, assignment)]
    if leases is not None:
        lines += [("leased", _leased(x), _change_in_words(x)) for x in leases] or [("leased", "-", "nothing")]
    lines += [("problem", problem.where, problem.reason) for problem in problems]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    for *cells, about in lines:
        start = "  ".join(escaped(cell).ljust(width) for cell, width in zip(cells, widths, strict=True))
        click.echo(f"{start}  {escaped(about)}".rstrip())


def _wide(
    config: Config,
    assignment: Assignment,
    problems: Sequence[Problem],
    empty: Mapping[str, str],
    leases: Sequence[LeaseChange] | None,
) -> None:
    """Print a line for each device, also for those of no resource, with all its nodes."""
    header = ("RESOURCE", "API", "SHARES", "DEVICE", "KIND", "NUMA", "HEALTH", "NODES", "ABOUT")
    no_device = ("",) * 5
    rows: list[tuple[str, ...]] = []
    for resource in config.resources:
        rows += [
            (resource.name, resource.api, str(shares_of(resource, x).count), *_facts(x), _notes(x))
            for x in assignment.devices[resource.name]
        ]
        if resource.name in empty:
            rows.append((resource.name, resource.api, "", *no_device, empty[resource.name]))
    rows += [(name, "", "", *no_device, "for other nodes") for name in config.elsewhere]
    rows += [(name, "", "", *no_device, _WAITING) for name in config.waiting]
    rows += [("", "", "", *_facts(x.device), x.reason) for x in assignment.rest]
    lines = [*aligned(header, rows)]
    if leases:
        lines += [
            "",
            *aligned(("LEASED", "RESOURCE", "ABOUT"), ((x.unit, x.resource, _change_in_words(x)) for x in leases)),
        ]
    lines += [f"problem  {escaped(problem.where)}: {escaped(problem.reason)}" for problem in problems]
    click.echo("\n".join(lines))


def _facts(device: Device) -> tuple[str, ...]:
    numa = ",".join(map(str, device.numa_nodes))
    return device.id, device.kind, numa, health_in_words(device), " ".join(map(_node, device.devnodes))


def _notes(device: Device) -> str:
    parts = [f"with {', '.join(device.children)}"] if device.children else []
    parts += [f"unavailable: {device.unavailable}"] if device.unavailable else []
    return "; ".join(parts)


def _unassigned_rows(config: Config, assignment: Assignment) -> Iterator[tuple[str, str]]:
    """Yield the devices without a resource, and why; several of one kind and for one reason as their number.

    A path selector concerns devices of every kind. A machine can have very many whose nodes are simply at other paths.
    """
    elsewhere = {x.device.id for x in assignment.rest if _is_elsewhere(x, config.resources)}
    if len(elsewhere) <= _MAX_ALIKE:
        elsewhere = set()
    alike: dict[tuple[str, str], list[str]] = {}
    for x in assignment.rest:
        if x.device.id not in elsewhere:
            alike.setdefault((x.device.kind, x.reason), []).append(x.device.id)
    for (kind, reason), ids in alike.items():
        yield from ((i, reason) for i in ids) if len(ids) <= _MAX_ALIKE else [(f"{len(ids)} of kind {kind}", reason)]
    if elsewhere:
        yield (
            f"{len(elsewhere)} devices",
            "their nodes, if they have any, are at no path of a resource (-o wide has them)",
        )


def _is_elsewhere(left: Unassigned, resources: Sequence[Resource]) -> bool:
    """Return whether a device is not selected only because of the paths of its nodes."""
    about = [x for x in resources if concerns(x.selector, left.device.kind)]
    if not about or left.is_refused or not left.reason.startswith(f"{about[0].name}: "):
        return False
    if not all(x.selector.mismatch(left.device).startswith(_AT_ANOTHER_PATH) for x in about):
        return False
    wanted = {glob[: glob.rfind("/") + _STEM] for x in about for glob in path_globs(x.selector)}
    return not any(node.path[: node.path.rfind("/") + _STEM] in wanted for node in left.device.devnodes)


def _leased(change: LeaseChange) -> str:
    return f"{change.resource} {change.unit}"


def _change_in_words(change: LeaseChange) -> str:
    holder = change.holder or UNREPORTED_POD
    return f"{holder}: {change}"


def _count(devices: Sequence[Device], resource: Resource) -> str:
    parts = [f"{len(devices)} device{'' if len(devices) == 1 else 's'}"]
    if resource.is_shared:
        counts = sorted({shares_of(resource, device).count for device in devices} or {resource.shares})
        parts.append(f"{' or '.join(map(str, counts))} shares each")
    if resource.dra.partitions:
        parts.append(f"in partitions {', '.join(partition.name for partition in resource.dra.partitions)}")
    if resource.api != "device-plugin":
        parts.append("through DRA" if resource.api == "dra" else "through both APIs")
    return ", ".join(parts)


def _is_unavailable(device: Device) -> bool:
    """Return whether the device gets no new holders."""
    return not device.health.healthy or bool(device.unavailable)


def _node(node: Devnode) -> str:
    return f"{node.path} as {node.container_path}" if node.container_path else node.path


def _about(device: Device) -> str:
    # numbered nodes are the device's own (/dev/nvidia0), others its driver's (/dev/nvidia-modeset)
    paths = [*map(_node, sorted(device.devnodes, key=lambda node: not node.path[-1:].isdigit()))]
    more = [f"and {len(paths) - _MAX_NODES} more"] if len(paths) > _MAX_NODES else []
    parts = [" ".join((*paths[:_MAX_NODES], *more)) or "no device node"]
    if device.numa_nodes:
        parts.append(f"NUMA {','.join(map(str, device.numa_nodes))}")
    if device.children:
        parts.append(f"with {', '.join(device.children)}")
    if not device.health.healthy:
        parts.append(health_in_words(device))
    if device.unavailable:
        parts.append(f"unavailable: {device.unavailable}")
    return "; ".join(parts)
