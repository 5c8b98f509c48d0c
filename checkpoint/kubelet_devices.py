"""`kubelet_internal_checkpoint`: which devices the kubelet's device manager allocated to which container.

Today's form groups the ids by NUMA node; the form before Kubernetes 1.20 has a flat list of ids, which 1.36 refuses and
this reader still shows. The checksum is FNV-1a over a Go-syntax dump of the data, in the order in which the file lists
it. Null and empty differ, in the file and in the dump. Source: device manager specification, section 7.
"""

import base64
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from checkpoint import fnv, kubelet_json
from checkpoint.kubelet_json import CheckpointCorrupted, KubeletFileError

FILE_NAME = "kubelet_internal_checkpoint"
WITHOUT_TOPOLOGY = -1  # the NUMA key of devices without a NUMA node

Ids = Sequence[str] | None


class PodDevices(Struct, frozen=True):
    """The devices of one resource that one container has."""

    pod_uid: str
    container: str
    resource: str
    by_node: Mapping[int, Ids] | None = None  # NUMA node -> device ids
    response: bytes | None = None  # a ContainerAllocateResponse, encoded
    flat: Sequence[str] | None = None  # the device ids of the form before 1.20, which has no `by_node`

    @property
    def device_ids(self) -> list[str]:
        """Return each id once, in the order of the file."""
        lists = [self.flat] if self.flat is not None else (self.by_node or {}).values()
        return list(dict.fromkeys(id_ for ids in lists for id_ in ids or ()))


class DeviceCheckpoint(Struct, frozen=True):
    """The content of the file."""

    entries: Sequence[PodDevices] | None
    registered: Mapping[str, Ids] | None  # resource -> ids of its healthy devices
    checksum: int

    @property
    def is_legacy(self) -> bool:
        """Return whether this is the form before 1.20, which today's kubelet refuses."""
        return any(entry.flat is not None for entry in self.entries or ())


class _FileEntry(Struct, forbid_unknown_fields=True):
    PodUID: str = ""
    ContainerName: str = ""
    ResourceName: str = ""
    DeviceIDs: dict[int, list[str] | None] | list[str] | None = None
    AllocResp: bytes | None = None


class _FileData(Struct, forbid_unknown_fields=True):
    # the kubelet reads a file without these fields as one where they are empty, not null
    PodDeviceEntries: list[_FileEntry] | None = msgspec.field(default_factory=list)
    RegisteredDevices: dict[str, list[str] | None] | None = msgspec.field(default_factory=dict)


class _File(Struct, forbid_unknown_fields=True):
    Data: _FileData = msgspec.field(default_factory=_FileData)
    Checksum: int = 0


class Part(Struct, frozen=True):
    """A part of the file that can be cached: its JSON, and its text in the dump that is hashed."""

    json: str
    dump: fnv.Run


def decode(raw: bytes) -> DeviceCheckpoint:
    """Read a file without checking its checksum. Raises `KubeletFileError`."""
    file = kubelet_json.decode(raw.decode(errors="replace"), _File)
    entries = None
    if file.Data.PodDeviceEntries is not None:
        entries = [_from_file(entry) for entry in file.Data.PodDeviceEntries]
    return DeviceCheckpoint(entries, file.Data.RegisteredDevices, file.Checksum)


def load(raw: bytes) -> DeviceCheckpoint:
    """Read a file as the kubelet of 1.36 does. Raises `KubeletFileError`, with the kubelet's text."""
    found = decode(raw)
    if found.is_legacy:
        raise KubeletFileError(
            "json: cannot unmarshal array into Go struct field PodDevicesEntry.Data.PodDeviceEntries.DeviceIDs"
            " of type checkpoint.DevicesPerNUMA"
        )
    verify(found)
    return found


def verify(found: DeviceCheckpoint) -> None:
    """Raise `CheckpointCorrupted` unless the checksum matches the data."""
    _, computed = _assemble(_parts(found.entries), _registered_parts(found.registered))
    if computed != found.checksum:
        raise CheckpointCorrupted(found.checksum, computed)


def encode(entries: Sequence[PodDevices] | None, registered: Mapping[str, Ids] | None) -> bytes:
    """Return the file's bytes, with the checksum of its data."""
    return assemble(_parts(entries), _registered_parts(registered))


