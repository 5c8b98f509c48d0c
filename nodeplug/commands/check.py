"""`nodeplug check`: whether a configuration is valid, and which resource gets each device.

Exit codes: 0 it can be used, 1 the host cannot be read, or the daemon refuses the question, 2 the configuration is
invalid, 4 no daemon answers (`--against`).
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from checkpoint import CheckpointError
from checkpoint.database import FILE_NAME, Database
from checkpoint.lease import Book
from deviceplugin.limits import list_too_long_reason
from deviceplugin.units import size_of
from folderwatch import path_exists
from hostdevices import HealthTracker, Host, HostDevicesError, Inventory, Problem, scan
from hostdevices.readers import READERS, paths_reader
from nodeplug.commands.examples import examples
from nodeplug.commands.options import CONFIGURATION_FILE, Output, output_option, root_option
from nodeplug.commands.structured import as_text
from nodeplug.config import Config, ConfigError, Finding, from_environment, loads, node_name, read, reference
from nodeplug.config.tree import SIZE_LIMIT
from nodeplug.enrichment import sources
from nodeplug.foreign_specs import undefined_cdi_devices
from nodeplug.lease_changes import LeaseChange, lease_changes
from resources.assignment import Assignment, assign
from resources.emptiness import empty_reason
from resources.shares import shares_of

if TYPE_CHECKING:
    from nodeplug.control.changes import Changes

CONFIGURATION = 2


@click.command(
    epilog=examples(
        "nodeplug check config.yaml",
        "nodeplug check config.yaml -o wide",
        "nodeplug check config.yaml --against running",
        "nodeplug check config.yaml --root there.gz",
    )
)
@click.argument("file", required=False, type=CONFIGURATION_FILE)
@root_option
@click.option("--node", default="", help="The node's name, for resources with `onNodes`. Default: this node's name.")
@click.option(
    "--node-label",
    "labels",
    metavar="NAME=VALUE",
    multiple=True,
    help="A label of that node, for resources with `nodeSelector`, which are undecided without it; repeatable.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="A daemon's state directory: also show what FILE would change for the present leases.",
)
@click.option(
    "--against",
    metavar="running|DIR",
    default="",
    help="Ask the running daemon, or the one of the state directory DIR: show what FILE would change, also for"
    " the present leases.",
)
@output_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of configuration files instead, for editors.")
def check(
    file: Path | None,
    root: Path,
    node: str,
    labels: tuple[str, ...],
    state: Path | None,
    against: str,
    output: Output,
    schema: bool,
) -> None:
    """Check the configuration FILE; show which resource gets each device, and why the other devices are not offered.

    Reports all mistakes at once, each with its line and column.
    """
    if schema:
        click.echo(json.dumps(reference.schema(), indent=2))
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE'.")
    _check_options(against, state, node or "".join(labels), is_elsewhere=root != Path("/"))
    content = b""
    try:
        # read once: it can be a pipe, and both answers must be about the same content
        content = sys.stdin.buffer.read(SIZE_LIMIT + 1) if file == Path("-") else read(file)
        config = loads(content, str(file), node or node_name(), from_environment(), _labels(labels))
        _check_node_name(config, file, node)
        host = Host(root)
        inventory = HealthTracker().sample(host, scan(host, (*READERS, paths_reader(config.path_globs))))
        leases = Book() if state is None else _leases(state)
        changes = _changes(content, str(file), against, output) if against else None
    except ConfigError as error:
        _show_errors(error, output)
        _show_convert_hint(content, file, output)
        sys.exit(CONFIGURATION)
    except HostDevicesError as error:
        raise click.ClickException(str(error)) from None
    inventory = _enriched(inventory, config, host)
    assignment = assign(inventory, config.resources)
    problems = (*inventory.problems, *undefined_cdi_devices(host, config, assignment.devices))
    too_long = {
        x.name: why
        for x in config.resources
        if x.api != "dra" and (why := list_too_long_reason(*size_of(x, assignment.devices[x.name])))
    }
    empty = {x.name: empty_reason(x, inventory, assignment) for x in config.resources if not assignment.devices[x.name]}
    found = lease_changes(config, assignment, leases) if changes is None else changes.leases
    if output in ("json", "yaml"):
        described = _described(config, assignment, problems, too_long, empty, found)
        if changes is not None:
            described["changes"] = {
                name: value for name, value in msgspec.to_builtins(changes).items() if name != "leases"
            }
        click.echo(as_text(described, output), nl=False)
    else:
        from nodeplug.commands.check_table import show  # rich: for tables only

        is_asked = state is not None or changes is not None
        show(config, assignment, problems, empty, found if is_asked else None, is_wide=output == "wide")
        if changes is not None:
            from nodeplug.commands.changes import difference_lines

            click.echo("\n".join(("", *difference_lines(changes))) if changes.differences else "\nnothing changes")
        for name, why in too_long.items():
            click.echo(f"{file}: {name}: {why}", err=True)
    if not config.resources and not config.waiting:
        click.echo(f"{file}: it has no resource for this node: nothing would be offered", err=True)
    if too_long:
        sys.exit(CONFIGURATION)


def _enriched(inventory: Inventory, config: Config, host: Host) -> Inventory:
    """Return the inventory with what the configuration's sources add, as far as they exist here."""
    settings = config.settings
    nvml = files = None
    if settings.nvml and host.root.is_dir():
        import asyncio

        from nvml import read_once

        def nvml(inventory: Inventory) -> Inventory:
            return asyncio.run(read_once(host, settings.driver_root, settings.ignored_xids, inventory))

    if any(resource.userspace for resource in config.resources):
        from nodeplug.driver_files import driver_files

        files = driver_files(config, host, made=False).enrich
    for add in sources(config, host, nvml, files, is_here=host.root == Path("/")):
        inventory = add(inventory)
    return inventory


