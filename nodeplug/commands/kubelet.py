"""`nodeplug kubelet`: a stand-in kubelet for plugins under development, and a reader of the real one's state files."""

import asyncio
import json
import logging
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checkpoint import kubelet_claims, kubelet_devices
from checkpoint.kubelet_json import CheckpointCorrupted, KubeletFileError
from grpcunix import GrpcUnixError
from hostdevices.shown import escaped, shown
from kubelet import DEFAULT_VERSION, RELEASES, KubeletError, Node, Pod, Version, load_pods
from kubelet.control import ControlReply, ControlServer, Request, ask
from kubelet.devicemanager.pod_devices import decode_response
from kubelet.dramanager import ApiCluster, Cluster
from kubelet.node import check_folder
from kubelet.pods.cgroups import CgroupDriver
from kubelet.topology import Policy, Scope
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from nodeplug.commands.choice import Choice
from nodeplug.commands.examples import examples
from nodeplug.commands.group import CommandGroup
from nodeplug.commands.kubelet_api import ClusterNode
from nodeplug.commands.kubelet_cluster import (
    ClusterUnavailable,
    background,
    brought_along,
    found_by,
    none,
    until_first,
)
from nodeplug.commands.kubelet_verify import verify
from resourceapi.client import Client, ClientError

_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_directory = click.option("--dir", "directory", required=True, type=_FOLDER, help="Where the kubelet runs.")
_kubernetes = click.option(
    "--kubernetes",
    type=Choice(sorted(RELEASES)),
    default=DEFAULT_VERSION,
    show_default=True,
    help="Behave as the kubelet of this release.",
)
_LONGEST_EVENT = 4_000  # characters of a line; plugins and pods call themselves what they like
_API_DELAY = 1.0  # seconds from the start of a real kubelet until its API server has told it of its pods


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
    """A kubelet for devices, without Kubernetes: run plugins against it, and read what a real one wrote."""


