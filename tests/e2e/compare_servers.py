"""Send random requests to the stand-in API server and a real one, and compare codes and bodies.

    python -m tests.e2e.compare_servers COUNT [--seed N] [--show N]

$K8S selects the real server, and the release that the stand-in imitates. After a request with different answers, its
objects are removed from both servers, so that each difference counts once. Differences with a known reason are counted
separately. No controllers run on either side.
"""

import argparse
import copy
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from controlplane.apiserver import protobuf
from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.definitions.test_definitions import definition
from tests.controlplane.apiserver.random_requests import (
    ACCOUNTS,
    CLAIMS,
    CLASSES,
    DAEMONS,
    DRIVERS,
    LEASES,
    MAPS,
    NAMESPACE_OBJECTS,
    NODES,
    PODS,
    ROLES,
    SECRETS,
    SLICES,
    STORAGE,
    STRATEGIC,
    TEMPLATES,
    Request,
    Requests,
)
from tests.controlplane.apiserver.running import APPLY, MERGE, Http, Plain, Running
from tests.e2e.realnode import KUBERNETES
from tests.e2e.realserver import RealServer
from tests.e2e.server_pair import JSON, PROTOBUF, YAML, FormattedRequest, Pair, Shown, differences, is_object, objects

TYPED = (CLASSES, CLAIMS, TEMPLATES, SLICES)
OPEN = (MAPS, PODS, NAMESPACE_OBJECTS, NODES, SECRETS, ACCOUNTS, LEASES, ROLES, STORAGE, DAEMONS)
SCALED = DRIVERS._replace(has_scale=True)
OFTEN = (*TYPED * 4, SCALED, SCALED, *OPEN)
_RULES = [
    {"rule": "self.n < 2 || self.type != 'x'", "message": "no two of x"},
    {"rule": "self.type.size() < 5 || oldSelf.type == self.type", "messageExpression": "'not ' + self.type"},
]
_SENDER = {"User-Agent": "compare/1"}
_AS = ";g=meta.k8s.io;v=v1;as="
_ACCEPTS = (
    *[JSON] * 8,
    *[PROTOBUF] * 6,
    YAML,
    f"{PROTOBUF},{JSON}",
    f"{JSON}{_AS}Table,{JSON}",
    f"{JSON}{_AS}PartialObjectMetadata",
    f"{PROTOBUF}{_AS}PartialObjectMetadata",
    f"{PROTOBUF}{_AS}PartialObjectMetadataList",
    "text/html",
    "*/*",
)
_FLAGS = (
    "--runtime-config=api/all=true",
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection",
)


class Compared(NamedTuple):
    """A request, and the differences of the answers."""

    formatted: FormattedRequest
    ours: Shown
    real: Shown
    found: list[str]
    reason: str


class Comparison(Protocol):
    """A comparison: the differences, and the known reason for them."""

    @property
    def found(self) -> list[str]:
        """The differences."""

    @property
    def reason(self) -> str:
        """The known reason; "" if there is none."""


J = TypeVar("J", bound=Comparison)


def main() -> None:
    """Run the command; exits with 1 if there are differences without a reason."""
    run("compare_servers", str(__doc__), "count", compared, _print)


