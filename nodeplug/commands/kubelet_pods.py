"""`nodeplug kubelet admit` and `status`: pods and devices of a stand-in kubelet that runs in another process."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import Struct

from hostdevices.printable import escaped
from kubelet import KubeletError, Pod, load_pods
from kubelet.control import ControlReply, PodView, Request, ask
from kubelet.pods import unknown_fields
from nodeplug.commands.columns import aligned
from nodeplug.commands.examples import examples
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.structured import as_text
from resourceapi.objects import to_dict
from resourceapi.objects.core import ContainerState

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
directory_option = click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the kubelet runs.",
)


class _Admitted(Struct, frozen=True):
    pods: tuple[PodView, ...]


@click.command(
    epilog=examples(
        "nodeplug kubelet admit --dir /tmp/node pod.yaml", "nodeplug kubelet admit --dir /tmp/node pod.yaml -o wide"
    )
)
@directory_option
@output_option
@click.argument("files", nargs=-1, required=True, type=FILE)
def admit(directory: Path, output: Output, files: tuple[Path, ...]) -> None:
    """Admit the pods of YAML FILES, in order; exits with 1 if one is rejected.

    -o wide also shows what each container got.
    """
    admitted: list[PodView] = []
    for pod in (each for path in files for each in read_pods(path)):
        found = ask_kubelet(directory, Request("admit", admit=to_dict(pod)))
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        view = next(each for each in reversed(found.pods) if each.name == name)
        admitted.append(view)
        if output in ("table", "wide"):  # data is one answer, at the end
            click.echo(escaped(f"{name} {view.pod_status.phase} {_reason(view)}".rstrip()))
        if output == "wide":
            for container, devices in _devices(view):
                click.echo(escaped(f"  {container}  {devices or 'no devices'}"))
    if output in ("json", "yaml"):
        click.echo(as_text(_Admitted(tuple(admitted)), output), nl=False)
    sys.exit(int(any(each.pod_status.phase == "Failed" for each in admitted)))


@click.command(
    epilog=examples("nodeplug kubelet status --dir /tmp/node", "nodeplug kubelet status --dir /tmp/node -o json")
)
@directory_option
@output_option
def status(directory: Path, output: Output) -> None:
    """Show the node's devices and pods."""
    found = ask_kubelet(directory, Request("status"))
    if output in ("json", "yaml"):
        click.echo(as_text(found, output), nl=False)
    else:
        click.echo("\n".join(_lines(found, is_wide=output == "wide")))


def read_pods(path: Path) -> list[Pod]:
    """Return the pods of a file, and print a warning for each unknown field. Raises `click.ClickException`."""
    try:
        pods = load_pods(path)
    except KubeletError as error:
        raise click.ClickException(str(error)) from error
    for pod in pods:
        for problem in unknown_fields(pod):
            click.echo(escaped(f"Warning: {path}: pod {pod.metadata.name}: {problem}"), err=True)
    return pods


def ask_kubelet(directory: Path, request: Request) -> ControlReply:
    """Return the answer of a folder's kubelet. Raises `click.ClickException`."""
    try:
        return asyncio.run(ask(directory, request))
    except KubeletError as error:
        raise click.ClickException(str(error)) from error


def _lines(found: ControlReply, *, is_wide: bool) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    for name, view in found.resources.items():
        health = Counter(view.devices.values())
        counts = ", ".join(f"{count} {word or '(none)'}" for word, count in sorted(health.items()))
        ids = ", ".join(f"{id_} {word or '(none)'}" for id_, word in view.devices.items())
        rows.append((name, str(view.capacity), str(view.allocatable), ids if is_wide else counts))
    yield from aligned(("RESOURCE", "CAPACITY", "ALLOCATABLE", "DEVICES"), rows)
    yield ""
    has_uids = is_wide or len({pod.name for pod in found.pods}) < len(found.pods)  # else names distinguish them
    has_reasons = any(pod.pod_status.reason for pod in found.pods)
    header = ("POD", "PHASE", "CONTAINER", "STATE", "DEVICES")
    more = (*(("POD UID",) if has_uids else ()), *(("REASON",) if has_reasons else ()))  # reasons are long: the last
    yield from aligned((*header, *more), _pod_rows(found, has_uids=has_uids, has_reasons=has_reasons))
    if is_wide:
        yield ""
        yield from aligned(("DRA DRIVER",), ((driver,) for driver in found.drivers))


def _pod_rows(found: ControlReply, *, has_uids: bool, has_reasons: bool) -> Iterator[tuple[str, ...]]:
    for pod in found.pods:
        status = pod.pod_status
        more = (*((pod.uid,) if has_uids else ()), *((_reason(pod),) if has_reasons else ()))
        states = {each.name: _state_in_words(each.state) for each in status.all_containers}
        for container, devices in _devices(pod):
            yield (pod.name, status.phase, container, states.get(container, ""), devices, *more)


def _state_in_words(state: ContainerState) -> str:
    return " ".join(
        word
        for name, details in to_dict(state).items()
        for word in (name, details.get("reason"), details.get("message"))
        if word
    )


def _reason(pod: PodView) -> str:
    """Return why a pod was rejected or has failed; empty if it was not."""
    found = pod.pod_status
    return f"{found.reason}: {found.message}" if found.reason else ""


def _devices(pod: PodView) -> Iterator[tuple[str, str]]:
    """Yield each container with its devices."""
    for container, devices in pod.allocations.items():
        parts = [f"{resource}: {', '.join(ids)}" for resource, ids in devices.items()]
        if ids := pod.claimed.get(container):
            parts.append(f"claims: {', '.join(ids)}")
        yield container, "; ".join(parts)
