"""The command line: `nodeplug COMMAND`. One module per command; heavy imports happen inside the commands."""

import contextlib
import errno
import importlib
import os
import sys
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from nodeplug.commands.failure import in_requested_output
from nodeplug.commands.group import CommandGroup

_SECTIONS: Final = {
    "This machine": {
        "discover": "Show this machine's devices: ids, device nodes, NUMA, attributes, health.",
        "check": "Check a configuration; show which resource gets which device, and why.",
        "convert": "Convert the configuration of another device plugin.",
        "classes": "Print the DeviceClasses of the resources that are offered through DRA.",
        "doctor": "Find what nodeplug lacks on this machine, and show what to do about it.",
        "capture": "Record the device tree, for --root on another machine.",
        "topology": "Show NUMA nodes, PCI roots and devices, with health and holders; --svg: as a drawing.",
        "demo": "Show what nodeplug does, with this machine's devices and a stand-in kubelet.",
    },
    "The daemon": {
        "run": "Offer this node's devices to the kubelet.",
        "status": "Show resources, registrations, devices, leases, and what is wrong.",
        "leases": "Show which pod has which device, and on whose evidence; end a lease by hand.",
        "events": "Show events of devices, leases and the configuration; --follow: new ones, too.",
        "ui": "Serve a live page with a picture of the node, leases and events.",
        "explain": "Explain why a device or resource is offered or not, and what is missing.",
        "dry-run": "Show what a container would get, or why not; nothing is allocated.",
        "withhold": "Stop allocating a device to new pods, until it is readmitted.",
        "readmit": "Allow new pods to get a withheld device again.",
        "reload": "Make the daemon read its configuration again, and show what changes.",
        "bundle": "Collect an archive for a report about this node, without credentials.",
    },
    "Without a cluster": {
        "kubelet": "Run a stand-in kubelet; verify plugins and DRA drivers; show checkpoints.",
        "allocate": "Allocate DRA claims from manifests or a cluster, and show why not.",
        "apiserver": "Run a stand-in API server for your own kubectl.",
        "k8srm": "Run the scheduler, pools and API server of the k8srm prototype.",
    },
    "The shell": {
        "completion": "Print the completion script for bash, zsh or fish.",
    },
}
"""The commands by section, each with its line of the help page. A listing does not import the commands."""
_LIBRARIES: Final = {
    "grpc": ("grpcio", "grpcio"),
    "starlette": ("starlette", "nodeplug[controlplane]"),
    "uvicorn": ("uvicorn", "nodeplug[controlplane]"),
}
"""Libraries that nodeplug.pyz does not contain: import name to the package, and what to install for it."""
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
            raise in_requested_output(ctx, error) from None
        except ModuleNotFoundError as error:
            package, wanted = _LIBRARIES.get((error.name or "").partition(".")[0], ("", ""))
            if not package:
                raise
            words = f"this command needs {package}, which is not installed"
            raise click.ClickException(f"{words}: pip install '{wanted}'") from None

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
    epilog="nodeplug COMMAND --help describes each command, with examples.",
)
@click.version_option(package_name="nodeplug")
def main() -> None:
    """Offer this node's devices to Kubernetes, through the device plugin API and DRA."""
