"""`nodeplug demo`: the main job on this machine's own devices, without Kubernetes.

A stand-in kubelet and the daemon connect through real sockets in a temporary folder: discovery, registration, a pod
that gets a device, a restart of the kubelet, and a pod with a claim from YAML to CDI names. With `--watch` it keeps
running and prints events.
"""

import asyncio
import logging
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hostdevices import Diff, Host, HostDevicesError, scan
from hostdevices.printable import escaped
from kubelet.devicemanager import DeviceRunContainerOptions
from kubelet.dramanager import ApiCluster
from kubelet.node import Node
from kubelet.pods import container, pod
from nodeplug import config, logs
from nodeplug.commands.demo_claim import ms, show_claim, step
from nodeplug.commands.examples import examples
from nodeplug.commands.kubelet_api import ClusterNode
from nodeplug.commands.kubelet_cluster import KUBECONFIG, background, bundled_cluster
from nodeplug.commands.options import root_option
from nodeplug.daemon import Daemon
from nodeplug.offering import Offered
from resources.assignment import assign

_SHOWN_IDS = 3
_NODE = "node"
_CLAIMED = ("nodeplug.dev/fuse", "nodeplug.dev/kvm")  # through DRA
_PREFERRED = ("nodeplug.dev/kvm", "nodeplug.dev/fuse")  # for the pod: devices that most machines have


@click.command(epilog=examples("nodeplug demo --watch"))
@click.option("--watch", is_flag=True, help="Keep running, and print every hotplug, health change and allocation.")
@root_option
def demo(watch: bool, root: Path) -> None:
    """Show what nodeplug does, with this machine's devices and a stand-in kubelet."""
    logs.setup("warning", "text")
    try:
        host = Host(root)
    except HostDevicesError as error:
        raise click.ClickException(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="nodeplug-") as folder:
        asyncio.run(_demo(Path(folder), host, watch, Console()))


async def _demo(folder: Path, host: Host, watch: bool, console: Console) -> None:
    inventory = scan(host)
    builtin = config.builtin()
    assigned = assign(inventory, builtin.resources)
    resources = tuple(r for r in builtin.resources if assigned.devices[r.name])
    kinds = Counter(device.kind for device in inventory.devices.values())
    step(
        console,
        "Discover",
        f"{len(inventory.devices)} devices: {', '.join(f'{n} {k}' for k, n in kinds.most_common())}",
    )
    if not resources:
        console.print("None of them is of a class that the built-in configuration offers; nothing to register.")
        return
    claimed = next((name for name in _CLAIMED if assigned.devices.get(name)), resources[0].name)
    settings = msgspec.structs.replace(
        builtin.settings,
        kubelet_root=str(folder / "kubelet"),
        state_directory=str(folder / "state"),
        cdi_directory=str(folder / "cdi"),
        kubeconfig=str(folder / "kubelet" / KUBECONFIG),
        node_name=_NODE,
    )
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(bundled_cluster(folder / "kubelet", echo=lambda _: None))
        cluster = None if client is None else ApiCluster(client)
        node = Node(folder / "kubelet", cluster=cluster, node_name=_NODE, reconcile_period=0.1)
        await stack.enter_async_context(node)
        if client is not None:
            await stack.enter_async_context(background(ClusterNode(node, client).run()))
            resources = tuple(msgspec.structs.replace(r, api="both") if r.name == claimed else r for r in resources)
        events = _Events(console) if watch else None
        demo_config = msgspec.structs.replace(builtin, resources=resources, settings=settings)
        daemon = Daemon(demo_config, host, events.offered if events else None)
        running = asyncio.create_task(daemon.run())
        names = [resource.name for resource in resources]
        began = time.perf_counter()
        await _until_offered(node, names, running)
        step(console, "Register", f"{len(names)} resources in {ms(began)}; the kubelet has these:")
        console.print(_resources(node, names))
        await _show_device_plugin(console, node, names, folder / "cdi", running)
        if client is None:
            step(console, "Claim", "a pod with a claim needs an API server: install nodeplug[controlplane]")
        else:
            resource = next(each for each in resources if each.name == claimed)
            await show_claim(console, node, client, resource, settings.driver_name, folder / "cdi")
        if events is not None:
            await events.follow(node)
        running.cancel()
        await asyncio.wait([running])
    step(console, "Stop", "sockets are gone, leases stay on disk")


