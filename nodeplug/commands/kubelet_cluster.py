"""The cluster of a stand-in kubelet: one in this process, an existing one, or none."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubelet import DEFAULT_VERSION, Version
from kubelet.conformance import ApiRequests
from nodeplug.commands.apiserver import load_manifests
from resourceapi.client import Credentials, from_kubeconfig
from resourceapi.client.blocking import Client
from resourceapi.client.credentials import Source
from resourceapi.objects.release import RELEASES

if TYPE_CHECKING:
    from controlplane.apiserver import Server
    from controlplane.apiserver.observing import AnsweredRequest

KUBECONFIG = "kubeconfig"

_OWN_AGENT = "nodeplug-verify"
"""Distinguishes the requests of a conformance test from those of the driver under test, which can be nodeplug."""


class ClusterUnavailable(Exception):
    """The requested cluster is not available; the message is what to do."""


@contextlib.asynccontextmanager
async def no_cluster() -> AsyncIterator[Client | None]:
    """Provide no cluster: pods have only the claims that the kubelet is given."""
    yield None


@contextlib.asynccontextmanager
async def kubeconfig_cluster(kubeconfig: Path) -> AsyncIterator[Client | None]:
    """Provide a client of a kubeconfig's cluster, which has its own scheduler. Raises ClientError."""
    with _client(from_kubeconfig(kubeconfig)) as client:
        await asyncio.to_thread(client.request, "GET", "/version")
        yield client


@contextlib.asynccontextmanager
async def bundled_cluster(
    directory: Path,
    port: int = 0,
    load: Iterable[Path] = (),
    *,
    is_wanted: bool = False,
    tls: bool = False,
    kubernetes: Version = DEFAULT_VERSION,
    echo: Callable[[str], object] = click.echo,
) -> AsyncIterator[Client | None]:
    """Provide an API server and a scheduler in this process, with `directory`/kubeconfig; `echo` gets the address.

    If they are not installed, there is no cluster, or ClusterUnavailable if it `is_wanted`.
    """
    try:
        from controlplane.apiserver import JournalError, Server, ServerError, write_kubeconfig
    except ImportError as error:
        if is_wanted:
            raise ClusterUnavailable(f"{error}: pip install 'nodeplug[controlplane]'") from error
        yield None
        return
    try:
        server = Server(port=port, tls=tls, release=RELEASES[kubernetes])
        load_manifests(server, load)
        async with server, with_scheduler(server) as client:
            directory.mkdir(parents=True, exist_ok=True)
            write_kubeconfig(directory / KUBECONFIG, server.url, server.token, server.ca)
            echo(f"serving {server.url}")
            echo(f"try: kubectl --kubeconfig {directory / KUBECONFIG} get nodes,pods,resourceclaims")
            yield client
    except (JournalError, ServerError) as error:
        raise ClusterUnavailable(str(error)) from error


@contextlib.asynccontextmanager
async def api_server_with_node(
    node: str, kubernetes: Version = DEFAULT_VERSION
) -> AsyncIterator[tuple[Client, Path, ApiRequests]]:
    """Provide an API server that has only a node, without a scheduler or a kubelet.

    Yields a client, a kubeconfig for others, and the requests of others. Raises ClusterUnavailable.
    """
    try:
        from controlplane.apiserver import Server, ServerError, write_kubeconfig
    except ImportError as error:
        raise ClusterUnavailable(f"{error}: pip install 'nodeplug[controlplane]'") from error
    requests = ApiRequests()

    def observe(each: "AnsweredRequest") -> None:
        if each.user_agent != _OWN_AGENT:
            requests.record(each.verb, each.kind, each.name, each.code, each.message, each.causes)

    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        kubeconfig = Path(folder) / KUBECONFIG
        try:
            async with Server(release=RELEASES[kubernetes], observe=observe) as server:
                write_kubeconfig(kubeconfig, server.url, server.token)
                server.write({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
                with _client(from_kubeconfig(kubeconfig), _OWN_AGENT) as client:
                    yield client, kubeconfig, requests
        except ServerError as error:
            raise ClusterUnavailable(str(error)) from error


@contextlib.asynccontextmanager
async def with_scheduler(server: "Server") -> AsyncIterator[Client]:
    """Schedule a running server's pods during the context; provide a client of it."""
    from controlplane.scheduler import Scheduler

    credentials = Credentials(server=server.url, token=server.token, ca=server.ca)
    with _client(lambda: credentials) as client:
        async with Scheduler(client):
            yield client


@contextlib.asynccontextmanager
async def background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run work during the context, and cancel it at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


async def until_first(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Wait until one task ends, and cancel the others. Raises its error."""
    try:
        (first, *_), _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def _client(read: Source, user_agent: str = "nodeplug") -> Iterator[Client]:
    """Provide a client that is closed after its use."""
    client = Client(read, user_agent=user_agent)
    try:
        yield client
    finally:
        client.close()
