"""Lists: which objects, at which version, how many at once (allocator.md 5.11)."""

import base64
import itertools
import json
import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from controlplane.apiserver.history import Expired
from controlplane.apiserver.json_faults import json_fault
from controlplane.apiserver.kinds import Key, Kind, Plain
from controlplane.apiserver.options import ListOptions, uint
from controlplane.apiserver.status import bad_request, expired, go_name, version_in_the_future
from controlplane.apiserver.store import Store
from controlplane.apiserver.subscriptions import mark_of
from controlplane.apiserver.target import Target

_META = "meta.k8s.io/v1"
_UNNAMED_IN_ERRORS = ("", "certificates.k8s.io")
"""Groups whose kinds are not named in errors about field selectors."""
_NO_BASE64 = re.compile(r"[^A-Za-z0-9_-]")
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)


class Page(NamedTuple):
    """Objects in the stored version, and the metadata of their list."""

    objects: list[Plain]
    metadata: Plain


class Selection:
    """The objects of a target that match a request's selectors. Refuses fields that the kind does not have."""

    def __init__(self, target: Target, options: ListOptions) -> None:
        self._labels, self._fields = options.labels, options.fields
        kind = target.kind
        self._cells = kind.fields
        self.mark = mark_of(options.fields)
        is_named = any(term.field == "metadata.name" and term.equal and term.value for term in options.fields.terms)
        self.is_one = is_named and bool(target.namespace or not kind.namespaced)  # the reference reads it by its key
        known = ("metadata.name", *kind.fields)
        if kind.namespaced or not (kind.fields or kind.from_definition):
            known = ("metadata.namespace", *known)
        for term in options.fields.terms:
            if term.field not in known:
                raise bad_request(_unknown_field(kind, target.api_version, term.field))

    @property
    def is_all(self) -> bool:
        """Whether every object matches."""
        return not self._labels.requirements and not self._fields.terms

    def takes(self, obj: Plain) -> bool:
        """Return whether an object matches."""
        metadata = obj["metadata"]
        if self._labels.requirements and not self._labels.matches(metadata.get("labels") or {}):
            return False
        if not self._fields.terms:
            return True
        fields = {"metadata.name": metadata["name"], "metadata.namespace": metadata.get("namespace", "")}
        fields |= {name: str(cell(obj)) for name, cell in self._cells.items()}
        return self._fields.matches(fields)


def list_page(store: Store, target: Target, options: ListOptions) -> Page:
    """Return the objects of a request. Raises ApiError for versions and tokens that cannot be used."""
    selection = Selection(target, options)
    version, after = store.version, None
    exact = False
    if options.token:
        version, after = _read_token(options.token, target)
        exact = True
    elif options.resource_version:
        wanted = _version(options.resource_version)
        if wanted > store.version:
            raise version_in_the_future(wanted, store.version)
        if options.match == "Exact" or (options.limit > 0 and wanted and not options.match):
            version, exact = wanted, True
    kind_id, namespace = target.kind.table, target.namespace
    limit = options.limit if options.resource_version != "0" else 0
    try:
        objects = (
            store.objects_at(kind_id, version, namespace, after)
            if exact
            else store.objects(kind_id, namespace, after, None if limit else selection.mark)
        )
        return _cut(objects, selection, limit, version, namespace)
    except Expired:
        if options.token:
            raise expired(_TOO_OLD) from None
        raise expired(f"The provided resource version is too old: {version}") from None


def _cut(objects: Iterator[Plain], selection: Selection, limit: int, version: int, namespace: str) -> Page:
    """The first objects that match. As in the reference, a token follows if any object is left, matching or not."""
    metadata: Plain = {"resourceVersion": str(version)}
    if limit <= 0:
        return Page(list(filter(selection.takes, objects)), metadata)
    taken = list(itertools.islice(filter(selection.takes, objects), limit))
    following = next(objects, None)
    if following is not None and not selection.is_one:
        last = taken[-1]["metadata"]
        metadata["continue"] = _write_token(version, (last.get("namespace", ""), last["name"]), namespace)
        if selection.is_all:
            metadata["remainingItemCount"] = 1 + sum(1 for _ in objects)
    return Page(taken, metadata)


def _write_token(version: int, key: Key, namespace: str) -> str:
    path = key[1] if namespace else "/".join(filter(None, key))
    document = {"v": _META, "rv": version, "start": f"/{path}\0"}
    return base64.urlsafe_b64encode(json.dumps(document, separators=(",", ":")).encode()).decode().rstrip("=")


def _read_token(token: str, target: Target) -> tuple[int, Key]:
    """The version and the key where a list continues. Raises ApiError 400 with the reference's text."""
    try:
        version, start = _token_of(token)
    except ValueError as error:
        raise bad_request(f"invalid continue token: continue key is not valid{error}") from None
    path = start.removeprefix("/").removesuffix("\0")
    if target.namespace or not target.kind.namespaced:
        return version, (target.namespace, path)
    namespace, _, name = path.partition("/")
    return version, (namespace, name)


def _token_of(token: str) -> tuple[int, str]:
    """A version and a key after a slash. Raises ValueError with the text after `not valid`."""
    wrong = _NO_BASE64.search(token)
    if wrong or len(token) % 4 == 1:
        raise ValueError(f": illegal base64 data at input byte {wrong.start() if wrong else len(token) - 1}")
    data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    if why := json_fault(data):
        raise ValueError(f": {why}")
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError(f": json: cannot unmarshal {go_name(document)} into Go value of type storage.continueToken")
    found = [document.get(name, default) for name, default in (("v", ""), ("rv", 0), ("start", ""))]
    for name, value, kind in zip(("v", "rv", "start"), found, (str, int, str), strict=True):
        if value is not None and type(value) is not kind:
            of = "int64" if kind is int else "string"
            why = f"cannot unmarshal {go_name(value)} into Go struct field continueToken.{name} of type {of}"
            raise ValueError(f": json: {why}")
    api_version, version, start = found
    if api_version != _META:
        raise ValueError(f": server does not recognize this encoded version {api_version or ''}")
    if not version:
        raise ValueError(f": incorrect encoded start resourceVersion (version {_META})")
    if not start:
        raise ValueError(f": encoded start key empty (version {_META})")
    key = f"/{start.removeprefix('/')}"
    if posixpath.normpath(key) != key or start.startswith("//"):
        raise ValueError(f": {start}")
    return version, key


def _version(text: str) -> int:
    try:
        return uint(text)
    except ValueError as error:
        shown = f'resourceVersion: Invalid value: "{text}": {error}'
        raise bad_request(f"invalid resource version: {shown}") from None


def _unknown_field(kind: Kind, api_version: str, field: str) -> str:
    if kind.from_definition or kind.stored_as or (kind.fields and kind.group in _UNNAMED_IN_ERRORS):
        return f"field label not supported: {field}"
    if kind.fields:
        return f"field label not supported for {api_version}, Kind={kind.kind}: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
