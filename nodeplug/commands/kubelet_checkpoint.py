"""`nodeplug kubelet checkpoint`: a kubelet's records about devices or claims, and whether it would accept them.

Exit codes: 0 it would, 1 it would not or the file is of another kind, 2 the command line is wrong.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from google.protobuf.json_format import MessageToDict

from checkpoint import kubelet_claims, kubelet_devices
from checkpoint.kubelet_claims import ClaimCheckpoint, PreparedDevice
from checkpoint.kubelet_devices import DeviceCheckpoint, PodDevices
from checkpoint.kubelet_json import CheckpointCorrupted, KubeletFileError
from kubelet.devicemanager.pod_devices import decode_response
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from nodeplug.commands.columns import aligned
from nodeplug.commands.examples import examples
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.structured import as_text

_EXAMPLE = "nodeplug kubelet checkpoint /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"

_HINT = "use the kubelet_internal_checkpoint in its device-plugins folder, or its dra_manager_state"


@click.command(epilog=examples(_EXAMPLE, "nodeplug kubelet checkpoint /var/lib/kubelet/dra_manager_state -o wide"))
@output_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def checkpoint(file: Path, output: Output) -> None:
    """Show the state of a kubelet: FILE is a kubelet_internal_checkpoint or a dra_manager_state.

    -o wide also shows the answers of plugins and drivers. If the kubelet would refuse the file, exits with 1 and
    shows the reason.
    """
    try:
        raw = file.read_bytes().strip()
        content = json.loads(raw)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error
    except ValueError as error:
        text = f"it is not a checkpoint of a kubelet, which is JSON: {error}"
        raise click.ClickException(f"{file}: {text}; {_HINT}") from error
    except RecursionError:
        raise click.ClickException(f"{file}: it is nested too deeply") from None
    if not isinstance(content, dict):
        raise click.ClickException(f"{file}: a checkpoint is a JSON object, and this is not one")
    try:
        if isinstance(content.get("Data"), str):
            claims = kubelet_claims.decode(raw)
            described, lines = _claims(claims), _claim_lines(claims, is_wide=output == "wide")
            problem = _problem(lambda: kubelet_claims.load(raw))
        else:
            devices = kubelet_devices.decode(raw)
            described, lines = _devices(devices), _device_lines(devices, is_wide=output == "wide")
            problem = _problem(lambda: kubelet_devices.load(raw))
    except KubeletFileError as error:
        raise click.ClickException(f"{file}: {error}") from error
    if output in ("json", "yaml"):
        click.echo(as_text({**described, "problem": "" if problem is None else str(problem)}, output), nl=False)
    else:
        click.echo("\n".join((*lines, "", *_verdict(problem))))
    if problem is not None:
        sys.exit(1)


def _problem(load: Callable[[], object]) -> KubeletFileError | None:
    try:
        load()
    except KubeletFileError as error:
        return error
    return None


def _verdict(problem: KubeletFileError | None) -> Iterator[str]:
    if problem is None:
        yield "checksum: good"
        return
    if isinstance(problem, CheckpointCorrupted):
        yield f"checksum: the file has {problem.stored}, its content has {problem.computed}"
    yield f"the current kubelet refuses it: {problem}"


def _devices(found: DeviceCheckpoint) -> dict[str, Any]:
    """Return a file about devices for scripts. Names and order are a contract with them."""
    return {
        "entries": [
            {
                "podUID": entry.pod_uid,
                "container": entry.container,
                "resource": entry.resource,
                "devices": [{"numaNode": node, "ids": list(ids)} for node, ids in _by_node(entry)],
                "answer": _answer(entry.response),
            }
            for entry in found.entries or ()
        ],
        "registered": {resource: list(ids or ()) for resource, ids in (found.registered or {}).items()},
    }


def _answer(encoded: bytes | None) -> dict[str, Any] | None:
    """Return a plugin's answer; None if there is none or it cannot be read."""
    response = None if encoded is None else decode_response(encoded)
    return None if response is None else MessageToDict(response)


def _by_node(entry: PodDevices) -> Iterator[tuple[int | None, Iterable[str]]]:
    """Yield NUMA nodes with their devices; None for devices without a node, or from a file without nodes."""
    if entry.flat is not None:
        yield None, entry.flat
    for node, ids in sorted((entry.by_node or {}).items()):
        yield None if node == kubelet_devices.WITHOUT_TOPOLOGY else node, ids or ()


def _device_lines(found: DeviceCheckpoint, *, is_wide: bool) -> Iterator[str]:
    header = ("POD UID", "CONTAINER", "RESOURCE", "NUMA", "DEVICES", *(("THE PLUGIN'S ANSWER",) if is_wide else ()))
    rows = [
        (
            *(entry.pod_uid, entry.container, entry.resource, "" if node is None else str(node), ", ".join(ids)),
            *((_answer_in_words(entry.response),) if is_wide else ()),
        )
        for entry in found.entries or ()
        for node, ids in [*_by_node(entry)] or [(None, ())]
    ]
    yield from aligned(header, rows)
    yield ""
    registered = ((resource, ", ".join(ids or ())) for resource, ids in (found.registered or {}).items())
    yield from aligned(("REGISTERED RESOURCE", "HEALTHY DEVICES"), registered)


def _answer_in_words(encoded: bytes | None) -> str:
    response = decode_response(encoded)
    if encoded is None or response is None:
        return "(none)" if encoded is None else "(cannot be read)"
    return "; ".join(_parts(response)) or "(empty)"


def _parts(response: api.ContainerAllocateResponse) -> Iterator[str]:
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


def _claims(found: ClaimCheckpoint) -> dict[str, Any]:
    """Return a file about claims for scripts; `devices` is None before the driver has answered."""
    return {
        "claims": [
            {
                "namespace": claim.namespace,
                "name": claim.claim_name,
                "uid": claim.claim_uid,
                "podUIDs": list(claim.pod_uids or ()),
                "drivers": [
                    {
                        "name": driver,
                        "devices": None
                        if state.devices is None
                        else [
                            {
                                "pool": x.pool_name,
                                "device": x.device_name,
                                "shareID": x.share_id or "",
                                "requests": list(x.request_names or ()),
                                "cdiDevices": list(x.cdi_device_ids or ()),
                            }
                            for x in state.devices
                        ],
                    }
                    for driver, state in (claim.driver_state or {}).items()
                ],
            }
            for claim in found.claims or ()
        ]
    }


def _claim_lines(found: ClaimCheckpoint, *, is_wide: bool) -> Iterator[str]:
    header = ("CLAIM", "UID", "POD UIDS", "DRIVER", "DEVICE")
    more = ("SHARE", "REQUESTS", "CDI DEVICES") if is_wide else ()
    rows: list[tuple[str, ...]] = []
    for claim in found.claims or ():
        owner = (f"{claim.namespace}/{claim.claim_name}", claim.claim_uid, ", ".join(claim.pod_uids or ()))
        prepared = [
            (driver, f"{x.pool_name}/{x.device_name}", *(_answer_for(x) if is_wide else ()))
            for driver, state in (claim.driver_state or {}).items()
            for x in state.devices or ()
        ]
        rows += ((*owner, *each) for each in prepared or [("", "not prepared", *("" for _ in more))])
    yield from aligned((*header, *more), rows)


def _answer_for(x: PreparedDevice) -> tuple[str, ...]:
    return x.share_id or "", ", ".join(x.request_names or ()), ", ".join(x.cdi_device_ids or ())
