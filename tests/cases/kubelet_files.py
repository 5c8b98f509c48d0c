"""Runner for `checkpoint/kubelet-files.json`: a kubelet's state files are read, verified and written back unchanged."""

import json
from collections.abc import Iterator
from functools import partial

from checkpoint import kubelet_claims, kubelet_devices
from tests.cases.documents import Document
from tests.cases.results import Case, Format, Mismatch


def _matches(document: Document) -> bool:
    return document.has_cases_with("file", "name") and all(isinstance(x["file"], str) for x in document.cases)


def _cases(document: Document) -> Iterator[Case]:
    for entry in document.cases:
        yield Case(entry["name"], partial(_run, entry["file"]))


def _run(text: str) -> None:
    raw = text.encode()
    # the claims' data is a string, the devices' data an object
    written = _rewritten_claims(raw) if isinstance(json.loads(text).get("Data"), str) else _rewritten_devices(raw)
    if written != raw:
        raise Mismatch(f"read     {text}\nwritten  {written.decode()}")


def _rewritten_claims(raw: bytes) -> bytes:
    found = kubelet_claims.load(raw)
    return kubelet_claims.encode(found.claims, found.kind, found.api_version)


def _rewritten_devices(raw: bytes) -> bytes:
    found = kubelet_devices.load(raw)
    return kubelet_devices.encode(found.entries, found.registered)


FORMATS = [Format("kubelet state files", _matches, _cases)]
