"""`dra_manager_state`: the claims that the kubelet's DRA manager prepared, their pods, and the drivers' answers.

The data is JSON inside a JSON string, and the checksum is the CRC-32 of that string. Null, empty and (for the share id
of older kubelets) missing are different. Source: DRA specification, section 4.4; observations, section 2.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from checkpoint import kubelet_json
from checkpoint.kubelet_json import CheckpointCorrupted

FILE_NAME = "dra_manager_state"
KIND = "DRACheckpoint"
API_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"

T = TypeVar("T")


class PreparedDevice(Struct, frozen=True, forbid_unknown_fields=True, rename="pascal"):
    """A device of a claim, as its driver answered."""

    pool_name: str = ""
    device_name: str = ""
    share_id: str | UnsetType | None = msgspec.field(default=UNSET, name="ShareID")
    request_names: Sequence[str] | None = None
    cdi_device_ids: Sequence[str] | None = msgspec.field(default=None, name="CDIDeviceIDs")


class DriverState(Struct, frozen=True, forbid_unknown_fields=True, rename="pascal"):
    """What one driver prepared; `devices` is None before its answer."""

    devices: Sequence[PreparedDevice] | None = None
    # since 1.37, and only if its gate is on: calls that the kubelet does not make to the driver
    skip_node_operations: Sequence[str] | None = msgspec.field(default=None, name="skipNodeOperations")


class ClaimState(Struct, frozen=True, forbid_unknown_fields=True, rename="pascal"):
    """A claim."""

    claim_uid: str = msgspec.field(default="", name="ClaimUID")
    claim_name: str = ""
    namespace: str = ""
    pod_uids: Mapping[str, object] | None = msgspec.field(default=None, name="PodUIDs")  # a set: the values are empty
    driver_state: Mapping[str, DriverState] | None = None


class _Inner(Struct, forbid_unknown_fields=True, rename={"claims": "ClaimInfoStateList", "api_version": "apiVersion"}):
    claims: list[ClaimState] | None = None
    kind: str = ""
    api_version: str = ""


class _File(Struct, forbid_unknown_fields=True):
    Data: str = ""
    Checksum: int = 0


class ClaimCheckpoint(Struct, frozen=True):
    """The content of the file; `data` is the string that has the checksum."""

    claims: Sequence[ClaimState] | None
    data: str
    checksum: int
    kind: str = KIND
    api_version: str = API_VERSION


def decode(raw: bytes) -> ClaimCheckpoint:
    """Read a file without checking its checksum. Raises `KubeletFileError`."""
    file = kubelet_json.decode(raw.decode(errors="replace"), _File)
    inner = kubelet_json.decode(file.Data, _Inner)
    return ClaimCheckpoint(inner.claims, file.Data, file.Checksum, inner.kind, inner.api_version)


def load(raw: bytes) -> ClaimCheckpoint:
    """Read a file as the kubelet does, which does not start if it is invalid. Raises `KubeletFileError`."""
    file = kubelet_json.decode(raw.decode(errors="replace"), _File)
    computed = zlib.crc32(file.Data.encode())
    if computed != file.Checksum:
        raise CheckpointCorrupted(file.Checksum, computed)
    return decode(raw)


def verify(found: ClaimCheckpoint) -> None:
    """Raise `CheckpointCorrupted` unless the checksum matches the data."""
    computed = zlib.crc32(found.data.encode())
    if computed != found.checksum:
        raise CheckpointCorrupted(found.checksum, computed)


def encode(claims: Sequence[ClaimState] | None, kind: str = KIND, api_version: str = API_VERSION) -> bytes:
    """Return the file's bytes, with the checksum of its data."""
    names = f'"kind":{kubelet_json.string(kind)},"apiVersion":{kubelet_json.string(api_version)}'
    data = f'{{{names},"ClaimInfoStateList":{_list(claims, _claim)}}}'
    return f'{{"Data":{kubelet_json.string(data)},"Checksum":{zlib.crc32(data.encode())}}}'.encode()


def _claim(claim: ClaimState) -> str:
    pods = _map(claim.pod_uids, lambda _: "{}")
    drivers = _map(claim.driver_state, _driver)
    return (
        f'{{"ClaimUID":{kubelet_json.string(claim.claim_uid)},"ClaimName":{kubelet_json.string(claim.claim_name)},'
        f'"Namespace":{kubelet_json.string(claim.namespace)},"PodUIDs":{pods},"DriverState":{drivers}}}'
    )


def _driver(state: DriverState) -> str:
    skipped = state.skip_node_operations
    tail = f',"skipNodeOperations":{kubelet_json.strings(skipped)}' if skipped else ""
    return f'{{"Devices":{_list(state.devices, _device)}{tail}}}'


def _device(device: PreparedDevice) -> str:
    share = ""
    if device.share_id is not UNSET:
        share = f'"ShareID":{"null" if device.share_id is None else kubelet_json.string(device.share_id)},'
    return (
        f'{{"PoolName":{kubelet_json.string(device.pool_name)},"DeviceName":{kubelet_json.string(device.device_name)},'
        f'{share}"RequestNames":{kubelet_json.strings(device.request_names)},'
        f'"CDIDeviceIDs":{kubelet_json.strings(device.cdi_device_ids)}}}'
    )


def _list(items: Sequence[T] | None, write: Callable[[T], str]) -> str:
    return "null" if items is None else f"[{','.join(map(write, items))}]"


def _map(items: Mapping[str, T] | None, write: Callable[[T], str]) -> str:
    if items is None:
        return "null"
    # sorted by the bytes of the key, as Go does
    pairs = (f"{kubelet_json.string(key)}:{write(items[key])}" for key in sorted(items, key=str.encode))
    return f"{{{','.join(pairs)}}}"
