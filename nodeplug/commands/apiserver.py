"""`nodeplug apiserver`: a stand-in API server for kubectl, drivers and schedulers, without a cluster."""

import asyncio
import gc
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from nodeplug.commands.choice import Choice
from nodeplug.commands.examples import examples
from resourceapi.objects.release import DEFAULT_VERSION, RELEASES, Version

if TYPE_CHECKING:
    from controlplane.apiserver import Server
    from controlplane.apiserver.access.authorization import AuthorizationMode

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=examples("nodeplug apiserver --kubeconfig kubeconfig --load manifests/"))
@click.option(
    "--data", type=_FILE, help="Store the objects in this file; without it they are lost when the server stops."
)
@click.option("--kubeconfig", type=_FILE, help="Write a kubeconfig with the server's address and token to this file.")
@click.option(
    "--load",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    help="Create the objects of these manifests, files or folders, at the start.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port to listen on.  [default: a free one]")
@click.option(
    "--kubernetes",
    type=Choice(sorted(RELEASES)),
    default=DEFAULT_VERSION,
    show_default=True,
    help="Answer as the API server of this release.",
)
@click.option(
    "--authorization-mode",
    type=Choice(["AlwaysAllow", "RBAC"]),
    default="AlwaysAllow",
    show_default=True,
    help="Allow everything to authenticated clients, or what the stored roles allow.",
)
@click.option(
    "--tls", is_flag=True, help="Serve with TLS; the kubeconfig contains the generated certificate authority."
)
@click.option("--no-token", is_flag=True, help="Accept every client that can connect.")
@click.option("--no-collector", is_flag=True, help="Do not delete dependents, or count quotas and disruption budgets.")
@click.option("--no-prototype", is_flag=True, help="Leave out the kinds of the k8srm prototype, as a real server does.")
def apiserver(
    data: Path | None,
    kubeconfig: Path | None,
    load: tuple[Path, ...],
    host: str,
    port: int,
    kubernetes: Version,
    authorization_mode: "AuthorizationMode",
    tls: bool,
    no_token: bool,
    no_collector: bool,
    no_prototype: bool,
) -> None:
    """Serve resource.k8s.io, the core kinds around it and custom resources until SIGINT or SIGTERM.

    The custom resources include the kinds of the k8srm prototype. Prints the address as soon as it answers requests.
    """
    if not host:  # which would mean every address of the machine
        raise click.BadParameter("an address to listen on, such as 127.0.0.1.", param_hint="--host")
    from controlplane.apiserver import JournalError, Server, ServerError
    from controlplane.k8srm.definitions import definitions

    try:
        server = Server(
            host=host,
            port=port,
            token="" if no_token else None,
            data=data,
            definitions=() if no_prototype else definitions(),
            collect_after=None if no_collector else 0.5,
            tls=tls,
            release=RELEASES[kubernetes],
            authorization=authorization_mode,
        )
        asyncio.run(serve(server, kubeconfig, load))
    except (JournalError, ServerError, OSError) as error:
        raise click.ClickException(str(error)) from error


async def serve(
    server: "Server", kubeconfig: Path | None, load: Iterable[Path], resource: str = "deviceclasses"
) -> None:
    """Run a server until a signal; `resource` is the kind that its hint names.

    Raises ClickException for manifests that cannot be loaded.
    """
    from controlplane.apiserver import write_kubeconfig

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    load_manifests(server, load)
    gc.freeze()  # modules stay: with them, a full run of the collector takes 35 ms, in which no request is answered
    gc.set_threshold(20_000)  # one list of slices has more than the 700 values after which Python searches for cycles
    async with server:
        if kubeconfig is not None:
            write_kubeconfig(kubeconfig, server.url, server.token, server.ca)
        click.echo(f"serving on {server.url}")
        if kubeconfig is not None:
            click.echo(f"try: kubectl --kubeconfig {kubeconfig} get {resource}")
        await stopped.wait()


def load_manifests(server: "Server", paths: Iterable[Path]) -> None:
    """Create or replace the objects of manifests, in order. Raises ClickException with the file and the reason."""
    from controlplane.apiserver import ApiError
    from resourceapi.manifests import ManifestError
    from resourceapi.objects import DecodeError

    for path in paths:
        for file in _manifests(path):
            try:
                for value in _documents(file):
                    server.write(value)
            except (ApiError, DecodeError, ManifestError, OSError) as error:
                raise click.ClickException(f"{file}: {error}") from error


def _manifests(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*")):
        if file.suffix in (".yaml", ".yml", ".json"):
            yield file


def _documents(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file; lists are expanded."""
    from resourceapi.manifests import read_documents

    for value in msgspec.to_builtins(read_documents(file.read_bytes())):
        if isinstance(value, dict) and str(value.get("kind", "")).endswith("List") and "items" in value:
            yield from value["items"]
        elif isinstance(value, dict):
            yield value
        elif value is not None:
            raise click.ClickException(f"{file}: an object with apiVersion and kind is needed")
