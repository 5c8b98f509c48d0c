"""The command line: `nodeplug COMMAND`. One module per command; heavy imports happen inside the commands."""

import contextlib
import errno
import importlib
import os
import sys
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from nodeplug.commands.failure import as_asked
from nodeplug.commands.group import CommandGroup

_SECTIONS: Final = {
    "This machine": {
        "discover": "What is here: ids, nodes, NUMA, attributes, health.",
        "check": "Validate a configuration; which device goes where, and why the others go nowhere.",
        "convert": "The configuration of another device plugin as nodeplug's, with its names and devices.",
        "classes": "The DeviceClasses of what a configuration offers through DRA.",
        "doctor": "What this machine lacks for nodeplug, and what to do about it.",
        "capture": "Record the device tree, to look at elsewhere with --root.",
        "topology": "Where devices sit, how they are and who has them; --svg draws it.",
        "demo": "The main job on this machine's devices, with a stand-in kubelet.",
    },
    "The daemon": {
        "run": "Offer this node's devices to the kubelet.",
        "status": "Its state: resources, registrations, devices, leases, what is wrong.",
        "leases": "Who has which device, and who says so; end a lease by hand.",
        "events": "What happened to devices, leases and the configuration; --follow: what happens next.",
        "ui": "A page to look at: the node as a picture, who has what, what happens, live.",
        "explain": "Why a device or a resource is as it is, and what is missing.",
        "dry-run": "What a container would be given, or why not; nothing is handed out.",
        "withhold": "Stop giving a device to new pods, until it is readmitted.",
        "readmit": "Give a withheld device to pods again.",
        "reload": "Read the configuration again, and see what that changes.",
        "bundle": "What a report about this node needs, in one archive, without credentials.",
    },
    "Without a cluster": {
        "kubelet": "A stand-in kubelet for plugins and DRA drivers; their conformance; checkpoints.",
        "allocate": "DRA allocations from manifests or of a cluster, and why not.",
        "apiserver": "A stand-in API server for your own kubectl.",
        "k8srm": "The k8srm prototype's scheduler, pools and API server.",
    },
    "The shell": {
        "completion": "What bash, zsh or fish needs to complete commands.",
    },
}
"""The commands by section, each with its line of the help page. A listing does not import the commands."""
_LIBRARIES: Final = {"grpc": "grpcio"}
"""Libraries that nodeplug.pyz does not contain: import name to package name."""
_CANNOT_PRINT: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writing to a file that is full. If the standard output is a closed pipe, the program ends silently."""
_COMMANDS: Final = {name: says for section in _SECTIONS.values() for name, says in section.items()}


class _Lazy(CommandGroup):
    """Imports a command's module only when that command is used: the daemon must not carry the code for tables."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"nodeplug.commands.{module}"), module)
        assert isinstance(command, click.Command)
        return command

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line. Report output that cannot be written, but not output that has been closed."""
        with contextlib.ExitStack() as unread:
            if sys.stdout is None:  # the parent process has closed it
                sys.stdout = unread.enter_context(open(os.devnull, "w"))
            try:
                return super().main(*args, **options)
            except OSError as error:
                if error.errno not in _CANNOT_PRINT or error.filename is not None:
                    raise
                click.echo(f"Error: the answer cannot be written: {error.strerror}", err=True)
                sys.exit(1)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. If a library that it needs is not installed, name that library."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            raise as_asked(ctx, error) from None
        except ModuleNotFoundError as error:
            package = _LIBRARIES.get((error.name or "").partition(".")[0])
            if package is None:
                raise
            words = f"this command needs {package}, which is not here"
            raise click.ClickException(f"{words}: pip install {package}, or install nodeplug's wheel") from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=says) for name, says in _COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, _COMMANDS))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", says) for name, says in commands.items()])


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="nodeplug COMMAND --help says more of each, with examples.",
)
@click.version_option(package_name="nodeplug")
def main() -> None:
    """Offer this node's devices to Kubernetes, through the device plugin API and DRA."""
