"""`nodeplug kubelet verify`: whether a plugin or driver conforms; as text, or as JSON or JUnit XML for CI."""

import asyncio
import json
import logging
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hostdevices.printable import escaped
from kubelet import DEFAULT_VERSION, RELEASES, KubeletError, NodeError, Version
from kubelet.conformance import NODE, Check, Conformance, DriverConformance, Run
from nodeplug.commands.choice import Choice
from nodeplug.commands.examples import examples
from nodeplug.commands.failure import remember_output
from nodeplug.commands.kubelet_cluster import ClusterUnavailable, api_server_with_node
from nodeplug.commands.seconds import Seconds
from resourceapi.client import ClientError

Format = Literal["text", "json", "junit"]
_COLOURS = {"pass": "green", "warn": "yellow", "fail": "red", "skip": "dim"}


class _NotRun(click.ClickException):
    exit_code = 2


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "nodeplug kubelet verify -- ./my-plugin --folder {dir}",
        "nodeplug kubelet verify -o junit -- ./my-plugin --folder {dir} > report.xml",
        "nodeplug kubelet verify --as-host -- ./my-plugin",
        "nodeplug kubelet verify --dra -- ./my-driver {kubelet} {kubeconfig} {node}",
    ),
)
@click.option("--seconds", type=Seconds(min=1), default=30.0, show_default=True, help="Limit for each step.")
@click.option(
    "--kubernetes",
    type=Choice(sorted(RELEASES)),
    default=DEFAULT_VERSION,
    show_default=True,
    help="Behave as the kubelet of this release.",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=Choice(["text", "json", "junit"]),
    default="text",
    show_default=True,
    callback=remember_output,
    help="What to print; json and junit come at the end.",
)
@click.option("--failures-only", is_flag=True, help="Print only failures and warnings, and the summary.")
@click.option("--dra", "is_driver", is_flag=True, help="The command is a DRA driver, not a device plugin.")
@click.option(
    "--device", default="", metavar="POOL/DEVICE", help="The device to claim if the DRA driver publishes none."
)
@click.option(
    "--plugin-restarts/--no-plugin-restarts",
    "restarts",
    default=True,
    show_default=True,
    help="Stop COMMAND and kill it, and start it again each time.",
)
@click.option(
    "--as-host",
    is_flag=True,
    help="Put the kubelet at /var/lib/kubelet, visible only to the command; needs root or user namespaces.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def verify(
    seconds: float,
    kubernetes: Version,
    form: Format,
    failures_only: bool,
    is_driver: bool,
    device: str,
    restarts: bool,
    as_host: bool,
    command: tuple[str, ...],
) -> None:
    """Run a device plugin or DRA driver with a stand-in kubelet and report whether it behaves: verify -- COMMAND.

    {dir} in COMMAND becomes the folder of kubelet.sock, where the plugin must put its sockets. With --dra it becomes
    the folder of registration sockets, {kubeconfig} leads to an API server, {node} is the node's name there, and
    {kubelet} is the kubelet's own folder. What COMMAND prints goes to standard error.

    COMMAND is started three times: it is stopped with SIGTERM, and killed, while a container has a device, and has to
    come back. --no-plugin-restarts leaves this out.

    With --as-host that folder is /var/lib/kubelet, for commands whose paths are fixed. Only COMMAND sees this folder:
    the machine's own /var/lib/kubelet, if it has one, is neither read nor changed.

    Exits with 0 if it behaves, with 1 if it did something that harms a kubelet or a user, and with 2 if it could not
    be run.
    """
    if device and not is_driver:
        raise click.UsageError("--device is the device that is claimed from a DRA driver: use it with --dra")
    if device and not all(device.partition("/")):
        raise click.BadParameter(f"{device!r} is not POOL/DEVICE, as in node/gpu-0.", param_hint="--device")
    on_check = _CheckPrinter(failures_only) if form == "text" else lambda _: None
    folder = _host_folder() if as_host else None
    try:
        conformance = asyncio.run(
            _verified(command, seconds, kubernetes, on_check, device, folder, is_driver=is_driver, restarts=restarts)
        )
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)
    shown = [x for x in conformance.checks if not failures_only or x.outcome in ("warn", "fail")]
    if form == "json":
        report = {"passed": conformance.is_passed, "checks": msgspec.to_builtins(shown)}
        click.echo(json.dumps(report, indent=2))
    elif form == "junit":
        click.echo(junit(shown))
    else:
        counts = Counter(check.outcome for check in conformance.checks)
        click.echo(
            f"{counts['pass']} passed, {counts['fail']} failed, {counts['warn']} warning(s), {counts['skip']} skipped"
        )
    sys.exit(0 if conformance.is_passed else 1)