def run(
    name: str,
    description: str,
    amount: str,
    compare: Callable[[Http, Http, int, int], Iterator[J]],
    show: Callable[[J, int], None],
) -> None:
    """Run a command that compares an `amount` with a seed, and counts the differences by reason."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.e2e.{name}", description=description)
    parser.add_argument(amount, type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20, help="the number of unexplained differences to print")
    parser.add_argument("--width", type=int, default=700, help="the number of characters to print of each")
    parsed = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as (ours, real):
        for each in compare(ours, real, getattr(parsed, amount), parsed.seed):
            counts[each.reason if each.found else "equal"] += 1
            if each.found and not each.reason and counts[""] <= parsed.show:
                show(each, parsed.width)
    for reason, count in counts.most_common():
        print(f"{count:6} {reason or 'DIFFER without a known reason'}")
    sys.exit(1 if counts[""] else 0)


@contextmanager
def servers(folder: Path) -> Iterator[tuple[Http, Http]]:
    """Clients of both servers, which have one definition and the namespaces of the requests."""
    release = RELEASES[KUBERNETES]
    with (
        RealServer(folder, *_FLAGS) as real_server,
        Running(definitions=(), collect_after=None, release=release) as server,
        server.http(sender=_SENDER) as ours,
        Http(real_server.url, "admin", real_server.ca, _SENDER) as real,
    ):
        for api in (ours, real):
            api.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition())
            while api.send("GET", DRIVERS.path_in_all_namespaces).status != 200:
                pass  # a definition is established some time after its creation
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "work"}}
            api.ok("POST", NAMESPACE_OBJECTS.path_in_all_namespaces, space)
        yield ours, real


def _definition() -> Plain:
    """The definition that drivers use, with rules and a scale."""
    made = copy.deepcopy(definition())
    (version,) = made["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = _RULES
    version["subresources"]["scale"] = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.x"}
    return made


def compared(ours: Http, real: Http, count: int, seed: int) -> Iterator[Compared]:
    """Compare this number of requests."""
    pair, requests, format_request = Pair(ours, real), Requests(seed, OFTEN), RequestFormatter(seed)
    for _ in range(count):
        yield exchange(pair, format_request(requests.next(), pair), requests)


def exchange(pair: Pair, formatted: FormattedRequest, requests: Requests) -> Compared:
    """Send a request to both servers. `requests` learns equal answers; objects with different answers are removed."""
    mine, theirs, seen = pair.ask(formatted)
    if is_free_form(formatted.request.path):
        theirs = theirs._replace(body=members_of_ours(mine.body, theirs.body))
    found = differences(mine._asdict(), theirs._asdict())
    reason = next((text for text, holds in REASONS if holds(formatted, mine, theirs, found)), "") if found else ""
    if found:
        _remove_what_differs(pair.servers, formatted.request)
    elif mine.status < 300 and is_object(seen) and not formatted.request.path.endswith("/scale"):
        times = ("managedFields", "creationTimestamp", "deletionTimestamp")  # each server has its own
        metadata = {name: item for name, item in seen["metadata"].items() if name not in times}
        requests.record({**seen, "metadata": metadata})
    return Compared(formatted, mine, theirs, found, reason)


class RequestFormatter:
    """Varies requests: protobuf, media types of answers, damaged bodies; continues lists."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)
        self._next: Request | None = None

    def __call__(self, request: Request, pair: Pair) -> FormattedRequest:
        choose = self._choose
        if self._next is not None and "continue" in pair.last and choose.random() < 0.7:
            query = {name: text for name, text in self._next.query.items() if not name.startswith("resourceVersion")}
            request = self._next._replace(query=query | {"continue": pair.last["continue"]})
        pair.last.pop("continue", None)
        self._next = request if request.method == "GET" and "limit" in request.query else None
        request = self._as_dry_run(request)
        formatted = FormattedRequest(request, choose.choice(_ACCEPTS))
        can = isinstance(request.body, dict) and request.content == JSON and "customres" not in request.path
        if can and "/apis/example.com/" not in request.path and choose.random() < 0.5:
            body = self._protobuf_body(request)
            if body is not None:
                at = choose.randrange(200) if choose.random() < 0.05 else -1
                formatted = formatted._replace(request=request._replace(body=body, content=PROTOBUF), damage_at=at)
        return formatted

    def _as_dry_run(self, request: Request) -> Request:
        """Make requests without a cleanup dry runs: deletions of namespaces, and creations of generated names."""
        body = request.body
        metadata = body.get("metadata") if isinstance(body, dict) else None
        is_generated = isinstance(metadata, dict) and "generateName" in metadata
        if (
            request.method == "DELETE"
            and request.path.startswith(NAMESPACE_OBJECTS.path_in_all_namespaces)
            and request.path.count("/") < 5
        ):
            return request._replace(query={**request.query, "dryRun": "All"}, body=None)
        if is_generated or (request.method != "GET" and "/customresourcedefinitions" in request.path):
            return request._replace(query={**request.query, "dryRun": "All"})
        return request

    def _protobuf_body(self, request: Request) -> Any:
        """Return the body if protobuf can encode it, else None."""
        try:
            protobuf.encode(request.body)
        except Exception:  # there is no message for the kind or the values
            return None
        return request.body


def is_free_form(path: str) -> bool:
    return not path.startswith(("/apis/resource.k8s.io", "/apis/example.com", "/apis/apiextensions"))


def members_of_ours(ours: Any, real: Any, key: str = "") -> Any:
    """Return the real server's members that ours has as well: others are defaults of kinds that are free-form here."""
    if isinstance(ours, dict) and isinstance(real, dict):
        if key == "metadata":
            return {name: item for name, item in real.items() if name != "managedFields" or name in ours}
        return {name: members_of_ours(ours[name], item, name) for name, item in real.items() if name in ours}
    if isinstance(ours, list) and isinstance(real, list) and len(ours) == len(real) and key != "managedFields":
        return [members_of_ours(*each) for each in zip(ours, real, strict=True)]
    return real


def _remove_what_differs(apis: Sequence[Http], request: Request) -> None:
    """Delete the objects of a request on both servers."""
    path = request.path.removesuffix("/status").removesuffix("/scale")
    parts = path.split("/")
    depth = (6 if "namespaces" in parts[:-1] else 4) + (path.startswith("/apis/"))
    collection, name = "/".join(parts[:depth]), "/".join(parts[depth:])
    if collection == NAMESPACE_OBJECTS.path_in_all_namespaces:
        return
    for api in apis:
        listed = api.send("GET", collection)
        for item in objects(listed.body if listed.status == 200 else None):
            found = item["metadata"]["name"]
            if name in ("", found):
                where = f"{collection}/{found}"
                if "namespaces" not in parts and item["metadata"].get("namespace"):
                    continue
                api.send("PATCH", where, {"metadata": {"finalizers": None}}, content=MERGE)
                api.send("DELETE", where, gracePeriodSeconds="0")


