"""Valid objects are accepted. A single fault is refused or causes a warning, and never a server error."""

import pytest

from tests.controlplane.apiserver.mutated_objects import Mutations, find_endpoint, objects
from tests.controlplane.apiserver.running import APPLY, MERGE, Answer, Http, Plain, is_reference_server_error

OBJECTS = objects()
_MUTATIONS_PER_METHOD = 4
"""Mutations per object and write method. `tests.e2e.compare_objects` sends more, also to a real server."""


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}")
def test_object_with_single_fault_causes_no_server_error(api: Http, obj: Plain) -> None:
    found, name = find_endpoint(api, obj), obj["metadata"]["name"]
    mutations, members = Mutations(f"1 {name}"), tuple(set(obj) - {"apiVersion", "kind", "status"})
    for _ in range(_MUTATIONS_PER_METHOD):
        wrong = mutations.next(obj, within=members)
        _check(api.send("POST", found.path, wrong.applied(obj), dryRun="All"), str(wrong))
    api.ok("POST", found.path, obj)
    one = f"{found.path}/{name}"
    if found.has_status and "status" in obj:
        api.ok("PATCH", f"{one}/status", {"status": obj["status"]}, content=MERGE)
    for _ in range(_MUTATIONS_PER_METHOD):
        wrong = mutations.next(obj, within=members)
        _check(api.send("PUT", one, wrong.applied(obj), dryRun="All"), str(wrong))
        applied = api.send(
            "PATCH", one, wrong.applied(obj), content=APPLY, dryRun="All", fieldManager="a", force="true"
        )
        _check(applied, str(wrong))
    if found.has_status and "status" in obj:
        for _ in range(_MUTATIONS_PER_METHOD):
            wrong = mutations.next(obj, within=("status",))
            _check(api.send("PUT", f"{one}/status", wrong.applied(obj), dryRun="All"), str(wrong))


def _check(answer: Answer, wrong: str) -> None:
    assert answer.status < 500 or is_reference_server_error(answer.text), (wrong, answer)