async def _verified(
    command: Sequence[str],
    seconds: float,
    kubernetes: Version,
    on_check: Callable[[Check], None],
    device: str,
    folder: Path | None,
    *,
    is_driver: bool,
    restarts: bool,
) -> Run:
    logging.disable(logging.CRITICAL)  # the report contains the results
    running = asyncio.current_task()
    assert running is not None, "a coroutine runs in a task"
    # COMMAND has its own process group, so whoever stops the group of this process does not stop it
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        if not is_driver:
            plugin = Conformance(command, seconds, on_check, kubernetes, folder, has_plugin_restarts=restarts)
            await plugin.run()
            return plugin
        async with api_server_with_node(NODE, kubernetes) as (client, kubeconfig, requests):
            driver = DriverConformance(
                command,
                seconds,
                on_check,
                client,
                kubeconfig,
                requests,
                device,
                kubernetes,
                folder,
                has_plugin_restarts=restarts,
            )
            await driver.run()
        return driver
    except OSError as error:
        what = command[0] if error.filename in (None, command[0]) else error.filename
        raise _NotRun(f"{what}: {error.strerror or error}{_hint(error)}") from error
    except (KubeletError, ClientError, ClusterUnavailable) as error:
        raise _NotRun(str(error)) from error
    finally:
        logging.disable(logging.NOTSET)


def _hint(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "; after -- write the program's path, or its name in $PATH, and its arguments"
    return "; is it a program, and executable?" if isinstance(error, PermissionError) else ""


def _host_folder() -> Path:
    """Return the kubelet's own folder, empty and private to this process from now on."""
    from kubelet.conformance import as_host

    try:
        as_host.enter()
    except NodeError as error:
        raise _NotRun(f"--as-host: {error}") from error
    return as_host.FOLDER


class _CheckPrinter:
    """Prints checks as they are made."""

    def __init__(self, failures_only: bool) -> None:
        self._failures_only = failures_only
        self._console = Console(highlight=False)
        self._console.soft_wrap = not self._console.is_terminal  # a check is a line in a file or a pipe
        self._group = ""

    def __call__(self, check: Check) -> None:
        if self._failures_only and check.outcome in ("pass", "skip"):
            return
        if check.group != self._group:
            self._group = check.group
            self._console.print(f"[bold]{escape(check.group)}[/]")
        detail = f"  {escape(escaped(check.detail))}" if check.detail else ""
        outcome, text = f"[{_COLOURS[check.outcome]}]{check.outcome:4}[/]", f"{escape(check.name)}{detail}"
        if self._console.is_terminal:
            lines = Table.grid(padding=(0, 1))
            lines.add_row(" ", outcome, text)
            self._console.print(lines)
        else:
            self._console.print(f"  {outcome} {text}")


def junit(checks: Sequence[Check]) -> str:
    """Return checks as JUnit XML, as CI systems read it: a suite for each group; a warning is output, not a failure."""
    suites = ElementTree.Element("testsuites", name="nodeplug kubelet verify")
    for group in dict.fromkeys(check.group for check in checks):
        of_group = [check for check in checks if check.group == group]
        counts = Counter(check.outcome for check in of_group)
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=group,
            tests=str(len(of_group)),
            failures=str(counts["fail"]),
            skipped=str(counts["skip"]),
        )
        for check in of_group:
            case = ElementTree.SubElement(suite, "testcase", classname=group, name=check.name)
            detail = _in_xml(check.detail)
            if check.outcome == "fail":
                ElementTree.SubElement(case, "failure", message=detail)
            elif check.outcome == "skip":
                ElementTree.SubElement(case, "skipped", message=detail)
            elif detail:
                out = ElementTree.SubElement(case, "system-out")
                out.text = f"{check.outcome}: {detail}"
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)


def _in_xml(text: str) -> str:
    """Return text that a plugin can have chosen, without the characters that XML does not allow."""
    return "".join(x if x in "\t\n" or x.isprintable() else "\N{REPLACEMENT CHARACTER}" for x in text)