def _print(each: Compared, width: int) -> None:
    request = each.formatted.request
    print(f"{request.method} {request.path} {dict(request.query)} {request.content} -> {each.formatted.accept}")
    print(f"  body {str(request.body)[:width]}")
    for text in each.found[:8]:
        print(f"  {text[:width]}")


def _is_of_free_form_kind(formatted: FormattedRequest, ours: Shown, real: Shown, found: list[str]) -> bool:
    """Return whether the request is about a kind that the stand-in neither validates nor defaults."""
    if not is_free_form(formatted.request.path):
        return False
    if (
        ours.status == real.status
        and formatted.request.path.startswith(NAMESPACE_OBJECTS.path_in_all_namespaces)
        and not _is_namespaced(formatted)
    ):
        return True  # a namespace's old status cannot be restored
    if ours.status == real.status:
        return all(_OF_OPEN_KINDS.search(text) for text in found) or _is_unknown_field(found)
    return ours.status < 300 or real.status in (409, 422, 500)


def _is_namespaced(formatted: FormattedRequest) -> bool:
    """Return whether a request is about an object in a namespace."""
    return (
        formatted.request.path.removesuffix("/status").count("/")
        > NAMESPACE_OBJECTS.path_in_all_namespaces.count("/") + 1
    )


def _is_unknown_field(found: list[str]) -> bool:
    return all(text.startswith(".warnings") or "strict decoding error" in text for text in found)


def _has_more_pages(formatted: FormattedRequest, ours: Shown, real: Shown, found: list[str]) -> bool:
    is_only = all(text.startswith(".body.metadata.continue: only real") for text in found)
    return is_only and "labelSelector" in formatted.request.query


def _counts_system_objects(formatted: FormattedRequest, ours: Shown, real: Shown, found: list[str]) -> bool:
    """Return whether the answer is a page of a list in which a real server has its own objects."""
    query = formatted.request.query
    return (
        formatted.request.method == "GET"
        and is_free_form(formatted.request.path)
        and ("limit" in query or "continue" in query)
    )


def _changes_a_type(formatted: FormattedRequest, ours: Shown, real: Shown, found: list[str]) -> bool:
    """Return whether a patch changes a member's type, or contains an invalid directive of strategic patches."""
    request, word = formatted.request, str((real.body or {}).get("message")) if isinstance(real.body, dict) else ""
    if request.content == STRATEGIC and ("cannot restore" in word or "$" in str(request.body)):
        return real.status in (422, 500)
    return request.content == APPLY and real.status == 500 and ours.status == 400


def _names_another_field(formatted: FormattedRequest, ours: Shown, real: Shown, found: list[str]) -> bool:
    """Return whether an applied configuration has several wrong fields: a real server names the first of a Go map."""
    return len(found) == 1 and found[0].count("failed to create typed patch object") == 2


def _differs_in_order(formatted: FormattedRequest, ours: Shown, real: Shown, found: list[str]) -> bool:
    """Return whether both refusals show the same object, with another order of members or escaping of strings."""
    texts = [str(shown.body).replace("\\\\u00e4", "ä").replace("\\", "") for shown in (ours, real)]
    return ours.status == real.status == 422 and sorted(texts[0]) == sorted(texts[1])


def _is_write_without_change(formatted: FormattedRequest, ours: Shown, real: Shown, found: list[str]) -> bool:
    """Return whether only versions differ: one server counted a write without a change as a change, now or before."""
    return bool(found) and all(_ANOTHER_VERSION.search(text) for text in found)


def _is_version_before_the_start(formatted: FormattedRequest, ours: Shown, real: Shown, found: list[str]) -> bool:
    return formatted.request.query.get("resourceVersion") == "1" and ours.status == 410


_OF_OPEN_KINDS = re.compile(
    r"^[^:]*(\.annotations|\.generation|\.columnDefinitions|\.cells|\.uid: only ours)|^\.body\.rows"
)
_ANOTHER_VERSION = re.compile(
    r"^\S*(\.resourceVersion: ours \"version-\d+\"|\.uid: ours \"uid-\d+\")\s+real \"<"
    r"|^\S*\.managedFields\[\d+\]\.time: only "
)
_Holds = Callable[[FormattedRequest, Shown, Shown, list[str]], bool]
REASONS: tuple[tuple[str, _Holds], ...] = (
    ("a kind that is free-form here", _is_of_free_form_kind),
    ("a damaged protobuf body: the words of its refusal", lambda formatted, *_: formatted.damage_at >= 0),
    ("a patch that breaks a type: the words, or that it is refused", _changes_a_type),
    ("a page of a list in which a real server has objects of its own", _counts_system_objects),
    ("which of several wrong fields of an applied configuration is named", _names_another_field),
    ("a write without a change: which version it leaves", _is_write_without_change),
    ("the order of members of an object that a refusal shows", _differs_in_order),
    ("a version of before our server's start", _is_version_before_the_start),
    ("a page of a list with a selector: whether another one follows", _has_more_pages),
)
"""Differences that are intended, or on which no client can depend; docs/apiserver.md explains them."""


if __name__ == "__main__":
    main()
