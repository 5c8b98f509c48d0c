"""Device metadata (KEP-5304): what a container can read about its devices without access to the API.

A file is a stream of JSON objects: the same data in each version of the API, newest first. A reader takes the first
object that it understands. metadata_files.py defines where the files are.

Source: DRA specification, section 7, and the error texts of upstream's reader.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from dra_plugin.errors import DraPluginError
from resourceapi.objects import DecodeError, ObjectMeta, Record, from_dict, v1
from resourceapi.objects.names import dns_label, dns_subdomain

GROUP = "metadata.resource.k8s.io"
KIND = "DeviceMetadata"
VERSIONS = ("v1beta1", "v1alpha1")

_MAX_DRIVER_NAME, _MAX_POOL_NAME = 63, 253
_MAX_ATTRIBUTES = 32


class MetadataError(DraPluginError):
    """Metadata that cannot be read, written or found; the text names it and the reason."""


class DeviceEntry(Record, frozen=True):
    """The metadata of one device."""

    driver: str = ""
    pool: str = ""
    name: str = ""
    attributes: Mapping[str, v1.DeviceAttribute] = {}
    network_data: v1.NetworkDeviceData | None = None


class RequestEntry(Record, frozen=True):
    """The devices of a request; its name is as in the allocation result, `request` or `request/subrequest`."""

    name: str = ""
    devices: tuple[DeviceEntry, ...] = ()


class DeviceMetadata(Record, frozen=True):
    """One object of the stream.

    `metadata` has the claim's name, namespace and uid, and a generation that is incremented.
    """

    metadata: ObjectMeta = ObjectMeta()
    pod_claim_name: str = ""
    requests: tuple[RequestEntry, ...] = ()


def encode(metadata: Mapping[str, Any]) -> bytes:
    """Return the content of a file with this metadata of a request: a `DeviceMetadata` as a plain value."""
    objects = ({"kind": KIND, "apiVersion": f"{GROUP}/{version}", **metadata} for version in VERSIONS)
    return b"".join(msgspec.json.format(msgspec.json.encode(each), indent=2) + b"\n" for each in objects)


def read_stream(text: str, *, validate: bool = True) -> DeviceMetadata:
    """Return the first object of a stream in a known version; the rest is not read. Raises `MetadataError`.

    With `validate` names and numbers must be within the API's limits.
    """
    unknown: list[str] = []
    for value in _objects(text):
        version = _version(value)
        if version.rpartition("/")[0] != GROUP or version.rpartition("/")[2] not in VERSIONS:
            unknown.append(version)
            continue
        if value["kind"] != KIND:
            raise MetadataError(f'decode {version}: no kind "{value["kind"]}" is registered')
        try:
            found = from_dict(DeviceMetadata, {k: x for k, x in value.items() if k not in ("apiVersion", "kind")})
        except DecodeError as error:
            raise MetadataError(f"decode {version}: {error}") from None
        problem = next(_problems(found), "") if validate else ""
        if problem:
            raise MetadataError(f"decode {version}: {problem}")
        return found
    if unknown:
        raise MetadataError(f"no compatible metadata version found in stream (unknown versions: {', '.join(unknown)})")
    raise MetadataError("no metadata objects found in stream")


def read_file(path: str | Path, *, validate: bool = True) -> DeviceMetadata:
    """Return the metadata in a file. Raises `MetadataError` with its path."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeError) as error:
        raise MetadataError(f"open metadata file {path}: {error}") from error
    try:
        return read_stream(text, validate=validate)
    except MetadataError as error:
        raise MetadataError(f"{path}: {error}") from None


def read_request_folder(folder: Path) -> DeviceMetadata:
    """Return the metadata of all drivers for one request: a container's `<claim>/<request>/` has a file of each.

    Requests of the same name are merged, with the devices in the order of the files. Raises `MetadataError`.
    """
    files = sorted(folder.glob("*-metadata.json"))
    if not files:
        raise MetadataError(f"no metadata files found in {folder}")
    requests: dict[str, RequestEntry] = {}
    pod_claim = ""
    for found in map(read_file, files):
        pod_claim = pod_claim or found.pod_claim_name
        for entry in found.requests:
            known = requests.get(entry.name, RequestEntry(name=entry.name))
            requests[entry.name] = replace(known, devices=(*known.devices, *entry.devices))
    return DeviceMetadata(pod_claim_name=pod_claim, requests=tuple(requests.values()))


def _objects(text: str) -> Iterator[Any]:
    """Yield the values of a stream lazily, so that errors after the first usable one do not matter."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at = 0
    while rest := text[at:].lstrip():
        try:
            value, length = decoder.raw_decode(rest)
        except (ValueError, RecursionError) as error:
            raise MetadataError(f"read metadata object from stream: {error}") from None
        at = len(text) - len(rest) + length
        yield value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _version(value: Any) -> str:
    """Return an object's apiVersion after checking that it also has a kind."""
    if not isinstance(value, dict):
        raise MetadataError(f"decode metadata object: cannot unmarshal {type(value).__name__} into an object")
    version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(version, str) or not version:
        raise MetadataError("decode metadata object: Object 'apiVersion' is missing")
    if not isinstance(kind, str) or not kind:
        raise MetadataError(f"decode {version}: Object 'Kind' is missing")
    return version


def _problems(metadata: DeviceMetadata) -> Iterator[str]:
    for i, request in enumerate(metadata.requests):
        for j, device in enumerate(request.devices):
            place = f"requests[{i}].devices[{j}]"
            if len(device.driver) > _MAX_DRIVER_NAME or dns_subdomain(device.driver):
                yield f'{place}.driver: "{device.driver}" is no DNS subdomain of at most {_MAX_DRIVER_NAME} characters'
            if len(device.pool) > _MAX_POOL_NAME or any(map(dns_subdomain, device.pool.split("/"))):
                yield f'{place}.pool: "{device.pool}" is no pool: DNS subdomains with "/" between them'
            if dns_label(device.name):
                yield f'{place}.name: "{device.name}" is no DNS label'
            if len(device.attributes) > _MAX_ATTRIBUTES:
                yield f"{place}.attributes: {len(device.attributes)}, the limit is {_MAX_ATTRIBUTES}"
