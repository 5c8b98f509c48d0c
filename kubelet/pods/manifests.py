"""Reads pods from manifests and from an API server, with the defaults that a kubelet relies on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kubelet.errors import KubeletError
from resourceapi.manifests import ManifestError, read_documents
from resourceapi.objects import DecodeError, ErrorList, Quantity, from_dict
from resourceapi.objects.core import Container, Pod, PodStatus
from resourceapi.objects.names import is_extended_resource

_ZERO = Quantity.parse("0")


class PodFileError(KubeletError):
    """A file does not contain valid pods; the message names the file and the field."""


def load_pods(path: Path) -> list[Pod]:
    """Read the pods of a YAML file (several documents, or a List). Raises `PodFileError`."""
    try:
        documents = read_documents(path.read_bytes())
    except (OSError, ManifestError) as error:
        raise PodFileError(f"{path}: {error}") from error
    pods = [decode_pod(document, str(path)) for document in _items(documents)]
    if not pods:
        raise PodFileError(f"{path}: no pod in it")
    return pods


def decode_pod(document: Any, source: str) -> Pod:
    """Return the pod for a JSON value from the API server or a YAML file; errors name `source`.

    `kind` and `apiVersion` are optional. Raises `PodFileError`.
    """
    if not isinstance(document, dict) or document.get("kind", "Pod") != "Pod":
        kind = document.get("kind") if isinstance(document, dict) else type(document).__name__
        raise PodFileError(f"{source}: kind {kind}, but only pods can be admitted")
    if not {"kind", "metadata"} & document.keys():
        raise PodFileError(f"{source}: no pod in it: kind and metadata are missing")
    members = {key: item for key, item in document.items() if key not in ("apiVersion", "kind")}
    try:
        pod = from_dict(Pod, members)
    except DecodeError as error:
        raise PodFileError(f"{source}: {error}") from error
    if not pod.metadata.name or not members.get("spec"):
        raise PodFileError(f"{source}: {'spec' if pod.metadata.name else 'metadata.name'}: Required value")
    if errors := _errors_of_containers(pod):
        raise PodFileError(f"{source}: {errors[0]}")
    return for_admission(pod)


def for_admission(pod: Pod) -> Pod:
    """Return the pod with defaults; of its status only the claims are kept, because the kubelet observes the rest."""
    metadata = msgspec.structs.replace(pod.metadata, namespace=pod.metadata.namespace or "default")
    spec = msgspec.structs.replace(pod.spec, restart_policy=pod.spec.restart_policy or "Always")
    status = PodStatus(
        resource_claim_statuses=pod.status.resource_claim_statuses,
        extended_resource_claim_status=pod.status.extended_resource_claim_status,
    )
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status)


def _errors_of_containers(pod: Pod) -> ErrorList:
    """Return the errors that an API server would report, in its words, about parts that a kubelet relies on."""
    errors, names = ErrorList(), set[str]()
    for field, containers in (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers)):
        for index, each in enumerate(containers):
            path = f"spec.{field}[{index}]"
            if not each.name:
                errors.required(f"{path}.name")
            elif each.name in names:
                errors.duplicate(f"{path}.name", each.name)
            names.add(each.name)
            _check_amounts(errors, each, f"{path}.resources")
    if not pod.spec.containers:
        errors.required("spec.containers")
    return errors


def _check_amounts(errors: ErrorList, container: Container, path: str) -> None:
    for field, amounts in (("limits", container.resources.limits), ("requests", container.resources.requests)):
        for name, amount in amounts.items():
            if amount < _ZERO:
                errors.invalid(f"{path}.{field}[{name}]", str(amount), "must be greater than or equal to 0")
            elif is_extended_resource(name) and amount.milli_value() % 1000:
                errors.invalid(f"{path}.{field}[{name}]", str(amount), "must be an integer")
    limits = container.resources.limits
    for name, amount in container.resources.requests.items():
        if is_extended_resource(name) and name not in limits:
            errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif is_extended_resource(name) and amount != limits[name]:
            errors.invalid(f"{path}.requests", str(amount), f"must be equal to {name} limit of {limits[name]}")


def _items(documents: list[Any]) -> Iterator[Any]:
    for document in documents:
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            yield from document["items"]
        elif document is not None:
            yield document
