"""Valid objects are accepted. A single fault is refused or causes a warning, and never a server error."""

import pytest

from tests.controlplane.apiserver.mutated_objects import Mutations, objects, served
from tests.controlplane.apiserver.running import APPLY, MERGE, Answer, Http, Plain, is_refused_as_by_the_reference

OBJECTS = objects()
_EACH = 4
"""Mutations per object and write method. `tests.e2e.compare_objects` sends more, also to a real server."""


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}")
def test_objects_with_one_thing_wrong(api: Http, obj: Plain) -> None:
    found, name = served(api, obj), obj["metadata"]["name"]
    mutations, members = Mutations(f"1 {name}"), tuple(set(obj) - {"apiVersion", "kind", "status"})
    for _ in range(_EACH):
        wrong = mutations.next(obj, within=members)
        _check(api.send("POST", found.path, wrong.applied(obj), dryRun="All"), str(wrong))
    api.ok("POST", found.path, obj)
    one = f"{found.path}/{name}"
    if found.has_status and "status" in obj:
        api.ok("PATCH", f"{one}/status", {"status": obj["status"]}, content=MERGE)
    for _ in range(_EACH):
        wrong = mutations.next(obj, within=members)
        _check(api.send("PUT", one, wrong.applied(obj), dryRun="All"), str(wrong))
        applied = api.send(
            "PATCH", one, wrong.applied(obj), content=APPLY, dryRun="All", fieldManager="a", force="true"
        )
        _check(applied, str(wrong))
    if found.has_status and "status" in obj:
        for _ in range(_EACH):
            wrong = mutations.next(obj, within=("status",))
            _check(api.send("PUT", f"{one}/status", wrong.applied(obj), dryRun="All"), str(wrong))


def _check(answer: Answer, wrong: str) -> None:
    assert answer.status < 500 or is_refused_as_by_the_reference(answer.text), (wrong, answer)
