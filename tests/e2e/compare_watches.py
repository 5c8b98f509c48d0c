"""Open random watches on the stand-in API server and a real one, and compare their frames.

    python -m tests.e2e.compare_watches ROUNDS [--seed N] [--show N]

In each round, watches are opened from earlier versions and with selectors, and then writes are made. The event types,
the objects without generated values, and refusals are compared. A round in which the two servers answer a write
differently is skipped: `compare_servers` compares writes. Differences with a known reason are counted separately.
"""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.controlplane.apiserver.random_requests import (
    CLAIMS,
    CLASSES,
    DRIVERS,
    LEASES,
    MAPS,
    NAMESPACES,
    SLICES,
    TEMPLATES,
    Request,
    Requests,
)
from tests.controlplane.apiserver.running import Http
from tests.e2e.compare_servers import RequestFormatter, exchange, is_free_form, members_of_ours, run
from tests.e2e.server_pair import JSON, PROTOBUF, YAML, FormattedRequest, Pair, Shown, differences
from tests.e2e.watch_pair import OpenWatch, Watch, Watched

KINDS = (CLASSES, CLAIMS, TEMPLATES, SLICES, DRIVERS, MAPS, LEASES)
WATCHES, WRITES, SECONDS = 12, 20, 3
"""Watches and writes per round, and a watch's duration. A real server sends a bookmark two seconds before its end."""
_AS = ";g=meta.k8s.io;v=v1;as="
_ACCEPTS = (
    *[JSON] * 6,
    *[f"{PROTOBUF};stream=watch"] * 3,
    *[f"{PROTOBUF}"] * 2,
    f"{JSON};stream=watch",
    YAML,
    f"{PROTOBUF},{JSON}",
    f"{JSON}{_AS}Table,{JSON}",
    f"{JSON}{_AS}PartialObjectMetadata",
    f"{PROTOBUF}{_AS}PartialObjectMetadata",
    f"{JSON}{_AS}PartialObjectMetadataList",
)
_LABELS = ("x", "!x", "x=1", "x in (1,2)", "x notin (1)", "x!=2", "((")
_FIELDS = ("metadata.name=a", "metadata.name!=a", "metadata.namespace=work", "spec.driver=gpu.example.com", "x")


class Compared(NamedTuple):
    """A watch, the writes while it was open, and the differences of its frames."""

    watched: Watched
    found: list[str]
    reason: str


def main() -> None:
    """Run the command; exits with 1 if there are differences without a reason."""
    run("compare_watches", str(__doc__), "rounds", compared, _print)


def compared(ours: Http, real: Http, rounds: int, seed: int) -> Iterator[Compared]:
    """Compare the watches of this number of rounds."""
    pair, choose = Pair(ours, real), random.Random(seed)
    requests, format_request = Requests(seed, KINDS), RequestFormatter(seed)
    older = 0  # the first version from which a watch shows no write with different answers
    for _ in range(rounds):
        for kind in KINDS:  # fills a real server's watch cache, from which a watch can begin
            pair.ask(FormattedRequest(Request("GET", kind.path_in_all_namespaces)))
        opened = [OpenWatch(pair, _watch(choose, pair, pair.versions[older:])) for _ in range(WATCHES)]
        are_alike = all(_write(pair, requests, format_request) for _ in range(WRITES))
        for watched in [each.read() for each in opened]:
            if are_alike:
                yield _compared(watched)
        if not are_alike:
            older = len(pair.versions)


def _write(pair: Pair, requests: Requests, format_request: RequestFormatter) -> bool:
    """Send one request that changes one object (several have no order); return whether the answers are equal."""
    while True:
        formatted = format_request(requests.next(), pair)
        path, method = formatted.request.path, formatted.request.method
        is_of_many = method == "DELETE" and path.endswith(tuple(kind.plural for kind in KINDS))
        if method != "GET" and not is_of_many:
            return not exchange(pair, formatted, requests).found


def _watch(choose: random.Random, pair: Pair, versions: list[str]) -> Watch:
    kind = choose.choice(KINDS)
    namespace = choose.choice(("", *NAMESPACES)) if kind.is_namespaced else ""
    query = {"timeoutSeconds": str(SECONDS)}
    version = choose.choice(("", "", "", "0", "1", "x", "last", "last", "seen", "seen", "seen"))
    if version == "last":
        query["resourceVersion"] = pair.last["resourceVersion"]
    elif version:
        query["resourceVersion"] = choose.choice(versions or ["0"]) if version == "seen" else version
    if choose.random() < 0.35:
        query["labelSelector"] = choose.choice(_LABELS)
    if choose.random() < 0.25:
        query["fieldSelector"] = choose.choice(_FIELDS)
    if choose.random() < 0.4:
        query["allowWatchBookmarks"] = choose.choice(("true", "true", "true", "false"))
    if choose.random() < 0.3:
        query["sendInitialEvents"] = choose.choice(("true", "true", "true", "false"))
        if choose.random() < 0.9:
            query["resourceVersionMatch"] = choose.choice(("NotOlderThan", "NotOlderThan", "NotOlderThan", "Exact"))
    return Watch(kind.path(choose.choice(kind.versions), namespace), choose.choice(_ACCEPTS), query)


def _compared(watched: Watched) -> Compared:
    ours, real = watched.ours, watched.real
    if is_free_form(watched.watch.path):
        real = real._replace(body=members_of_ours(ours.body, real.body))
    found = differences(ours._asdict(), real._asdict())
    return Compared(
        watched, found, next((text for text, holds in REASONS if holds(watched, found)), "") if found else ""
    )


def _print(each: Compared, width: int) -> None:
    watch = each.watched.watch
    print(f"WATCH {watch.path} {dict(watch.query)} -> {watch.accept}")
    for text in each.found[:8]:
        print(f"  {text[:width]}")
    for name, shown in (("ours", each.watched.ours), ("real", each.watched.real)):
        print(f"  {name} {_summary(shown)[:width]}")


def _summary(shown: Shown) -> str:
    """The events of a stream, as a short string."""
    if not isinstance(shown.body, list):
        return str(shown.body)
    events = []
    for event in shown.body:
        metadata = event["object"].get("metadata") or {}
        where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        events.append(f"{event['type']} {where}@{metadata.get('resourceVersion')}")
    return ", ".join(events)


REASONS: tuple[tuple[str, Callable[[Watched, list[str]], bool]], ...] = (
    (
        "a version of before our server's start, after which its history begins",
        lambda watched, _: watched.watch.query.get("resourceVersion") == "1",
    ),
    (
        "a bookmark as a table, which has a row without a name on a real server",
        lambda watched, found: "as=Table" in watched.watch.accept and all(".rows: ours []" in text for text in found),
    ),
    (
        "a bookmark of a slice, which has `devices: null` on a real 1.34",
        lambda _, found: all(text.endswith(".spec.devices: only real: null") for text in found),
    ),
)
"""Differences that are intended, or on which no client can depend; docs/apiserver.md explains them."""


if __name__ == "__main__":
    main()
