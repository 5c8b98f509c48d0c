"""Sends the same request to the stand-in API server and to a real one, and makes the answers comparable.

Generated values (uids, versions, times, names) differ between the servers. The generator of requests sees placeholders
such as `uid-7` or `version-12`, which are replaced by the values of each server.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from controlplane.apiserver import protobuf
from resourceapi.manifests import read_yaml
from resourceapi.objects import DecodeError
from resourceapi.objects.json_value import json_equal
from tests.controlplane.apiserver.random_requests import Request
from tests.controlplane.apiserver.running import Answer, Http, Plain

JSON, YAML, PROTOBUF = "application/json", "application/yaml", protobuf.MEDIA_TYPE
_PLACEHOLDERS = {"uid": "uid", "resourceVersion": "version", "continue": "continue"}
_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000 UTC)")
_GENERATED = re.compile(
    r"(\b[a-d]-|object|replace|delete|DeviceClass|gpu|/v1|\(|\\+x00|\0|\\+u0000|ä)"
    r"[bcdfghjklmnpqrstvwxz2456789]{5}\b"
)
_ADDRESS = re.compile(r"\b10\.96\.\d+\.\d+\b")  # of a service
_VERSIONS = re.compile(
    r"((?:resource ?version|current|ResourceVersion in (?:the )?(?:record|precondition))[:( ]+)\d+", re.I
)
_IN_TEXT = re.compile(r'(\\*"resourceVersion\\*": ?\\*")\d+')  # in an object that a message contains
_EXPECTED = re.compile(r"(Syntax error: )(?:mismatched|unexpected|extraneous) input .*", re.DOTALL)
_SEVERAL = re.compile(r" is invalid: \[(.*)\]$", re.DOTALL)  # for custom resources, in the order of Go's maps
_AGE = re.compile(r"^\d+(s|m|m\d+s)$")

_OF_THE_SYSTEM = ("system:", "cluster-admin", "admin", "edit", "view", "kube-", "default", "kubernetes")


class FormattedRequest(NamedTuple):
    """A request, with the formats of one exchange."""

    request: Request
    accept: str = JSON
    damage_at: int = -1
    """The index of the byte of a protobuf body that is damaged; negative for none."""


class Shown(NamedTuple):
    """An answer without generated values."""

    status: int
    media_type: str
    warnings: tuple[str, ...]
    body: Any


class Pair:
    """Two servers that get the same requests; `ours` is the first."""

    def __init__(self, ours: Http, real: Http) -> None:
        self.servers = (ours, real)
        self._names: dict[str, tuple[str, str]] = {}
        self._known: tuple[dict[str, str], dict[str, str]] = ({}, {})
        self.last: dict[str, str] = {}
        """The placeholders of the last list's version and continue token."""

    @property
    def versions(self) -> list[str]:
        """The placeholders of all versions in both servers' objects, the oldest first."""
        return [name for name in self._names if name.startswith(_PLACEHOLDERS["resourceVersion"])]

    def ask(self, formatted: FormattedRequest) -> tuple[Shown, Shown, Any]:
        """Return both answers, and our body with placeholders."""
        answers = [self._send(number, formatted) for number in (0, 1)]
        return self.shown(answers, [read_value(answer) for answer in answers])

    def shown(self, answers: Sequence[Answer], bodies: Sequence[Any]) -> tuple[Shown, Shown, Any]:
        """Return both servers' answers, and our body with placeholders."""
        self._assign_placeholders(*bodies)
        ours, real = (
            Shown(
                answer.status,
                dict(answer.headers).get("content-type", ""),
                tuple(answer.warnings),
                self._named(n, body),
            )
            for n, (answer, body) in enumerate(zip(answers, bodies, strict=True))
        )
        return _without_times(ours), _without_times(real), ours.body

    def _send(self, number: int, formatted: FormattedRequest) -> Answer:
        request = formatted.request
        body = self.own(number, request.body)
        if request.content == PROTOBUF:
            body = bytearray(protobuf.encode(body))
            if formatted.damage_at >= 0:
                body[formatted.damage_at % len(body)] ^= 0x55
            body = bytes(body)
        query = {name: str(self.own(number, text)) for name, text in request.query.items()}
        return self.servers[number].send(
            request.method, request.path, body, content=request.content, accept=formatted.accept, **query
        )

    def own(self, number: int, value: Any) -> Any:
        """Replace placeholders by a server's own uids and versions."""
        if isinstance(value, dict):
            return {name: self.own(number, item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.own(number, item) for item in value]
        if isinstance(value, str) and value in self._names:
            return self._names[value][number]
        return value

    def _assign_placeholders(self, ours: Any, real: Any, key: str = "") -> None:
        """Assign placeholders to generated values at the same place.

        A list's version gets its own placeholder, because other writes of a real server increase it.
        """
        if is_list(ours) and is_list(real):
            for name in ("resourceVersion", "continue"):
                pair = (ours["metadata"].get(name), real["metadata"].get(name))
                if all(pair):
                    self.last[name] = f"{_PLACEHOLDERS[name]}-{len(self._names)}"
                    self._names[self.last[name]] = pair
                elif name == "continue":
                    self.last.pop(name, None)
            ours, real = ({**each, "metadata": {}} for each in (ours, real))
        if isinstance(ours, dict) and isinstance(real, dict):
            for name in ours.keys() & real.keys():
                self._assign_placeholders(ours[name], real[name], name)
        elif isinstance(ours, list) and isinstance(real, list):
            for pair in zip(ours, real, strict=False):
                self._assign_placeholders(*pair)
        elif key in _PLACEHOLDERS and isinstance(ours, str) and isinstance(real, str) and ours and real:
            is_known = ours in self._known[0] or real in self._known[1] or ours in self._names
            if not is_known:
                name = f"{_PLACEHOLDERS[key]}-{len(self._names)}"
                self._names[name] = (ours, real)
                self._known[0][ours] = self._known[1][real] = name

    def _named(self, number: int, value: Any, key: str = "") -> Any:
        """Replace a server's generated values by placeholders."""
        if isinstance(value, dict):
            if is_list(value):
                listed = {
                    name: f"<{name}>" if name in _PLACEHOLDERS else item for name, item in value["metadata"].items()
                }
                value = {**value, "metadata": listed}
            return {name: self._named(number, item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._named(number, item) for item in value if not _is_of_the_system(item)]
        if not isinstance(value, str):
            return value
        known = self._known[number]
        if key in _PLACEHOLDERS:
            return known.get(value, value)
        return _UID.sub(lambda found: known.get(found[0], found[0]), value)


def differences(ours: Any, real: Any, path: str = "") -> list[str]:
    """Return descriptions of the differences of two values."""
    if isinstance(ours, dict) and isinstance(real, dict):
        found = [f"{path}.{name}: only ours: {json.dumps(ours[name])}" for name in ours if name not in real]
        found += [f"{path}.{name}: only real: {json.dumps(real[name])}" for name in real if name not in ours]
        for name in (name for name in ours if name in real):
            found += differences(ours[name], real[name], f"{path}.{name}")
        return found
    if isinstance(ours, list) and isinstance(real, list) and len(ours) == len(real):
        return [
            each for n, pair in enumerate(zip(ours, real, strict=True)) for each in differences(*pair, f"{path}[{n}]")
        ]
    return (
        []
        if json_equal(ours, real)
        else [f"{path}: ours {json.dumps(ours)}\n{' ' * len(path)}  real {json.dumps(real)}"]
    )


def _is_of_the_system(item: Any) -> bool:
    """Return whether a real server created an object for itself."""
    if isinstance(item, dict) and isinstance(item.get("object"), dict):
        item = item["object"]  # of a row
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict):
        return False
    name = str(metadata.get("name"))
    return metadata.get("namespace") == "kube-system" or name.startswith(_OF_THE_SYSTEM)


def read_value(answer: Answer) -> Any:
    """Return the value of a body, or its text. Protobuf bytes that we encode differently are added to it."""
    media_type = dict(answer.headers).get("content-type", "").partition(";")[0]
    if media_type == PROTOBUF:
        try:
            value = protobuf.decode(answer.data, "", "")
            is_same = protobuf.encode(value) == answer.data
        except (protobuf.ProtobufError, DecodeError) as error:
            return f"not to be decoded: {error}"
        return value if is_same else {**value, "bytes": answer.data.hex()}
    if media_type == YAML:
        return read_yaml(answer.data)
    try:
        return json.loads(answer.data)
    except ValueError:
        return answer.data.decode("utf-8", "replace")


def _without_times(shown: Shown) -> Shown:
    return shown._replace(warnings=tuple(map(_plain, shown.warnings)), body=_cleared(shown.body))


def _cleared(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {_plain(name): "" if name == "description" else _cleared(item, name) for name, item in value.items()}
    if value is None and key == "items":  # of a list in protobuf
        return []
    if isinstance(value, list):
        items = [_cleared(item, key) for item in value]
        if key == "causes":  # Go's maps have no order, and 1.36 repeats some
            items = list({json.dumps(item, sort_keys=True): item for item in items}.values())
        if key in ("managedFields", "causes"):  # ordered by time
            items.sort(key=lambda item: json.dumps(item, sort_keys=True))
        return items
    if not isinstance(value, str):
        return value
    if key in _PLACEHOLDERS and value and not value.startswith((_PLACEHOLDERS[key], "<")):
        return f"<{key}>"
    return "<age>" if key == "cells" and _AGE.match(value) else _plain(value)


def _plain(text: str) -> str:
    text = _TIME.sub("<time>", _UID.sub("<uid>", text))
    text = _IN_TEXT.sub(r"\1<version>", _EXPECTED.sub(r"\1", text)).replace("scheme.go:110", "scheme.go:111")  # of 1.34
    text = _SEVERAL.sub(lambda found: f" is invalid: [{', '.join(sorted(found[1].split(', ')))}]", text)
    text = _ADDRESS.sub("<address>", text)
    return _VERSIONS.sub(r"\1<version>", _GENERATED.sub(r"\1<random>", text))


def is_list(value: Any) -> bool:
    """Return whether an answer is a list or a table."""
    return isinstance(value, dict) and isinstance(value.get("metadata"), dict) and ("items" in value or "rows" in value)


def is_object(value: Any) -> bool:
    """Return whether an answer is one object with its type."""
    return isinstance(value, dict) and "uid" in (value.get("metadata") or ()) and "apiVersion" in value


def objects(body: Any) -> list[Plain]:
    """Return the objects of a list's body."""
    items = body.get("items") if isinstance(body, dict) else None
    return items if isinstance(items, list) else []
