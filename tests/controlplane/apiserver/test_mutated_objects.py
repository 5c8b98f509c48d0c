"""Valid objects are taken, and what is wrong with them in one place is refused or told, never a fault of ours."""

from typing import NamedTuple

import pytest

from tests.controlplane.apiserver.mutated_objects import Mutations, objects
from tests.controlplane.apiserver.running import APPLY, MERGE, Answer, Http, Plain, is_refused_as_by_the_reference

OBJECTS = objects()
_EACH = 8
"""Mutations of each object in each way; `tests.e2e.compare_objects` sends more, to a real server, too."""


class _Served(NamedTuple):
    path: str
    has_status: bool


def _served(api: Http, obj: Plain) -> _Served:
    version = obj["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    listed = api.ok("GET", base)["resources"]
    found = next(each for each in listed if each["kind"] == obj["kind"] and "/" not in each["name"])
    space = f"namespaces/{obj['metadata']['namespace']}/" if found["namespaced"] else ""
    has_status = any(each["name"] == f"{found['name']}/status" for each in listed)
    return _Served(f"{base}/{space}{found['name']}", has_status)


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}")
def test_objects_with_one_thing_wrong(api: Http, obj: Plain) -> None:
    served, name = _served(api, obj), obj["metadata"]["name"]
    mutations, members = Mutations(f"1 {name}"), tuple(set(obj) - {"apiVersion", "kind", "status"})
    for _ in range(_EACH):
        wrong = mutations.next(obj, within=members)
        _check(api.send("POST", served.path, wrong.applied(obj), dryRun="All"), str(wrong))
    api.ok("POST", served.path, obj)
    one = f"{served.path}/{name}"
    if served.has_status and "status" in obj:
        api.ok("PATCH", f"{one}/status", {"status": obj["status"]}, content=MERGE)
    for _ in range(_EACH):
        wrong = mutations.next(obj, within=members)
        _check(api.send("PUT", one, wrong.applied(obj), dryRun="All"), str(wrong))
        applied = api.send(
            "PATCH", one, wrong.applied(obj), content=APPLY, dryRun="All", fieldManager="a", force="true"
        )
        _check(applied, str(wrong))
    if served.has_status and "status" in obj:
        for _ in range(_EACH):
            wrong = mutations.next(obj, within=("status",))
            _check(api.send("PUT", f"{one}/status", wrong.applied(obj), dryRun="All"), str(wrong))


def _check(answer: Answer, wrong: str) -> None:
    assert answer.status < 500 or is_refused_as_by_the_reference(answer.text), (wrong, answer)
