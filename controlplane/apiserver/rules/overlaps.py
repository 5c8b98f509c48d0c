"""Warnings for conflicting files of a volume: two with the same path, or one below another.

Source: k8s.io/kubernetes pkg/api/pod/warnings.go (warningsForOverlappingVirtualPaths).
"""

import itertools
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import quoted_text

_MAX_PAIRS = 4096
"""The most pairs that are reported for a volume; more do not fit into the warnings of an answer."""
_CERTIFICATE = {"certificateChainPath": "chain", "keyPath": "key", "credentialBundlePath": "credential bundle"}


class _File(NamedTuple):
    """A path in a volume, and its source if the volume has several."""

    path: str
    source: str

    def __str__(self) -> str:
        return f"{quoted_text(self.path)} ({self.source})" if self.source else quoted_text(self.path)


def overlap_warnings(volumes: Sequence[Plain]) -> Iterator[str]:
    """Yield the warnings for a pod's volumes."""
    for volume in volumes:
        name = quoted_text(volume.get("name") or "")
        for member, what, key in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
            if source := volume.get(member):
                shown = f"{what} {quoted_text(source.get(key) or '')}"
                yield from _overlaps(name, shown, _items(source, ""))
        yield from _overlaps(name, "DownwardAPI", _items(volume.get("downwardAPI") or {}, ""))
        projected = volume.get("projected") or {}
        found: list[_File] = []
        for source in projected.get("sources") or ():
            if not any(item is not None for item in source.values()):
                yield f"volume {name} (Projected) has no sources provided"
            found += _projected(source)
        yield from _overlaps(name, "Projected", found)


def _items(source: Plain, shown: str) -> list[_File]:
    return [_File((each.get("path") or "").rstrip("/"), shown) for each in source.get("items") or ()]


def _projected(source: Plain) -> list[_File]:
    """The files of one projected source. If it has several kinds, the first counts."""
    for member, what in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if (source.get(member) or {}).get("items"):
            return _items(source[member], f"{what} {quoted_text(source[member].get('name') or '')}")
    if (source.get("downwardAPI") or {}).get("items"):
        return _items(source["downwardAPI"], "DownwardAPI")
    if token := source.get("serviceAccountToken"):
        return [_File((token.get("path") or "").rstrip("/"), "ServiceAccountToken")]
    if bundle := source.get("clusterTrustBundle"):
        of = bundle.get("name") if bundle.get("name") is not None else bundle.get("signerName")
        return [_File((bundle.get("path") or "").rstrip("/"), f"ClusterTrustBundle {quoted_text(of or '')}")]
    certificate = source.get("podCertificate") or {}
    return [
        _File(certificate[member].rstrip("/"), f"PodCertificate {what}")
        for member, what in _CERTIFICATE.items()
        if certificate.get(member)
    ]


def _overlaps(volume: str, shown: str, files: Sequence[_File]) -> Iterator[str]:
    """The warnings for a volume's files, up to the limit."""
    for file, other in itertools.islice(_pairs(files), _MAX_PAIRS):
        yield f"volume {volume} ({shown}): overlapping paths: {file} with {other}"


def _pairs(files: Sequence[_File]) -> Iterator[tuple[_File, _File]]:
    """Each file with the conflicting ones before it, without comparing all pairs of a hundred thousand files."""
    places: dict[str, list[int]] = {}
    for index, file in enumerate(files):
        if file.path:
            places.setdefault(f"{file.path}/", []).append(index)
    paths = sorted(places)
    above = _above(paths)
    for index, file in enumerate(files):
        if not file.path:
            continue
        path = f"{file.path}/"
        clashing = [*places[path], *_below(paths, path, places)]
        while path := above[path]:
            clashing += places[path]
        for other in sorted(each for each in clashing if each < index):
            yield file, files[other]


def _above(paths: Sequence[str]) -> dict[str, str]:
    """For each path, the longest earlier path with which it begins; empty if there is none. `paths` is sorted."""
    found: dict[str, str] = {}
    last = ""
    for path in paths:
        while not path.startswith(last):
            last = found[last]
        found[path] = last
        last = path
    return found


def _below(paths: Sequence[str], path: str, places: Mapping[str, Iterable[int]]) -> Iterator[int]:
    """The indexes of longer paths that begin with a path."""
    for number in range(bisect(paths, path), len(paths)):
        if not paths[number].startswith(path):
            return
        yield from places[paths[number]]
