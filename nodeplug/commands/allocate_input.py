"""The cluster that `nodeplug allocate` works on: read from files, then changed by what-ifs.

Files are YAML or JSON, with one object or many, or with lists, as `kubectl get -o yaml` prints them. If several objects
have the same kind, namespace and name, the last one counts. Kinds without a meaning here are skipped and counted.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from controlplane.structured import AllocatedState, DeviceID, patched
from resourceapi.manifests import read_documents
from resourceapi.objects import KINDS, DecodeError, KubernetesObject, read_object
from resourceapi.objects.core import Node
from resourceapi.objects.json_value import check_depth
from resourceapi.objects.meta import ObjectMeta
from resourceapi.objects.v1 import (
    Device,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)

_SUFFIXES = (".yaml", ".yml", ".json")


class InputError(Exception):
    """A file or a what-if that cannot be used; the text names it and the reason."""


class AllocatorInput(Struct, frozen=True):
    """Objects by namespace and name, or by name alone if the kind has no namespace."""

    claims: dict[str, ResourceClaim] = {}
    templates: dict[str, ResourceClaimTemplate] = {}
    classes: dict[str, DeviceClass] = {}
    slices: dict[str, ResourceSlice] = {}
    nodes: dict[str, Node] = {}
    taint_rules: dict[str, DeviceTaintRule] = {}
    skipped: int = 0

    @property
    def pending(self) -> list[ResourceClaim]:
        """Claims without an allocation; if there are no claims at all, one for each template."""
        if self.claims:
            return [claim for claim in self.claims.values() if claim.status.allocation is None]
        return [_from_template(template) for template in self.templates.values()]

    @property
    def state(self) -> AllocatedState:
        """The devices of allocated claims."""
        return AllocatedState.from_claims(self.claims.values())

    @property
    def holders(self) -> dict[DeviceID, str]:
        """The claim that holds each device."""
        return {
            DeviceID(result.driver, result.pool, result.device): key
            for key, claim in self.claims.items()
            if claim.status.allocation is not None
            for result in claim.status.allocation.devices.results
        }

    @property
    def tainted_slices(self) -> list[ResourceSlice]:
        """The slices, with the taints of the rules on their devices."""
        return patched(self.slices.values(), self.taint_rules.values())

    @property
    def all_nodes(self) -> list[Node]:
        """The nodes; if there are none, one for every node name in a slice."""
        if self.nodes:
            return list(self.nodes.values())
        names = dict.fromkeys(s.spec.node_name for s in self.slices.values() if s.spec.node_name)
        return [Node(metadata=ObjectMeta(name=name)) for name in names or ("node",)]


def read_files(paths: Sequence[Path], base: AllocatorInput | None = None) -> AllocatorInput:
    """Return the cluster in these files and folders, added to `base`; `-` is the standard input. Raises InputError."""
    return with_objects(base or AllocatorInput(), _objects_in(paths))


def what_if(cluster: AllocatorInput, change: str) -> AllocatorInput:
    """Return the cluster after a change; raises InputError.

    `+FILE` adds or replaces objects, `-KIND/NAME` removes one and `+KIND/NEW~OLD` adds a copy. KIND is claim, node,
    slice, class or device; claims are NAMESPACE/NAME, devices DRIVER/POOL/NAME.
    """
    sign, rest = change[:1], change[1:]
    kind, _, name = rest.partition("/")
    if sign == "+" and kind in _KINDS and "~" in name and not Path(rest).exists():
        new, _, old = name.partition("~")
        return _copied(cluster, kind, new, old)
    if sign == "+" and rest:
        return with_objects(cluster, _objects_in([Path(rest)]))
    if sign == "-" and kind in _KINDS and name:
        return _removed(cluster, kind, name)
    raise InputError(
        f"--what-if {change}: write +FILE, +KIND/NEW~OLD or -KIND/NAME; KIND is one of {', '.join(_KINDS)}"
    )


def with_objects(cluster: AllocatorInput, objects: Iterable[KubernetesObject | None]) -> AllocatorInput:
    """Return the cluster with more objects; None stands for a skipped one."""
    tables: dict[type[KubernetesObject], tuple[str, dict[str, Any]]] = {
        ResourceClaim: ("claims", dict(cluster.claims)),
        ResourceClaimTemplate: ("templates", dict(cluster.templates)),
        DeviceClass: ("classes", dict(cluster.classes)),
        ResourceSlice: ("slices", dict(cluster.slices)),
        Node: ("nodes", dict(cluster.nodes)),
        DeviceTaintRule: ("taint_rules", dict(cluster.taint_rules)),
    }
    skipped = cluster.skipped
    for obj in objects:
        if obj is None or type(obj) not in tables:
            skipped += 1
        else:
            tables[type(obj)][1][_key(obj)] = obj
    return replace(cluster, skipped=skipped, **dict(tables.values()))


_KINDS = {"claim": "claims", "node": "nodes", "slice": "slices", "class": "classes", "device": ""}


def _key(obj: KubernetesObject) -> str:
    namespace = obj.metadata.namespace
    return f"{namespace}/{obj.metadata.name}" if namespace else obj.metadata.name


def _objects_in(paths: Iterable[Path]) -> Iterator[KubernetesObject | None]:
    now = datetime.now(UTC)
    for path in paths:
        for file in _files(path):
            for where, value in _documents(file):
                yield _object(where, value, now)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.is_file())
        if not found:
            raise InputError(f"{path}: no {', '.join(_SUFFIXES)} file in this folder")
        return found
    return [path]


def _documents(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object in a file with its place; lists are expanded."""
    try:
        text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    try:
        values = _values(text, is_json=file.suffix == ".json")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: {' '.join(str(error).split())}") from None
    for number, value in enumerate(values, 1):
        if value is not None:
            where = f"{file}" if len(values) == 1 else f"{file}, document {number}"
            yield from _items(where, value)


