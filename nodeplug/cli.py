"""The command line: `nodeplug COMMAND`. One module per command; heavy imports happen inside the commands."""

import importlib

import click

_COMMANDS = (
    "allocate",
    "apiserver",
    "bundle",
    "capture",
    "check",
    "classes",
    "convert",
    "demo",
    "discover",
    "doctor",
    "events",
    "explain",
    "k8srm",
    "kubelet",
    "leases",
    "reload",
    "run",
    "status",
    "topology",
)


class _Lazy(click.Group):
    """Imports a command's module only when it is asked for: the daemon must not carry what tables need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(importlib.import_module(f"nodeplug.commands.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nodeplug")
def main() -> None:
    """Offer this node's devices to Kubernetes, through the device plugin API and DRA."""
