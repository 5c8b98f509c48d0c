"""`nodeplug k8srm`: the k8srm prototype's three programs, and its kinds for other API servers."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Literal, TypeAlias

import click
import yaml

from controlplane.k8srm.errors import K8srmError
from controlplane.k8srm.gen import SHAPES, generate
from controlplane.k8srm.report import as_yaml, reasons, report
from controlplane.k8srm.types import write
from nodeplug.commands.choice import Choice
from nodeplug.commands.examples import examples
from nodeplug.commands.group import CommandGroup
from nodeplug.commands.seconds import Seconds

Output: TypeAlias = Literal["list", "manifests"]

PORT = 55441
"""The port of the prototype's server."""


@click.group(
    cls=CommandGroup,
    epilog=examples(
        "nodeplug k8srm apiserver",
        "nodeplug k8srm gen shape-one -o manifests | kubectl --kubeconfig kubeconfig apply -f -",
        "nodeplug k8srm schedule --kubeconfig kubeconfig default/train",
    ),
)
def k8srm() -> None:
    """The k8srm prototype of device claims: its API server, its scheduler, and pools for experiments."""


@k8srm.command(epilog=examples("nodeplug k8srm schedule --kubeconfig kubeconfig default/train"))
@click.argument("pod", metavar="[NAMESPACE/]POD")
@click.option(
    "--kubeconfig",
    required=True,
    envvar="KUBECONFIG",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The kubeconfig of the API server.  [env: KUBECONFIG]",
)
@click.option("-v", "--verbose", is_flag=True, help="Print every set of pools that was considered; also VERBOSE=y.")
@click.option(
    "--timeout", type=Seconds(), default=10.0, show_default=True, metavar="SECONDS", help="Limit for each node."
)
def schedule(pod: str, kubeconfig: Path, verbose: bool, timeout: float) -> None:
    """Schedule POD: find the best node for its device claims, allocate the devices there, and bind the pod.

    Prints the allocated devices and the result for each node. If no node can serve all claims, writes nothing, prints
    the reasons to standard error, and exits with 1.
    """
    from controlplane.k8srm.client_api import ClientApi  # HTTP: only for this command
    from controlplane.k8srm.schedule import schedule as schedule_pod
    from resourceapi.client import CredentialsError, from_kubeconfig
    from resourceapi.client.blocking import Client

    verbose = verbose or os.environ.get("VERBOSE") == "y"
    namespace, _, name = pod.rpartition("/")
    try:
        credentials = from_kubeconfig(kubeconfig)
        api = ClientApi(Client(credentials))
        plan = schedule_pod(api, name, namespace or credentials().namespace, verbose=verbose, timeout=timeout)
    except (K8srmError, CredentialsError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(report(plan.outcome, verbose=verbose), nl=False)
    if plan.outcome.node is None:
        for reason in (*plan.conflicts, *reasons(plan.outcome.results)):
            click.echo(reason, err=True)
        sys.exit(1)


@k8srm.command(epilog=examples("nodeplug k8srm apiserver"))
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to listen on, at 127.0.0.1; 0 chooses a free one.",
)
@click.option(
    "--kubeconfig",
    default="kubeconfig",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a kubeconfig for kubectl and `nodeplug k8srm schedule` to this file.",
)
@click.option(
    "--data",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Store the objects in this file; without it they are lost when the server stops.",
)
@click.option(
    "--load",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    help="Create the objects of these manifests, files or folders, at the start.",
)
def apiserver(port: int, kubeconfig: Path, data: Path | None, load: tuple[Path, ...]) -> None:
    """Serve what `nodeplug apiserver` serves, on the prototype's port, until SIGINT or SIGTERM."""
    from controlplane.apiserver import JournalError, Server, ServerError
    from controlplane.k8srm.definitions import definitions
    from nodeplug.commands.apiserver import serve

    try:
        asyncio.run(serve(Server(port=port, data=data, definitions=definitions()), kubeconfig, load, "devicedrivers"))
    except (JournalError, ServerError, OSError) as error:
        raise click.ClickException(str(error)) from error


@k8srm.command(epilog=examples("nodeplug k8srm gen shape-one -n 3"))
@click.argument("shape", type=Choice(list(SHAPES)))
@click.option("-n", "nodes", default=2, show_default=True, type=click.IntRange(0, 10_000), help="How many nodes.")
@click.option(
    "-o",
    "--output",
    default="list",
    show_default=True,
    type=Choice(["list", "manifests"]),
    help="A YAML list, as the prototype prints, or documents for `kubectl apply -f -`.",
)
def gen(shape: str, nodes: int, output: Output) -> None:
    """Print the device pools of nodes that have a SHAPE."""
    pools = [write(pool) for pool in generate(shape, nodes)]
    if output == "list":
        click.echo(as_yaml(pools))
    else:
        click.echo(yaml.safe_dump_all(pools, sort_keys=True), nl=False)


@k8srm.command("definitions", epilog=examples("nodeplug k8srm definitions | kubectl apply -f -"))
def print_definitions() -> None:
    """Print the prototype's kinds as CustomResourceDefinitions, for any other API server."""
    from controlplane.k8srm.definitions import definitions

    click.echo(yaml.safe_dump_all(definitions(), sort_keys=False), nl=False)