def _values(text: bytes, *, is_json: bool) -> list[Any]:
    """Return the values in a text; raises ValueError."""
    if is_json or text.lstrip()[:1] in (b"{", b"["):
        # YAML can look like this too, but reading JSON as JSON is ten times as fast.
        try:
            value = json.loads(text)
            check_depth(value)
            return [value]
        except ValueError:
            if is_json:
                raise
    return read_documents(text)


def _items(where: str, value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _items(f"{where}[{number}]", item)
        return
    if not isinstance(value, dict):
        raise InputError(f"{where}: not an object")
    kind, items = value.get("kind"), value.get("items")
    if not isinstance(kind, str) or not isinstance(value.get("apiVersion"), str):
        raise InputError(f"{where}: needs apiVersion and kind")
    if not kind.endswith("List") or not isinstance(items, list):
        yield where, value
        return
    named = {} if kind == "List" else {"apiVersion": value["apiVersion"], "kind": kind.removesuffix("List")}
    for number, item in enumerate(items):
        yield from _items(f"{where}: items[{number}]", {**named, **item} if isinstance(item, dict) else item)


def _object(where: str, value: dict[str, Any], now: datetime) -> KubernetesObject | None:
    if (value["apiVersion"], value["kind"]) not in KINDS:
        return None
    try:
        return read_object(_plain(value), defaults_at=now)
    except DecodeError as error:
        raise InputError(f"{where}: {value['kind']}: {error}") from None


def _plain(value: Any) -> Any:
    """Return a value with dates as text: YAML reads unquoted times as dates, and the API has them as text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value


def _from_template(template: ResourceClaimTemplate) -> ResourceClaim:
    metadata = ObjectMeta(name=template.metadata.name, namespace=template.metadata.namespace)
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _removed(cluster: AllocatorInput, kind: str, name: str) -> AllocatorInput:
    if kind == "device":
        slice_, device = _find_device(cluster, name)
        rest = tuple(each for each in slice_.spec.devices if each is not device)
        return with_objects(cluster, [replace(slice_, spec=replace(slice_.spec, devices=rest))])
    table = getattr(cluster, _KINDS[kind])
    key = _known(table, kind, name)
    return replace(cluster, **{_KINDS[kind]: {other: obj for other, obj in table.items() if other != key}})


def _copied(cluster: AllocatorInput, kind: str, new: str, old: str) -> AllocatorInput:
    if kind == "device":
        driver, _, rest = new.partition("/")
        pool, _, name = rest.partition("/")
        slice_, device = _find_device(cluster, old if "/" in old else f"{driver}/{pool}/{old}")
        if any(each.name == name for each in slice_.spec.devices) or not name:
            raise InputError(f"--what-if: device {new} is there already, or has no name of its own")
        more = (*slice_.spec.devices, replace(device, name=name))
        return with_objects(cluster, [replace(slice_, spec=replace(slice_.spec, devices=more))])
    table = getattr(cluster, _KINDS[kind])
    obj = table[_known(table, kind, old)]
    namespace, slash, name = new.rpartition("/")
    metadata = replace(obj.metadata, name=name, namespace=namespace if slash else obj.metadata.namespace, uid="")
    copy = replace(obj, metadata=metadata)
    if isinstance(copy, ResourceClaim):
        copy = replace(copy, status=type(copy.status)())
    return with_objects(cluster, [copy])


def _find_device(cluster: AllocatorInput, name: str) -> tuple[ResourceSlice, Device]:
    driver, _, rest = name.partition("/")
    pool, _, device_name = rest.partition("/")
    for slice_ in cluster.slices.values():
        if (slice_.spec.driver, slice_.spec.pool.name) == (driver, pool):
            for device in slice_.spec.devices:
                if device.name == device_name:
                    return slice_, device
    raise InputError(f"--what-if: there is no device {name}; write DRIVER/POOL/NAME")


def _known(table: dict[str, Any], kind: str, name: str) -> str:
    if name in table:
        return name
    alike = [key for key in table if key.rpartition("/")[2] == name]
    if len(alike) == 1:
        return alike[0]
    raise InputError(f"--what-if: there is no {kind} {name}; there are {', '.join(table) or 'none'}")
