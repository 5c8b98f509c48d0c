"""Send valid objects with one mutation to the stand-in API server and a real one, and compare the answers.

    python -m tests.e2e.compare_objects COUNT [KIND ...] [--seed N] [--show N] [--all]

The objects are those of `mutated_objects`. COUNT mutations of each object are sent: as new objects and then, once the
object is stored, as updates, patches of each type and applied configurations, also of its status. All are dry runs, so
that they do not affect each other. $K8S selects the real server, and the release that the stand-in imitates.
Differences are counted by kind and reason; --all also prints those that have a known reason.
"""

import argparse
import http.client
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.controlplane.apiserver.mutated_objects import DROPPED, Mutation, Mutations, find_endpoint, objects
from tests.controlplane.apiserver.random_requests import JSON_PATCH, STRATEGIC, Request
from tests.controlplane.apiserver.running import APPLY, MERGE, Http, Plain
from tests.e2e.compare_servers import servers
from tests.e2e.server_pair import JSON, FormattedRequest, Pair, Shown, differences

_DRY = {"dryRun": "All"}
_APPLY = {**_DRY, "fieldManager": "compare", "force": "true"}


class Compared(NamedTuple):
    """A request about an object of a kind, its mutation, and the differences of the answers."""

    kind: str
    request: Request
    mutation: Mutation | None
    found: list[str]
    reason: str


def main() -> None:
    """Run the command; exits with 1 if there are differences without a reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.compare_objects", description=__doc__)
    parser.add_argument("count", type=int, help="mutations per object")
    parser.add_argument("kinds", nargs="*", help="kinds of objects; all by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20, help="the number of unexplained differences to print per kind")
    parser.add_argument("--width", type=int, default=700, help="the number of characters to print of each")
    parser.add_argument("--all", action="store_true", help="also print differences with a known reason")
    parsed = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    groups: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as (ours, real):
        for each in compared(ours, real, parsed.count, parsed.seed, parsed.kinds):
            key = (each.kind, each.reason if each.found else "equal")
            counts[key] += 1
            if each.found and (parsed.all or not each.reason):
                group = (each.kind, _group_of(each))
                groups[group] += 1
                if groups[group] == 1 and counts[key] <= parsed.show:
                    _print(each, parsed.width)
    for (kind, reason), count in sorted(counts.items()):
        print(f"{count:6} {kind}: {reason or 'DIFFER without a known reason'}")
    sys.exit(1 if any(not reason for _, reason in counts) else 0)


def compared(ours: Http, real: Http, count: int, seed: int, kinds: list[str]) -> Iterator[Compared]:
    """Compare this number of mutations of each object of these kinds (all by default)."""
    pair = Pair(ours, real)
    for obj in objects():
        if not kinds or obj["kind"] in kinds:
            yield from _Subject(pair, obj, seed).compared(count)


class _Subject:
    """An object, and requests about it."""

    def __init__(self, pair: Pair, obj: Plain, seed: int) -> None:
        self._pair, self._obj = pair, obj
        self._endpoint = find_endpoint(pair.servers[0], obj)
        where = f"{obj['kind']}/{obj['metadata']['name']}"
        self._mutations = Mutations(f"{seed} {where}")
        self._choose = random.Random(f"{seed} {where}")

    def compared(self, count: int) -> Iterator[Compared]:
        """First requests that create the object, then requests that change the stored one."""
        members = tuple(name for name in self._obj if name not in ("apiVersion", "kind", "status"))
        for _ in range(count // 2):
            mutation = self._mutations.next(self._obj, within=members)
            request = Request("POST", self._endpoint.path, mutation.applied(self._obj), JSON, _DRY)
            yield self._compared(request, mutation)
        yield self._compared(Request("POST", self._endpoint.path, self._obj, JSON, {}), None)
        named = f"{self._endpoint.path}/{self._obj['metadata']['name']}"
        if self._endpoint.has_status and "status" in self._obj:
            status = {"status": self._obj["status"]}
            yield self._compared(Request("PATCH", f"{named}/status", status, MERGE, {}), None)
        stored = self._stored(named)
        if stored is not None:
            yield from (self._changed(named, stored, members) for _ in range(count - count // 2))

    def _changed(self, named: str, stored: Plain, members: tuple[str, ...]) -> Compared:
        of_status = self._endpoint.has_status and "status" in self._obj and self._choose.random() < 0.25
        source = {**self._obj, "metadata": {"name": self._obj["metadata"]["name"]}} if of_status else self._obj
        mutation = self._mutations.next(source, within=("status",) if of_status else members)
        path = f"{named}/status" if of_status else named
        send = self._choose.choice((_put, _put, _merged, _json_patched, _strategic, _applied))
        return self._compared(send(path, source, stored, mutation), mutation)

    def _stored(self, path: str) -> Plain | None:
        """Return the stored object with the pair's placeholders; None if a server does not have it."""
        mine, theirs, seen = self._pair.ask(FormattedRequest(Request("GET", path, None, JSON, {})))
        return seen if mine.status == theirs.status == 200 else None

    def _compared(self, request: Request, mutation: Mutation | None) -> Compared:
        try:
            mine, theirs, _ = self._pair.ask(FormattedRequest(request))
        except http.client.RemoteDisconnected:  # some requests make a real server panic
            return Compared(self._obj["kind"], request, mutation, ["no answer"], "a server ends the connection")
        found = differences(mine._asdict(), theirs._asdict())
        reason = _reason(mine, theirs, found) if found else ""
        return Compared(self._obj["kind"], request, mutation, found, reason)


