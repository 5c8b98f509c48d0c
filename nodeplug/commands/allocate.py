"""`nodeplug allocate`: which devices the scheduler would allocate to claims, on which nodes, or why none.

Exit codes: 0 a node can serve the claims, 1 no node can, 2 the input cannot be used.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml
from msgspec.structs import replace

from controlplane.structured import DeviceClasses, Features
from controlplane.structured.explain import Explainer, NodeReport
from nodeplug.commands.allocate_input import AllocatorInput, InputError, read_files, what_if
from nodeplug.commands.examples import examples
from nodeplug.commands.failure import Failure
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.seconds import Seconds
from resourceapi.objects import to_dict, write_object
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import ResourceClaim

BAD_INPUT = 2


@click.command(
    epilog=examples(
        "nodeplug allocate claims.yaml nodes/",
        "nodeplug allocate --kubeconfig ~/.kube/config --claim default/gpus",
        "nodeplug allocate cluster/ --what-if +node/worker-9~worker-1",
    )
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Read the objects of this API server; FILES are added to them.",
)
@click.option("--claim", "claims", multiple=True, metavar="[NS/]NAME", help="Allocate this claim; repeatable.")
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Try only this node; repeatable.")
@click.option(
    "--what-if",
    "changes",
    multiple=True,
    metavar="CHANGE",
    help="+FILE, +KIND/NEW~OLD or -KIND/NAME; KIND is claim, node, slice, class or device (DRIVER/POOL/NAME).",
)
@click.option(
    "--timeout", type=Seconds(), default=10.0, show_default=True, metavar="SECONDS", help="Limit for each search."
)
@output_option
def allocate(
    files: tuple[Path, ...],
    kubeconfig: Path | None,
    claims: tuple[str, ...],
    nodes: tuple[str, ...],
    changes: tuple[str, ...],
    timeout: float,
    output: Output,
) -> None:
    """Allocate the claims in FILES like Kubernetes' scheduler, and show why a node cannot serve them.

    FILES are YAML or JSON files or folders with claims, classes, slices and nodes, as `kubectl get -o yaml` prints
    them; - is the standard input. All claims without an allocation are allocated together, on one node. Claims with
    an allocation keep their devices. -o yaml prints the claims as allocated on the first node that can serve them. -o
    wide shows each node separately, with the claim, share and consumed capacity of each device.
    """
    try:
        cluster = _read(files, kubeconfig)
        before = None
        if changes:
            before = _reports(cluster, claims, nodes, timeout, must_exist=False)
            for change in changes:
                cluster = what_if(cluster, change)
        reports = _reports(cluster, claims, nodes, timeout)
    except InputError as error:
        raise Failure(str(error), BAD_INPUT) from None
    fits = [report for report in reports if report.allocations is not None]
    if output == "json":
        click.echo(json.dumps({"nodes": [_plain(report) for report in reports]}, indent=2))
    elif output == "yaml":
        if fits:
            click.echo(_yaml(_wanted(cluster, claims), fits[0]), nl=False)
        else:
            reasons = [f"{report.node}: {report.reason}" for report in reports]
            raise Failure("no node can serve the claims", findings=reasons)
    else:
        from nodeplug.commands.allocate_table import show  # rich: for tables only

        show(reports, before, None if output == "table" else list(map(_name, _wanted(cluster, claims))))
    if not fits:
        sys.exit(1)


def _read(files: Sequence[Path], kubeconfig: Path | None) -> AllocatorInput:
    if kubeconfig is None:
        if not files:
            raise InputError("give files, folders, - for the standard input, or a server with --kubeconfig")
        return read_files(files)
    from nodeplug.commands.allocate_server import read_server  # HTTP: for servers only

    return read_files(files, read_server(kubeconfig))


def _reports(
    cluster: AllocatorInput, names: Sequence[str], node_names: Sequence[str], timeout: float, *, must_exist: bool = True
) -> list[NodeReport]:
    claims = _wanted(cluster, names, must_exist=must_exist)
    nodes = _nodes(cluster, node_names, must_exist=must_exist)
    explainer = Explainer(
        Features(),
        cluster.state,
        DeviceClasses(cluster.classes.values()),
        cluster.tainted_slices,
        holders=cluster.holders,
        timeout=timeout,
    )
    return [explainer.report(node, claims) for node in nodes]


def _wanted(cluster: AllocatorInput, names: Sequence[str], *, must_exist: bool = True) -> list[ResourceClaim]:
    if not names:
        pending = cluster.pending
        if not pending and must_exist:
            skipped = f" ({cluster.skipped} objects of other kinds were skipped)" if cluster.skipped else ""
            raise InputError(f"there is no claim without an allocation and no claim template{skipped}")
        return pending
    known = {**{_name(claim): claim for claim in cluster.pending}, **cluster.claims}
    wanted = []
    for name in names:
        found = [claim for key, claim in known.items() if name in (key, claim.metadata.name)]
        if len(found) > 1:
            raise InputError(f"--claim {name}: there are {', '.join(map(_name, found))}; name one as NAMESPACE/NAME")
        if found and found[0].status.allocation is not None:
            raise InputError(
                f"--claim {name}: is allocated already; deallocate it with --what-if -claim/{_name(found[0])}"
            )
        if not found and must_exist:
            raise InputError(f"--claim {name}: no such claim; there are {', '.join(known) or 'none'}")
        wanted += found
    return wanted


def _nodes(cluster: AllocatorInput, names: Sequence[str], *, must_exist: bool = True) -> list[Node]:
    nodes = {node.metadata.name: node for node in cluster.all_nodes}
    missing = [name for name in names if name not in nodes]
    if missing and must_exist:
        raise InputError(f"--node {missing[0]}: no such node; there are {', '.join(nodes)}")
    return [nodes[name] for name in names if name in nodes] if names else list(nodes.values())


def _name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}" if claim.metadata.namespace else claim.metadata.name


def _plain(report: NodeReport) -> dict[str, Any]:
    """Return a report for scripts. Names and order are a contract with them."""
    allocations = None if report.allocations is None else [to_dict(each) for each in report.allocations]
    requests = [{**msgspec.to_builtins(request), "left": request.left} for request in report.requests]
    return {
        "node": report.node,
        "allocations": allocations,
        "reason": report.reason,
        "error": report.error,
        "pools": list(report.pools),
        "requests": requests,
    }


def _yaml(claims: Sequence[ResourceClaim], report: NodeReport) -> str:
    allocated = [
        write_object(replace(claim, status=replace(claim.status, allocation=allocation)))
        for claim, allocation in zip(claims, report.allocations or (), strict=True)
    ]
    return yaml.safe_dump_all(allocated, sort_keys=False)