def entry_part(entry: PodDevices) -> Part:
    """Return the part of one entry."""
    owner = (entry.pod_uid, entry.container, entry.resource)
    names = ("PodUID", "ContainerName", "ResourceName")
    response = "null" if entry.response is None else f'"{base64.b64encode(entry.response).decode()}"'
    json = [f'"{name}":{kubelet_json.string(value)}' for name, value in zip(names, owner, strict=True)]
    json += [f'"DeviceIDs":{_device_ids_json(entry)}', f'"AllocResp":{response}']
    dump = [f"{name}:(string){value}" for name, value in zip(names, owner, strict=True)]
    numbers = "<nil>" if entry.response is None else f"[{' '.join(map(str, entry.response))}]"
    dump += [f"DeviceIDs:{_device_ids_dump(entry)}", f"AllocResp:([]uint8){numbers}"]
    return Part(f"{{{','.join(json)}}}", _run(f"{{{' '.join(dump)}}}"))


def registered_part(resource: str, ids: Ids) -> Part:
    """Return the part of one registered resource."""
    return Part(f"{kubelet_json.string(resource)}:{kubelet_json.strings(ids)}", _run(f"{resource}:{_list_dump(ids)}"))


def assemble(entries: Sequence[Part] | None, registered: Mapping[str, Part] | None) -> bytes:
    """Return the file's bytes from its parts, `registered` by resource."""
    data, checksum = _assemble(entries, registered)
    return f'{{"Data":{data},"Checksum":{checksum}}}'.encode(errors="surrogatepass")


def _from_file(entry: _FileEntry) -> PodDevices:
    owner = (entry.PodUID, entry.ContainerName, entry.ResourceName)
    if isinstance(entry.DeviceIDs, list):
        return PodDevices(*owner, response=entry.AllocResp, flat=entry.DeviceIDs)
    return PodDevices(*owner, by_node=entry.DeviceIDs, response=entry.AllocResp)


def _parts(entries: Sequence[PodDevices] | None) -> list[Part] | None:
    return None if entries is None else [entry_part(entry) for entry in entries]


def _registered_parts(registered: Mapping[str, Ids] | None) -> dict[str, Part] | None:
    return None if registered is None else {name: registered_part(name, ids) for name, ids in registered.items()}


def _run(text: str) -> fnv.Run:
    return fnv.Run(text.encode(errors="replace"))


_HEAD = _run("(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)")
_MIDDLE = _run(" RegisteredDevices:(map[string][]string)")
_TAIL = _run("}")
_NIL = _run("<nil>")
_OPEN = _run("[")
_OPEN_MAP = _run("map[")
_SPACE = _run(" ")
_END = _run("]")


def _assemble(entries: Sequence[Part] | None, registered: Mapping[str, Part] | None) -> tuple[str, int]:
    """Return the JSON of the data, and the checksum of its dump."""
    entries_json = registered_json = "null"
    state = _HEAD.continue_from(fnv.OFFSET)
    if entries is None:
        state = _NIL.continue_from(state)
    else:
        entries_json = f"[{','.join([part.json for part in entries])}]"
        state = _list_state(_OPEN, [part.dump for part in entries], state)
    state = _MIDDLE.continue_from(state)
    if registered is None:
        state = _NIL.continue_from(state)
    else:
        parts = [registered[name] for name in sorted(registered, key=str.encode)]
        registered_json = f"{{{','.join([part.json for part in parts])}}}"
        state = _list_state(_OPEN_MAP, [part.dump for part in parts], state)
    state = _TAIL.continue_from(state)
    return f'{{"PodDeviceEntries":{entries_json},"RegisteredDevices":{registered_json}}}', state


def _list_state(opening: fnv.Run, runs: Sequence[fnv.Run], state: int) -> int:
    state = opening.continue_from(state)
    for index, run in enumerate(runs):
        if index:
            state = _SPACE.continue_from(state)
        state = run.continue_from(state)
    return _END.continue_from(state)


def _device_ids_json(entry: PodDevices) -> str:
    if entry.flat is not None:
        return kubelet_json.strings(entry.flat)
    if entry.by_node is None:
        return "null"
    keys = sorted(entry.by_node, key=str)
    pairs = [f'"{node}":{kubelet_json.strings(entry.by_node[node])}' for node in keys]
    return f"{{{','.join(pairs)}}}"


def _device_ids_dump(entry: PodDevices) -> str:
    if entry.flat is not None:
        return f"([]string){_list_dump(entry.flat)}"
    if entry.by_node is None:
        return "(checkpoint.DevicesPerNUMA)<nil>"
    pairs = [f"{node}:{_list_dump(entry.by_node[node])}" for node in sorted(entry.by_node)]
    return f"(checkpoint.DevicesPerNUMA)map[{' '.join(pairs)}]"


def _list_dump(ids: Ids) -> str:
    return "<nil>" if ids is None else f"[{' '.join(ids)}]"