def _labels(words: Sequence[str]) -> dict[str, str] | None:
    """Return labels as they were typed; None without any: they are unknown."""
    pairs = [word.partition("=") for word in words]
    if wrong := next((word for word, (_, equals, _) in zip(words, pairs, strict=True) if not equals), ""):
        raise click.UsageError(f"--node-label {wrong}: write NAME=VALUE")
    return {name: value for name, _, value in pairs} or None


def _check_options(against: str, state: Path | None, node: str, *, is_elsewhere: bool) -> None:
    """Raise `click.UsageError` for options that ask two questions at once; the message names the correction."""
    if not against:
        return
    if state is not None:
        hint = f"--against {state} asks the daemon of that directory, --state {state} reads it where no daemon runs"
        raise click.UsageError(f"use only one of --against and --state: {hint}")
    if node or (is_elsewhere and against == "running"):
        option, about = ("--node", "node") if node else ("--root", "devices")
        hint = f"leave out {option} to ask the daemon, or --against to see what FILE would offer there"
        raise click.UsageError(f"the running daemon knows only its own {about}: {hint}")


def _check_node_name(config: Config, file: Path, node: str) -> None:
    """Raise `click.UsageError` if the file names the node itself, which overrides the command line."""
    named = config.settings.node_name
    if node and named not in ("", node):
        hint = "with this file every node would have this name; remove it from the file, or leave out --node"
        raise click.UsageError(f"--node {node}: settings.nodeName in {file} is {named} and overrides it; {hint}")


def _changes(content: bytes, source: str, against: str, output: Output) -> "Changes":
    """Return the changes that the running daemon computes for the content; without an answer, print why and exit."""
    from nodeplug.commands.running_daemon import STATE_DIRECTORY, failure
    from nodeplug.control.client import LONG_TIMEOUT, NotRunning, ask
    from nodeplug.control.preview import Answer, Question
    from nodeplug.control.protocol import Refusal

    state = STATE_DIRECTORY if against == "running" else Path(against)
    try:
        return ask(state, Question(content.decode(), source), Answer, LONG_TIMEOUT)
    except (NotRunning, Refusal) as error:
        failed = failure(error, "--against")
        if output not in ("json", "yaml"):
            raise failed from None
    _show_errors_as_data(source, output, [Finding(0, 0, message) for message in failed.findings or (failed.message,)])
    sys.exit(failed.exit_code)


def _leases(state: Path) -> Book:
    """Return the present leases, whichever process owns the directory. Raises `click.ClickException`."""
    database = Database(state)
    try:
        if not path_exists(database.path):
            hint = "the path is settings.stateDirectory in the daemon's configuration"
            raise click.ClickException(f"{state}: there is no {FILE_NAME} here; {hint}")
        return database.peek()
    except (OSError, CheckpointError) as error:
        raise click.ClickException(str(error)) from None


def _show_errors(error: ConfigError, output: Output) -> None:
    if output not in ("json", "yaml"):
        for line in error.lines():
            click.echo(line, err=True)
        return
    _show_errors_as_data(error.source, output, error.findings)


def _show_errors_as_data(source: str, output: Output, findings: Sequence[Finding]) -> None:
    """Print the errors for scripts; line and column are 0 if the error has no place in the file."""
    found = [
        {"file": source, "line": x.line, "column": x.column, "message": x.message, "hint": x.hint} for x in findings
    ]
    click.echo(as_text({"errors": found}, output), nl=False)


def _show_convert_hint(content: bytes, file: Path, output: Output) -> None:
    """If a wrong file is another plugin's configuration, print how to convert it. Not for scripts."""
    from nodeplug.convert import plugins_of  # imported here: only mistakes need it

    if output not in ("json", "yaml") and (plugins := plugins_of(content)):
        hint = f"`nodeplug convert {file}` makes one of nodeplug"
        click.echo(f"{file}: this is a configuration of {plugins}; {hint}", err=True)


def _described(
    config: Config,
    assignment: Assignment,
    problems: Sequence[Problem],
    too_long: dict[str, str],
    empty: dict[str, str],
    leases: Sequence[LeaseChange],
) -> dict[str, Any]:
    """Return the assignment for scripts. Names and order are a contract with them."""
    return {
        "resources": [
            {
                "name": resource.name,
                "api": resource.api,
                "shares": resource.shares,
                "devices": [
                    {
                        "id": device.id,
                        "kind": device.kind,
                        "members": list(device.children),
                        "devnodes": [
                            {"path": node.path, "containerPath": node.container_path or node.path}
                            for node in device.devnodes
                        ],
                        "numaNodes": list(device.numa_nodes),
                        "health": {"healthy": device.health.healthy, "reason": device.health.reason},
                        "unavailable": device.unavailable,
                        "shares": shares_of(resource, device).count,
                    }
                    for device in assignment.devices[resource.name]
                ],
                "error": too_long.get(resource.name, ""),
                "empty": empty.get(resource.name, ""),
            }
            for resource in config.resources
        ],
        "elsewhere": list(config.elsewhere),
        "waiting": list(config.waiting),
        "unassigned": [{"id": x.device.id, "kind": x.device.kind, "reason": x.reason} for x in assignment.rest],
        "leases": [
            {
                "resource": x.resource,
                "api": x.api,
                "unit": x.unit,
                "holder": x.holder,
                "change": x.change,
                "blocks": [{"resource": each.resource, "device": each.device} for each in x.blocks],
            }
            for x in leases
        ],
        "problems": [{"where": problem.where, "reason": problem.reason} for problem in problems],
    }
