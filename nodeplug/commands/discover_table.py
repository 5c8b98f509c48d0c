"""The tables of `nodeplug discover`: grouped by kind on a terminal, one device a line in a pipe.

Ids are never cut, so that they can be copied. On a narrow terminal all other columns shrink, attributes first.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby

import click
from rich.console import Console, Group
from rich.filesize import decimal
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hostdevices import AttributeValue, Device, Problem
from hostdevices.printable import escaped
from nodeplug.commands.columns import aligned

_LEAST_FOR_ATTRIBUTES = 32  # columns; with fewer, attributes get lines of their own
_MAX_NODES = 4  # the most nodes of one device in a table; `--id` shows all

# The attributes to show first, by kind. Other kinds show all of their own.
_FIRST: dict[str, tuple[str, ...]] = {
    "block": ("size", "model", "serial", "readOnly"),
    "gpu": ("model", "vendor", "device", "driver", "driverVersion", "memory", "memoryNode", "uuid", "sriov", "pf"),
    "nic": (
        "uplink",
        "uplinkUnknown",
        "otherDefaultRoute",
        "virtual",
        "representor",
        "mac",
        "speed",
        "operstate",
        "linkType",
        "driver",
        "sriov",
        "pf",
        "vfIndex",
    ),
    "nvme": ("model", "serial", "firmware", "state"),
    "pci": (
        "class",
        "vendor",
        "device",
        "driver",
        "iommuGroup",
        "sriov",
        "pf",
        "vfIndex",
        "numVFs",
        "totalVFs",
        "vdpaType",
        "uplink",
        "uplinkUnknown",
        "otherDefaultRoute",
    ),
    "rdma": ("netdev", "linkLayer", "state", "rate", "firmware", "driver", "sriov", "pf"),
    "usb": ("manufacturer", "model", "vendor", "product", "serial", "class", "interfaceClasses", "port"),
}
_ELSEWHERE = ("name", "bus", "path")  # shown in columns of their own, or contained in others
_BYTES = {("block", "size"), ("gpu", "memory")}


def show_table(devices: Sequence[Device], problems: Sequence[Problem]) -> None:
    """Print all `devices`, then `problems`."""
    ordered = sorted(devices, key=lambda device: (device.kind, device.id))
    if sys.stdout.isatty():
        _for_people(Console(highlight=False), ordered, problems)
    else:
        _for_pipes(ordered, problems)


def show_wide(devices: Sequence[Device], problems: Sequence[Problem]) -> None:
    """Print one device a line, with all details: every node, every attribute, its location."""
    header = ("KIND", "ID", "NAME", "NODES", "NUMA", "HEALTH", "WITHIN", "PATH", "ATTRIBUTES")
    rows = (
        (
            *(device.kind, device.id, device.name, " ".join(node.path for node in device.devnodes)),
            *(",".join(map(str, device.numa_nodes)), health_in_words(device)),
            *(" ".join(device.parents), device.syspath),
            "  ".join(
                f"{x}={_value(device, x, value)}" for x, value in sorted(device.attributes.items()) if x != "name"
            ),
        )
        for device in sorted(devices, key=lambda device: (device.kind, device.id))
    )
    _in_columns(header, rows, problems)


def show_details(devices: Iterable[Device]) -> None:
    """Print all details of each of `devices`."""
    console = Console(highlight=False, soft_wrap=True)  # a wrapped path could not be copied
    for device in devices:
        details = _details(device)
        indent = max(len(name) for name, _ in details) + 4
        console.print(Text(device.id, style="bold"))
        for name, value in details:
            label = Text(f"  {name}".ljust(indent), style="dim")
            console.print(Text.assemble(label, escaped(value)))


def _for_people(console: Console, devices: Sequence[Device], problems: Sequence[Problem]) -> None:
    for kind, group in groupby(devices, lambda device: device.kind):
        members = list(group)
        console.print(Text.assemble((kind, "bold"), (f"  {len(members)}", "dim")))
        if _fits_a_table(members, console.width):
            console.print(_table(members))
        else:
            for device in members:
                console.print(Padding(_in_two_lines(device), (0, 0, 0, 2)))
        console.print()
    if problems:
        console.print(Text.assemble(("problems", "bold yellow"), (f"  {len(problems)}", "dim")))
        for problem in problems:
            console.print(Padding(Text(f"{escaped(problem.where)}: {escaped(problem.reason)}"), (0, 0, 0, 2)))
    if not devices:
        console.print("no devices")


def _columns(devices: Sequence[Device]) -> list[tuple[str, list[str]]]:
    """Return style and cells of the columns before the attributes, without empty columns."""
    columns = [
        ("", [f"  {device.id}" for device in devices]),
        ("bold", [_name(device) for device in devices]),
        ("", [_nodes(device) for device in devices]),
        ("cyan", [_numa(device) for device in devices]),
    ]
    return [(style, cells) for style, cells in columns if any(cells)]


def _fits_a_table(devices: Sequence[Device], width: int) -> bool:
    needed = sum(max(map(len, cells)) + len("  ") for _, cells in _columns(devices))
    return needed + min(_LEAST_FOR_ATTRIBUTES, max(len(_attributes(device)) for device in devices)) <= width


def _table(devices: Sequence[Device]) -> Table:
    columns = _columns(devices)
    table = Table.grid(padding=(0, 2, 0, 0))
    for style, _ in columns:
        table.add_column(no_wrap=True, style=style)
    table.add_column(overflow="fold", ratio=1)
    for device, *cells in zip(devices, *(cells for _, cells in columns), strict=True):
        about = [text for text in (_health(device), Text(_attributes(device), "dim")) if text]
        table.add_row(*map(Text, cells), Text("  ").join(about))
    return table


def _in_two_lines(device: Device) -> Group:
    first = Text.assemble(f"{device.id}  ", (_name(device), "bold"))
    rest = [_health(device), Text(_nodes(device)), Text(_numa(device), "cyan"), Text(_attributes(device), "dim")]
    second = Text("  ").join(text for text in rest if text)
    return Group(first, Padding(second, (0, 0, 0, 4))) if second else Group(first)


def _for_pipes(devices: Sequence[Device], problems: Sequence[Problem]) -> None:
    header = ("KIND", "ID", "NAME", "NODES", "NUMA", "HEALTH", "ATTRIBUTES")
    rows = (
        (
            *(device.kind, device.id, device.name, _nodes(device), ",".join(map(str, device.numa_nodes))),
            *(health_in_words(device), _attributes(device)),
        )
        for device in devices
    )
    _in_columns(header, rows, problems)


def _in_columns(header: Sequence[str], rows: Iterable[Sequence[str]], problems: Sequence[Problem]) -> None:
    for line in aligned(header, rows):
        click.echo(line)
    for problem in problems:
        click.echo(f"problem  {escaped(problem.where)}: {escaped(problem.reason)}")


def _details(device: Device) -> list[tuple[str, str]]:
    found = [("kind", device.kind), ("name", device.name), ("path", device.syspath or "-")]
    found += [("node", f"{x.path}  {x.kind} {x.major}:{x.minor}") for x in device.devnodes]
    found.append(("numa", ", ".join(map(str, device.numa_nodes)) or "-"))
    found.append(("health", "ok" if device.health.healthy else device.health.reason))
    if device.parents:
        found.append(("within", ", ".join(device.parents)))
    return found + [(k, _value(device, k, value)) for k, value in sorted(device.attributes.items()) if k != "name"]


def _attributes(device: Device) -> str:
    names = _FIRST.get(device.kind) or [x for x in device.attributes if "/" not in x and x not in _ELSEWHERE]
    shown = [(name, device.attributes[name]) for name in names if name in device.attributes]
    # Of booleans, only true ones are shown, by name alone.
    return "  ".join(
        name if value is True else f"{name}={_value(device, name, value)}"
        for name, value in shown
        if value is not False
    )


def _value(device: Device, name: str, value: AttributeValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return decimal(value) if isinstance(value, int) and (device.kind, name) in _BYTES else escaped(str(value))


def _name(device: Device) -> str:
    """Return the kernel's name, unless it is the PCI address that the id contains."""
    return "" if device.name == device.attributes.get("resource.kubernetes.io/pciBusID") else escaped(device.name)


def _nodes(device: Device) -> str:
    paths = [escaped(node.path) for node in device.devnodes]
    more = f" +{len(paths) - _MAX_NODES}" if len(paths) > _MAX_NODES else ""
    return " ".join(paths[:_MAX_NODES]) + more


def _numa(device: Device) -> str:
    return f"NUMA {','.join(map(str, device.numa_nodes))}" if device.numa_nodes else ""


def health_in_words(device: Device) -> str:
    """Return the health of a device as text."""
    return "ok" if device.health.healthy else f"unhealthy: {device.health.reason}"


def _health(device: Device) -> Text:
    return Text() if device.health.healthy else Text(escaped(health_in_words(device)), style="bold red")
