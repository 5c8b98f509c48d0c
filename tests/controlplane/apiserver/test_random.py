"""Random requests: never a fault of the server, and the store stays whole."""

import json
import random
from typing import Any

import pytest

from tests.controlplane.apiserver.running import APPLY, CLAIMS, CLASSES, MERGE, Http

_CONTENTS = [
    "application/json",
    "application/yaml",
    MERGE,
    APPLY,
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
]
_WORDS = ["metadata", "spec", "status", "name", "labels", "finalizers", "managedFields", "ownerReferences", "selectors"]
_WORDS += ["devices", "requests", "exactly", "kind", "apiVersion", "$patch", "$setElementOrder/finalizers", "", "x"]
_TEXTS = [
    "",
    "x",
    "gpu",
    "resource.k8s.io/v1",
    "v1",
    "DeviceClass",
    "ResourceClaim",
    "delete",
    "replace",
    "\0",
    "ä",
    "1",
]
_EXPECTED_500 = ("failed to create typed patch object", "resourceVersion", "strconv", "map: map")


def _value(choose: random.Random, depth: int = 4) -> Any:
    kind = choose.randrange(8 if depth else 5)
    if kind < 5:
        return choose.choice([None, True, choose.choice(_TEXTS), choose.randrange(-3, 2**40), 1.5])
    if kind == 5:
        return [_value(choose, depth - 1) for _ in range(choose.randrange(3))]
    return {choose.choice(_WORDS): _value(choose, depth - 1) for _ in range(choose.randrange(4))}


def _object(choose: random.Random) -> Any:
    value: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": choose.choice(["DeviceClass", "ResourceClaim"]),
    }
    value["metadata"] = {"name": choose.choice(["gpu", "one"])}
    for _ in range(choose.randrange(3)):
        place = choose.choice([value, value.get("metadata")])
        if isinstance(place, dict):
            place[choose.choice(_WORDS)] = _value(choose)
    return value


@pytest.mark.parametrize("seed", range(5))
def test_random_requests(api: Http, seed: int) -> None:
    """Any method, path, type and body: an answer of the API, and lists that agree with single objects."""
    choose = random.Random(seed)
    for _ in range(250):
        collection = choose.choice([CLASSES, CLAIMS])
        path = collection + choose.choice(["", "/gpu", "/one", "/one/status"])
        body: Any = choose.choice([_object(choose), _value(choose), [_value(choose)], b"{", b"- a\n- [", None])
        query = {"fieldManager": "m"} if choose.random() < 0.5 else {}
        if choose.random() < 0.1:
            query["force"] = "true"
        method = choose.choice(["GET", "POST", "PUT", "PATCH", "PATCH", "DELETE"])
        answer = api.send(method, path, body, content=choose.choice(_CONTENTS), **query)
        told = answer.text[:500]
        assert answer.status < 500 or any(text in told for text in _EXPECTED_500), (method, path, body, told)
        json.loads(answer.text)
    for collection in (CLASSES, CLAIMS):
        listed = api.ok("GET", collection)["items"]
        for item in listed:
            single = api.ok("GET", f"{collection}/{item['metadata']['name']}")
            assert {**single, **item} == single
