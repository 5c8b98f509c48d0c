"""`nodeplug kubelet`: a stand-in kubelet for plugins under development, and a reader of a real one's state files."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import click

from grpcunix import GrpcUnixError
from hostdevices.printable import printable
from kubelet import DEFAULT_VERSION, RELEASES, KubeletError, Node, Version
from kubelet.control import ControlServer, Request
from kubelet.dramanager import ApiCluster, Cluster
from kubelet.events import Event
from kubelet.node import check_folder
from kubelet.pods.cgroups import CgroupDriver
from kubelet.topology import Policy, Scope
from nodeplug import logs
from nodeplug.commands.choice import Choice
from nodeplug.commands.examples import examples
from nodeplug.commands.group import CommandGroup
from nodeplug.commands.kubelet_api import ClusterNode
from nodeplug.commands.kubelet_checkpoint import checkpoint
from nodeplug.commands.kubelet_cluster import (
    ClusterUnavailable,
    background,
    bundled_cluster,
    kubeconfig_cluster,
    no_cluster,
    until_first,
)
from nodeplug.commands.kubelet_pods import FILE, admit, ask_kubelet, directory_option, read_pods, status
from nodeplug.commands.kubelet_verify import verify
from nodeplug.commands.seconds import Seconds
from nodeplug.status_server import StatusServer
from resourceapi.client import ClientError
from resourceapi.client.blocking import Client
from resourceapi.objects import names

_FOLDER = click.Path(file_okay=False, path_type=Path)
_kubernetes = click.option(
    "--kubernetes",
    type=Choice(sorted(RELEASES)),
    default=DEFAULT_VERSION,
    show_default=True,
    help="Behave as the kubelet of this release.",
)
_MAX_EVENT_LENGTH = 4_000  # the most characters of a line; plugins and pods choose their own names
_API_DELAY = 1.0  # seconds from the start of a real kubelet until its API server has sent its pods


def _as_node_name(text: str) -> str:
    """Return the node name that a kubelet derives from a configured name. Raises `click.BadParameter`."""
    name = text.strip().lower()
    # the name is also a label of the node
    if complaints := names.dns_subdomain(name) or names.label_value(name):
        raise click.BadParameter(f"{text!r}: {complaints[0]}")
    return name


def _as_mapping(texts: tuple[str, ...], form: str) -> dict[str, str]:
    """Return name -> value of texts such as cpu=4. Raises `click.BadParameter`."""
    pairs = [each.partition("=") for each in texts]
    for name, sign, _ in pairs:
        if not (name and sign):
            raise click.BadParameter(f"{name!r} is not of the form {form}")
    return {name: value for name, _, value in pairs}


@click.group(
    cls=CommandGroup,
    epilog=examples(
        "nodeplug kubelet run --dir /tmp/kubelet",
        "nodeplug kubelet admit --dir /tmp/kubelet pod.yaml",
        "nodeplug kubelet status --dir /tmp/kubelet",
        "nodeplug kubelet verify -- ./my-plugin {dir}",
    ),
)
def kubelet() -> None:
    """A stand-in kubelet: run device plugins and DRA drivers with it, and show the files of a real kubelet."""


@kubelet.command(epilog=examples("nodeplug kubelet run --dir /tmp/node"))
@directory_option
@click.option(
    "--numa-nodes", type=click.IntRange(1, 64), default=1, show_default=True, help="NUMA nodes of the machine."
)
@click.option(
    "--topology-policy",
    type=Choice(["none", "best-effort", "restricted", "single-numa-node"]),
    default="none",
    show_default=True,
)
@click.option("--topology-scope", type=Choice(["container", "pod"]), default="container", show_default=True)
@_kubernetes
@click.option("--in-order", is_flag=True, help="Choose devices in the order of the plugin's list, not at random.")
@click.option(
    "--node-name",
    default="node",
    show_default=True,
    callback=lambda _context, _option, name: _as_node_name(name),
    help="The node's name in the cluster.",
)
@click.option(
    "--capacity",
    multiple=True,
    metavar="NAME=AMOUNT",
    callback=lambda _context, _option, texts: _as_mapping(texts, "NAME=AMOUNT, such as cpu=4"),
    help="What the node has of cpu, memory, ephemeral-storage or pods.  [default: 1000, 10Ti, 10Ti and 10000]",
)
@click.option(
    "--node-label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _option, texts: _as_mapping(texts, "NAME=VALUE"),
    help="A label of the node, for pods with a node selector; repeatable.",
)
@click.option(
    "--static-pods",
    type=FILE,
    multiple=True,
    help="Run the pods of this YAML file as static pods, which need no API server.",
)
@click.option("--cgroup-root", type=_FOLDER, help="Create the cgroups of pods below this folder.  [default: none]")
@click.option(
    "--cgroup-driver",
    type=Choice(["systemd", "cgroupfs"]),
    default="systemd",
    show_default=True,
    help="The naming scheme of cgroups.",
)
@click.option(
    "--api-delay",
    type=Seconds(),
    default=_API_DELAY,
    show_default=True,
    help="Seconds until a starting kubelet learns of its pods from the API server.",
)
@click.option(
    "--read-only-port",
    type=click.IntRange(0, 65535),
    help="Serve the kubelet's /metrics at this port of 127.0.0.1; 0 chooses a free one.  [default: none]",
)
@click.option(
    "--apiserver/--no-apiserver",
    "with_server",
    default=None,
    help="Also start an API server and a scheduler.  [default: where nodeplug[controlplane] is installed]",
)
@click.option("--kubeconfig", type=FILE, help="Instead join the cluster of this kubeconfig as a node.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The API server's port.  [default: a free one]")
@click.option("--tls", is_flag=True, help="Use TLS for the API server.")
@click.option(
    "--load",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    help="Create the objects of these manifests, files or folders, in the API server at the start.",
)
def run(
    directory: Path,
    numa_nodes: int,
    topology_policy: Policy,
    topology_scope: Scope,
    kubernetes: Version,
    in_order: bool,
    node_name: str,
    capacity: dict[str, str],
    labels: dict[str, str],
    static_pods: tuple[Path, ...],
    cgroup_root: Path | None,
    cgroup_driver: CgroupDriver,
    api_delay: float,
    read_only_port: int | None,
    with_server: bool | None,
    kubeconfig: Path | None,
    port: int,
    tls: bool,
    load: tuple[Path, ...],
) -> None:
    """Keep a stand-in kubelet alive below a folder, and print what happens. Ends with SIGINT or SIGTERM.

    Plugins and DRA drivers register at DIR/device-plugins/kubelet.sock or in DIR/plugins_registry; DIR/pod-resources
    has the pod-resources API. With its API server, whose kubeconfig is DIR/kubeconfig, it runs the pods that kubectl
    creates, also those with claims. `admit`, `remove`, `restart`, `hold`, `release` and `status` use only the
    kubelet.
    """
    logs.setup("warning", "text")  # the name of a plugin can contain control characters for a terminal
    if kubeconfig is not None and (with_server or load or port or tls):
        text = "--kubeconfig names another API server: leave out --apiserver, --port, --tls and --load"
        raise click.UsageError(text)
    if with_server is False and (load or port or tls):
        raise click.UsageError("--load, --port and --tls are for the API server")
    if kubeconfig is not None:
        cluster = kubeconfig_cluster(kubeconfig)
    elif with_server is False:
        cluster = no_cluster()
    else:
        is_wanted = bool(with_server or load or port or tls)
        cluster = bundled_cluster(directory, port, load, is_wanted=is_wanted, tls=tls, kubernetes=kubernetes)

    def new_node(claims: Cluster | None) -> Node:
        return Node(
            directory,
            numa_nodes=range(numa_nodes),
            topology_policy=topology_policy,
            topology_scope=topology_scope,
            shuffle=None if in_order else random.Random(),  # noqa: S311 - a choice of devices, not a secret
            cluster=claims,
            node_name=node_name,
            kubernetes=kubernetes,
            capacity=capacity,
            labels=labels,
            static_pods=[pod for path in static_pods for pod in read_pods(path)],
            cgroups=cgroup_root,
            cgroup_driver=cgroup_driver,
            api_delay=api_delay,
        )

    try:
        check_folder(directory)  # before an API server writes its kubeconfig there
        asyncio.run(_run(new_node, cluster, read_only_port))
    except (ClusterUnavailable, KubeletError, GrpcUnixError, ClientError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        what = "" if error.filename is None else f"{error.filename}: "
        raise click.ClickException(f"{what}{error.strerror or error}") from error


@kubelet.command(epilog=examples("nodeplug kubelet remove --dir /tmp/node default/train"))
@directory_option
@click.argument("pod")
def remove(directory: Path, pod: str) -> None:
    """Delete POD, a name or namespace/name, from the node."""
    ask_kubelet(directory, Request("remove", pod=pod))


@kubelet.command(epilog=examples("nodeplug kubelet restart --dir /tmp/node --kill"))
@directory_option
@click.option("--kill", is_flag=True, help="Simulate a crash: the kubelet writes nothing more before it restarts.")
def restart(directory: Path, kill: bool) -> None:
    """Restart the kubelet: sockets vanish, pods keep running, plugins must register again."""
    ask_kubelet(directory, Request("kill" if kill else "restart"))


@kubelet.command(epilog=examples("nodeplug kubelet hold --dir /tmp/node"))
@directory_option
def hold(directory: Path) -> None:
    """Disconnect the API server: a kubelet that starts now lists only static pods, until `release`."""
    ask_kubelet(directory, Request("hold"))


@kubelet.command(epilog=examples("nodeplug kubelet release --dir /tmp/node"))
@directory_option
def release(directory: Path) -> None:
    """Connect the API server again: the kubelet gets all its pods."""
    ask_kubelet(directory, Request("release"))


for command in (admit, checkpoint, status, verify):
    kubelet.add_command(command)


async def _run(
    new_node: Callable[[Cluster | None], Node],
    cluster: AbstractAsyncContextManager[Client | None],
    read_only_port: int | None,
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with cluster as client, AsyncExitStack() as stack:
        node = new_node(None if client is None else ApiCluster(client))
        await stack.enter_async_context(background(_print(node.events())))  # which listen from here on
        in_cluster = None if client is None else ClusterNode(node, client)
        control = ControlServer(node)
        await control.start()  # before the first pod runs: a client that sees it might send requests
        stack.push_async_callback(control.stop)
        await stack.enter_async_context(node)
        working: list[asyncio.Task[Any]] = [asyncio.create_task(stopped.wait())]
        if in_cluster is not None:
            working.append(asyncio.create_task(in_cluster.run()))
        if read_only_port is not None:
            working.append(asyncio.create_task(_serve_metrics(node, read_only_port)))
        await until_first(working)


async def _serve_metrics(node: Node, port: int) -> None:
    """Serve the metrics of each of the node's kubelets, until cancelled; a stopped one has none."""
    server = StatusServer(f"127.0.0.1:{port}", node.metrics, lambda: () if node.is_running else ("it is stopped",))
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run())
        await server.listening.wait()
        click.echo(f"metrics at http://127.0.0.1:{server.port}/metrics")


async def _print(events: AsyncIterator[Event]) -> None:
    async for event in events:
        if event.kind == "status":
            continue  # `kubelet status` shows the details
        click.echo(printable(" ".join(filter(None, (event.kind, event.about, event.text))), _MAX_EVENT_LENGTH))