@kubelet.command(epilog=examples("nodeplug kubelet run --dir /tmp/node"))
@_directory
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
@click.option("--node-name", default="node", show_default=True, help="The node's name in the cluster.")
@click.option(
    "--static-pods",
    type=_FILE,
    multiple=True,
    help="Run the pods of this YAML file as static pods, which need no API server.",
)
@click.option("--cgroup-root", type=_FOLDER, help="Make the cgroups of pods below this folder.  [default: none]")
@click.option(
    "--cgroup-driver",
    type=Choice(["systemd", "cgroupfs"]),
    default="systemd",
    show_default=True,
    help="Who spells the names of cgroups.",
)
@click.option(
    "--api-delay",
    type=click.FloatRange(min=0),
    default=_API_DELAY,
    show_default=True,
    help="Seconds until the API server has told a kubelet that starts of its pods.",
)
@click.option(
    "--apiserver/--no-apiserver",
    "with_server",
    default=None,
    help="Bring an API server and a scheduler along.  [default: where nodeplug[controlplane] is installed]",
)
@click.option("--kubeconfig", type=_FILE, help="Be a node of the cluster that this kubeconfig leads to, instead.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The API server's port.  [default: a free one]")
@click.option("--tls", is_flag=True, help="The API server serves with TLS.")
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
    static_pods: tuple[Path, ...],
    cgroup_root: Path | None,
    cgroup_driver: CgroupDriver,
    api_delay: float,
    with_server: bool | None,
    kubeconfig: Path | None,
    port: int,
    tls: bool,
    load: tuple[Path, ...],
) -> None:
    """Keep a stand-in kubelet alive below a folder, and print what happens. Ends with SIGINT or SIGTERM.

    Plugins and DRA drivers register at DIR/device-plugins/kubelet.sock or in DIR/plugins_registry; DIR/pod-resources
    answers who has what. With its API server, whose kubeconfig is DIR/kubeconfig, it runs the pods that kubectl
    creates, claims included. `admit`, `remove`, `restart`, `hold`, `release` and `status` talk to the kubelet alone.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_Escaped("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    if kubeconfig is not None and (with_server or load or port or tls):
        text = "--kubeconfig names another API server: it goes without --apiserver, --port, --tls and --load"
        raise click.UsageError(text)
    if with_server is False and (load or port or tls):
        raise click.UsageError("--load, --port and --tls are for the API server")
    if kubeconfig is not None:
        cluster = found_by(kubeconfig)
    elif with_server is False:
        cluster = none()
    else:
        is_wanted = bool(with_server or load or port or tls)
        cluster = brought_along(directory, port, load, is_wanted=is_wanted, tls=tls, kubernetes=kubernetes)

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
            static_pods=[pod for path in static_pods for pod in _pods(path)],
            cgroups=cgroup_root,
            cgroup_driver=cgroup_driver,
            api_delay=api_delay,
        )

    try:
        check_folder(directory)  # before an API server writes there how it is found
        asyncio.run(_run(new_node, cluster))
    except (ClusterUnavailable, KubeletError, GrpcUnixError, ClientError, OSError) as error:
        raise click.ClickException(str(error)) from error


@kubelet.command(epilog=examples("nodeplug kubelet admit --dir /tmp/node pod.yaml"))
@_directory
@click.argument("files", nargs=-1, required=True, type=_FILE)
def admit(directory: Path, files: tuple[Path, ...]) -> None:
    """Admit the pods of YAML FILES, in order; exits with 1 if one is rejected."""
    rejected = False
    for path in files:
        for pod in _pods(path):
            found = _ask(directory, Request("admit", admit=pod))
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            status = next(each.status for each in reversed(found.pods) if each.name == name)
            click.echo(f"{name} {status.phase}{f' {status.reason}: {status.message}' if status.reason else ''}")
            rejected = rejected or status.phase == "Failed"
    sys.exit(int(rejected))


@kubelet.command(epilog=examples("nodeplug kubelet remove --dir /tmp/node default/train"))
@_directory
@click.argument("pod")
def remove(directory: Path, pod: str) -> None:
    """Delete POD, a name or namespace/name, from the node."""
    _ask(directory, Request("remove", pod=pod))


@kubelet.command(epilog=examples("nodeplug kubelet restart --dir /tmp/node --kill"))
@_directory
@click.option("--kill", is_flag=True, help="Let it crash: nothing more is written to its state files.")
def restart(directory: Path, kill: bool) -> None:
    """Restart the kubelet: sockets vanish, pods keep running, plugins must register again."""
    _ask(directory, Request("kill" if kill else "restart"))


@kubelet.command(epilog=examples("nodeplug kubelet hold --dir /tmp/node"))
@_directory
def hold(directory: Path) -> None:
    """Let the API server be away: a kubelet that starts now lists no pods but static ones, until `release`."""
    _ask(directory, Request("hold"))


@kubelet.command(epilog=examples("nodeplug kubelet release --dir /tmp/node"))
@_directory
def release(directory: Path) -> None:
    """Let the API server be back: the kubelet hears of all its pods."""
    _ask(directory, Request("release"))


@kubelet.command(epilog=examples("nodeplug kubelet status --dir /tmp/node"))
@_directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(directory: Path, as_json: bool) -> None:
    """Show the node's devices and pods."""
    found = _ask(directory, Request("status"))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found), indent=1))
        return
    console = _console()
    resources = Table("resource", "capacity", "allocatable", "devices")
    for name, view in found.resources.items():
        health = Counter(view.devices.values())
        shown = ", ".join(f"{count} {word or '(none)'}" for word, count in sorted(health.items()))
        resources.add_row(*map(_cell, (name, str(view.capacity), str(view.allocatable), shown)))
    pods = Table("pod", "phase", "container", "state", "devices")
    for pod in found.pods:
        told = pod.status.phase if not pod.status.reason else f"{pod.status.reason}: {pod.status.message}"
        states = {each.name: each for each in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
        for index, (container, devices) in enumerate(pod.allocations.items()):
            given = [f"{resource}: {', '.join(ids)}" for resource, ids in devices.items()]
            given += [f"claims: {', '.join(ids)}"] if (ids := pod.claimed.get(container)) else []
            state = states.get(container)
            word = "" if state is None else " ".join(filter(None, (state.state, state.reason, state.message)))
            first = (pod.name, told) if index == 0 else ("", "")
            pods.add_row(*map(_cell, (*first, container, word, "; ".join(given))))
    console.print(resources)
    console.print(pods)


@kubelet.command(
    epilog=examples("nodeplug kubelet checkpoint /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
)
@click.argument("file", type=_FILE)
def checkpoint(file: Path) -> None:
    """Show what a kubelet remembers: FILE is a kubelet_internal_checkpoint or a dra_manager_state.

    Exits with 1 if the kubelet would not take it, and says why.
    """
    try:
        raw = file.read_bytes().strip()
        content = json.loads(raw)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    except RecursionError:
        raise click.ClickException(f"{file}: it is nested too deeply") from None
    if not isinstance(content, dict):
        raise click.ClickException(f"{file}: a checkpoint is a JSON object, this is none")
    is_claims = isinstance(content.get("Data"), str)
    try:
        problem = _show_claims(raw) if is_claims else _show_devices(raw)
    except KubeletFileError as error:
        raise click.ClickException(f"{file}: {error}") from error
    if problem is None:
        click.echo("checksum: good")
        return
    if isinstance(problem, CheckpointCorrupted):
        click.echo(f"checksum: the file says {problem.stored}, its content gives {problem.computed}")
    click.echo(f"a kubelet of today refuses it: {problem}")
    sys.exit(1)


kubelet.add_command(verify)


async def _run(new_node: Callable[[Cluster | None], Node], cluster: AbstractAsyncContextManager[Client | None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with cluster as client, AsyncExitStack() as stack:
        node = new_node(None if client is None else ApiCluster(client))
        await stack.enter_async_context(background(_print_events(node)))
        await asyncio.sleep(0)  # it listens before anything happens
        in_cluster = None if client is None else ClusterNode(node, client)
        control = ControlServer(node)
        await control.start()  # before the first pod runs: whoever sees that may ask for more
        stack.push_async_callback(control.stop)
        await stack.enter_async_context(node)
        working: list[asyncio.Task[Any]] = [asyncio.create_task(stopped.wait())]
        if in_cluster is not None:
            working.append(asyncio.create_task(in_cluster.run()))
        await until_first(working)


async def _print_events(node: Node) -> None:
    async for event in node.events():
        if event.kind == "status":
            continue  # `kubelet status` shows the details
        click.echo(shown(" ".join(filter(None, (event.kind, event.about, event.text))), _LONGEST_EVENT))


def _cell(text: str) -> str:
    """Text for a table: what plugins and files say controls neither it nor the terminal."""
    return escape(escaped(text))


class _Escaped(logging.Formatter):
    """The same for a line of the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        return escaped(super().formatMessage(record))


def _show_devices(raw: bytes) -> KubeletFileError | None:
    found = kubelet_devices.decode(raw)
    table = Table("pod", "container", "resource", "NUMA", "devices", "what the plugin answered")
    for entry in found.entries or ():
        owner = (entry.pod_uid, entry.container, entry.resource)
        told = _told(entry.response)
        groups = [("?", entry.flat)] if entry.flat is not None else sorted((entry.by_node or {}).items())
        for index, (node, ids) in enumerate(groups or [("", ())]):
            place = "-" if node == kubelet_devices.WITHOUT_TOPOLOGY else str(node)
            first = (*owner, place, ", ".join(ids or ()), told)
            table.add_row(*map(_cell, first if index == 0 else ("", "", "", *first[3:5], "")))
    console = _console()
    console.print(table)
    registered = Table("registered resource", "healthy devices")
    for resource, ids in (found.registered or {}).items():
        registered.add_row(*map(_cell, (resource, ", ".join(ids or ()) or "(none)")))
    console.print(registered)
    return _problem(lambda: kubelet_devices.load(raw))


def _show_claims(raw: bytes) -> KubeletFileError | None:
    found = kubelet_claims.decode(raw)
    table = Table("claim", "uid", "pods", "driver", "pool/device", "requests", "CDI")
    for claim in found.claims or ():
        owner = (f"{claim.namespace}/{claim.claim_name}", claim.claim_uid, ", ".join(claim.pod_uids or ()))
        rows = [
            (
                driver,
                f"{d.pool_name}/{d.device_name}",
                ", ".join(d.request_names or ()),
                ", ".join(d.cdi_device_ids or ()),
            )
            for driver, state in (claim.driver_state or {}).items()
            for d in state.devices or ()
        ]
        for index, row in enumerate(rows or [("", "not prepared", "", "")]):
            table.add_row(*map(_cell, (*(owner if index == 0 else ("", "", "")), *row)))
    _console().print(table)
    return _problem(lambda: kubelet_claims.load(raw))


def _problem(load: Callable[[], object]) -> KubeletFileError | None:
    try:
        load()
    except KubeletFileError as error:
        return error
    return None


def _told(encoded: bytes | None) -> str:
    """A plugin's answer in words."""
    response = decode_response(encoded)
    if encoded is None or response is None:
        return "(none)" if encoded is None else "(cannot be read)"
    return "\n".join(_lines(response)) or "(empty)"


def _lines(response: api.ContainerAllocateResponse) -> Iterable[str]:
    for name, value in sorted(response.envs.items()):
        yield f"env {name}={value}"
    for device in response.devices:
        yield f"device {device.host_path} -> {device.container_path} {device.permissions}"
    for mount in response.mounts:
        yield f"mount {mount.host_path} -> {mount.container_path}{' read-only' if mount.read_only else ''}"
    for name, value in sorted(response.annotations.items()):
        yield f"annotation {name}={value}"
    for cdi in response.cdi_devices:
        yield f"CDI {cdi.name}"


def _pods(path: Path) -> list[Pod]:
    try:
        return load_pods(path)
    except KubeletError as error:
        raise click.ClickException(str(error)) from error


def _ask(directory: Path, request: Request) -> ControlReply:
    try:
        return asyncio.run(ask(directory, request))
    except KubeletError as error:
        raise click.ClickException(str(error)) from error


def _console() -> Console:
    """Wide where nobody reads it on a screen, so that nothing is cut off in a file or a pipe."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)
