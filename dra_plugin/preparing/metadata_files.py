"""The metadata files of claims on the host, and the CDI devices that mount them into containers.

All files are in one folder, one per claim and base request (`<uid>~<request>.json`), because creating a folder costs
more than writing the file. Containers see the paths of KEP-5304 nevertheless. A CDI spec per claim has the devices of
all its requests. Blocking: call from a thread.

Rule: removing a file that could never have been written succeeds at once, so that every lease can be undone.

Source: DRA specification 7.2 to 7.5.
"""

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import cdi
from dra_plugin.driver import ClaimRef
from dra_plugin.preparing.metadata import (
    DeviceEntry,
    DeviceMetadata,
    MetadataError,
    RequestEntry,
    encode,
    read_file,
)
from resourceapi.objects import ObjectMeta, to_dict, v1
from resourceapi.objects.names import dns_label

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""The annotation of generated claims: the pod's name for the claim."""

_IN_CONTAINERS = "/var/run/kubernetes.io/dra-device-attributes"
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


class RequestMetadata(Struct, frozen=True):
    """The metadata of one base request, as a claim's lease stores it: `content` is a `DeviceMetadata`."""

    request: str
    content: Mapping[str, Any]


def pod_claim_name(claim: v1.ResourceClaim) -> str:
    """Return the pod's name for a generated claim; empty for other claims.

    Any user can annotate a claim: a value that is not a valid name is ignored.
    """
    name = claim.metadata.annotations.get(POD_CLAIM_NAME, "")
    return name if name and not dns_label(name) else ""


def describe(claim: v1.ResourceClaim, devices: Sequence[tuple[str, DeviceEntry]]) -> tuple[RequestMetadata, ...]:
    """Return the metadata of a claim's `devices`, which come with the names of their requests."""
    metadata = ObjectMeta(
        name=claim.metadata.name, namespace=claim.metadata.namespace, uid=claim.metadata.uid, generation=1
    )
    entries: dict[str, RequestEntry] = {}
    for request, device in devices:
        base = base_request(request)
        entry = entries.get(base, RequestEntry(name=request))
        entries[base] = replace(entry, devices=(*entry.devices, device))
    return tuple(
        RequestMetadata(
            base,
            to_dict(DeviceMetadata(metadata=metadata, pod_claim_name=pod_claim_name(claim), requests=(entry,))),
        )
        for base, entry in entries.items()
    )


def base_request(request: str) -> str:
    """Return the name of the request that containers refer to: `gpu` for `gpu/large`."""
    return request.partition("/")[0]


def cdi_device_id(driver: str, uid: str, request: str) -> str:
    """Return the CDI device that mounts the file of a base request. Raises `CdiError` if the name is invalid."""
    return cdi.qualified_name(_kind(driver), _device_name(uid, request))


class MetadataFolder:
    """The metadata files of one driver below `<plugin data folder>/dra-device-metadata`."""

    def __init__(self, path: Path, driver: str) -> None:
        """Prepare; no file is touched yet."""
        self._path = os.fspath(path)
        self._driver = driver

    def file(self, uid: str, request: str) -> str:
        """Return the path of a claim's metadata for a base request. Raises `MetadataError` for invalid names."""
        for name in (uid, request):
            if not name or "/" in name or "\0" in name or name.startswith("."):
                raise MetadataError(f"claim {uid}: {name!r} cannot be a part of a path")
        return f"{self._path}/{uid}~{request}.json"

    def write(self, uid: str, metadata: RequestMetadata) -> None:
        """Write a request's file. Raises `MetadataError` with the request and the cause."""
        try:
            # not synced: the claim's lease has the content and restores it if a power cut makes the file unreadable
            cdi.replace_file(self.file(uid, metadata.request), encode(metadata.content))
        except OSError as error:
            raise MetadataError(f'write metadata for request "{metadata.request}": {error}') from error

    def read(self, uid: str, request: str) -> DeviceMetadata | None:
        """Return the metadata in a file; None if there is no file or it cannot be read."""
        try:
            return read_file(self.file(uid, request), validate=False)
        except MetadataError:
            return None

    def remove(self, uid: str) -> None:
        """Remove a claim's files, if there are any. Raises OSError."""
        for name in self._names():
            if _uid_in(name) == uid:
                self._remove(name)

    def remove_others(self, uids: Collection[str]) -> None:
        """Remove all files except those of these claims. Raises OSError."""
        for name in self._names():
            if _uid_in(name) not in uids:
                self._remove(name)

    def cdi_spec(self, claim: ClaimRef, metadata: Sequence[RequestMetadata]) -> cdi.Spec:
        """Describe to the runtime where containers find the files of a claim."""
        devices = []
        for each in metadata:
            mount = cdi.Mount(
                host_path=self.file(claim.uid, each.request),
                container_path=self._in_container(claim, each),
                options=("ro", "bind"),
            )
            edits = cdi.ContainerEdits(mounts=(mount,))
            devices.append(cdi.Device(name=_device_name(claim.uid, each.request), container_edits=edits))
        return cdi.Spec.of(_kind(self._driver), devices)

    def _in_container(self, claim: ClaimRef, metadata: RequestMetadata) -> str:
        pod_claim = metadata.content.get("podClaimName", "")
        folder = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{claim.name}"
        return f"{_IN_CONTAINERS}/{folder}/{metadata.request}/{self._driver}-metadata.json"

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._path)
        except OSError as error:
            if error.errno in _NOTHING_THERE:
                return []
            raise

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError, IsADirectoryError):  # nodeplug creates no folders here
            os.unlink(f"{self._path}/{name}")


def _kind(driver: str) -> str:
    return f"{driver}/metadata"


def _device_name(uid: str, request: str) -> str:
    return f"{uid}_{request}"


def _uid_in(name: str) -> str:
    """Return the claim's uid from a file's name; no uid contains `~`."""
    return name.partition("~")[0]