def _put(path: str, source: Plain, stored: Plain, mutation: Mutation) -> Request:
    """Return a request that replaces the stored object, as a client that had read it."""
    metadata = {**stored["metadata"], **source["metadata"]}
    metadata.pop("managedFields", None)
    return Request("PUT", path, mutation.applied({**source, "metadata": metadata}), JSON, _DRY)


def _merged(path: str, source: Plain, stored: Plain, mutation: Mutation) -> Request:
    return Request("PATCH", path, _as_merge(source, mutation), MERGE, _DRY)


def _strategic(path: str, source: Plain, stored: Plain, mutation: Mutation) -> Request:
    return Request("PATCH", path, _as_merge(source, mutation), STRATEGIC, _DRY)


def _as_merge(source: Plain, mutation: Mutation) -> Plain:
    """Return the change as a merge patch; a list is sent completely."""
    whole: Any = mutation.applied(source)
    steps = []
    for step in mutation.path:
        if isinstance(whole, list):
            break
        steps.append(step)
        whole = whole.get(step)  # None deletes the member
    for step in reversed(steps):
        whole = {step: whole}
    patch: Plain = whole
    return patch


def _json_patched(path: str, source: Plain, stored: Plain, mutation: Mutation) -> Request:
    where = "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in mutation.path)
    change = {"op": "remove"} if mutation.value is DROPPED else {"op": "replace", "value": mutation.value}
    return Request("PATCH", path, [{**change, "path": where}], JSON_PATCH, _DRY)


def _applied(path: str, source: Plain, stored: Plain, mutation: Mutation) -> Request:
    return Request("PATCH", path, mutation.applied(source), APPLY, _APPLY)


def _reason(ours: Shown, real: Shown, found: list[str]) -> str:
    return next((text for text, holds in REASONS if holds(ours, real, found)), "")


def _names_another_field(ours: Shown, real: Shown, found: list[str]) -> bool:
    """Return whether an applied configuration has several wrong fields: a real server names the first of a Go map."""
    texts = [str(shown.body.get("message")) for shown in (ours, real)]
    return all("failed to create typed patch object" in text and "not declared in schema" in text for text in texts)


REASONS: tuple[tuple[str, Callable[[Shown, Shown, list[str]], bool]], ...] = (
    ("which of several wrong fields of an applied configuration is named", _names_another_field),
)
"""Differences on which no client can depend."""


def _print(each: Compared, width: int) -> None:
    request = each.request
    print(f"{each.kind}: {each.mutation} | {request.method} {request.path} {request.content}")
    print(f"  value {str(each.mutation and each.mutation.value)[:200]}")
    is_refused = any(text.startswith(".status") for text in each.found)  # by one: then only these explain it
    found = [text for text in each.found if text.startswith((".status", ".body.message"))] if is_refused else each.found
    for text in found[:8]:
        print(f"  {_around_the_difference(text, width)}")


def _group_of(each: Compared) -> str:
    """Return the common part of similar differences."""
    return re.sub(r"\d+|\"[^\"]*\"", "", f"{each.found[0][:120]}")


def _around_the_difference(text: str, width: int) -> str:
    """Return the part of a difference where the values begin to differ."""
    where, _, values = text.partition(": ours ")
    ours, _, real = values.partition("\n")
    real = real.lstrip().removeprefix("real ")
    if len(text) < width or not real:
        return text[:width]
    pairs = enumerate(zip(ours, real, strict=False))
    start = max(0, next((at for at, (one, other) in pairs if one != other), 0) - width // 5)
    shown = (f"{name} ...{value[start : start + width // 2]}" for name, value in (("ours", ours), ("real", real)))
    return f"{where}: " + "\n    ".join(shown)


if __name__ == "__main__":
    main()