async def _show_device_plugin(
    console: Console, node: Node, names: Sequence[str], cdi: Path, running: "asyncio.Task[None]"
) -> None:
    """Show a pod that gets a device from the plugin, and keeps it over a restart of the kubelet."""
    wanted = next((name for name in _PREFERRED if node.allocatable().get(name)), None)
    wanted = wanted or next(name for name in names if node.allocatable().get(name))
    began = time.perf_counter()
    status = await node.admit(pod("demo", container("main", {wanted: 1})))
    step(console, "Admit", f"pod demo asks for one {wanted}: {status.phase} in {ms(began)}")
    if status.message:
        console.print(Text(f"  {status.message}"))
    options = await node.run_container_options("demo", "main")
    _print_options(console, options)
    for spec in sorted(cdi.glob("*.json")) if options.cdi_devices else ():
        console.print(Text(f"  CDI spec {spec.name}: {spec.stat().st_size} bytes"))

    step(console, "Restart the kubelet", "its sockets vanish, and the daemon waits for it")  # the daemon might log this
    began = time.perf_counter()
    await node.restart()
    await _until_offered(node, names, running)
    holds = ", ".join(node.allocations("demo", "main").get(wanted, []))
    back = f"  all {len(names)} resources are back in {ms(began)}; pod demo still has {holds}"
    console.print(Text(back), soft_wrap=True)
    console.print(_resources(node, names))


async def _until_offered(node: Node, names: Sequence[str], running: "asyncio.Task[None]") -> None:
    """Wait until the kubelet has every resource's list; raises the error of a daemon that ends meanwhile."""
    waiting = asyncio.create_task(node.until(lambda: all(name in node.devices() for name in names)))
    await asyncio.wait([waiting, running], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        waiting.cancel()
        running.result()
    await waiting


class _Events:
    """Prints events, one line each, until SIGINT."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def follow(self, node: Node) -> None:
        logging.getLogger().setLevel(logging.INFO)
        self._console.print(
            "\nWatching until Ctrl-C; plug something in, or try [bold]ip link add d0 type veth[/bold].\n"
        )
        done = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, done.set)
        printing = asyncio.ensure_future(self._print_kubelet(node))
        await done.wait()
        printing.cancel()

    def offered(self, offered: Offered, diff: Diff) -> None:
        for verb, devices in (("added", diff.added), ("removed", diff.removed), ("changed", diff.changed)):
            for device in devices:
                owner = offered.assignment.owners.get(device.id, "no resource")
                health = "" if device.health.healthy else f", unhealthy: {device.health.reason}"
                self._line("host", f"{verb} {device.id} ({owner}){health}")

    async def _print_kubelet(self, node: Node) -> None:
        async for event in node.events():
            self._line("kubelet", " ".join(filter(None, (event.kind, event.about, event.text))))

    def _line(self, source: str, text: str) -> None:
        self._console.print(Text(f"{time.strftime('%H:%M:%S')} {source:8}{escaped(text)}"), soft_wrap=True)


def _resources(node: Node, names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, justify in (("RESOURCE", "left"), ("CAPACITY", "right"), ("ALLOCATABLE", "right")):
        table.add_column(column, justify="right" if justify == "right" else "left", no_wrap=True)
    table.add_column("DEVICE IDS")
    table.add_column("NUMA", no_wrap=True)
    capacity, allocatable, devices = node.capacity(), node.allocatable(), node.devices()
    for name in names:
        numa = sorted({node_id for device in devices[name].values() for node_id in device.nodes})
        table.add_row(
            name,
            str(capacity.get(name, 0)),
            str(allocatable.get(name, 0)),
            escaped(_named(list(devices[name]))),
            ",".join(map(str, numa)) or "-",
        )
    return table


def _named(ids: Sequence[str]) -> str:
    """Return the first and the last of many ids."""
    return ", ".join(ids) if len(ids) <= _SHOWN_IDS else f"{ids[0]} ... {ids[-1]}"


def _print_options(console: Console, options: DeviceRunContainerOptions) -> None:
    parts = {
        "environment": [f"{env.name}={env.value}" for env in options.envs],
        "device nodes": [f"{d.path_on_host} -> {d.path_in_container} ({d.permissions})" for d in options.devices],
        "CDI devices": [device.name for device in options.cdi_devices],
        "mounts": [f"{m.host_path} -> {m.container_path}" for m in options.mounts],
        "annotations": [f"{a.name}={a.value}" for a in options.annotations],
    }
    for what, values in parts.items():
        for value in values or ["none"]:
            console.print(Text(f"  {what:14}{escaped(value)}"))
