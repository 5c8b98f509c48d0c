"""What a server says it serves: the documents of a real server, recorded with its defaults."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.definitions.test_definitions import definition
from tests.controlplane.apiserver.running import Http, Plain, Running

RECORDED: dict[str, dict[str, Plain]] = json.loads(
    gzip.decompress((Path(__file__).parent / "data" / "discovery.json.gz").read_bytes())
)
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OLDER = "resource.k8s.io"
"""The group of which older versions are served too, which a real server does only if it is configured."""
UNSERVED = "componentstatuses"
"""The resource of a real server that is not served."""


@pytest.mark.parametrize("version", list(RECORDED))
def test_documents_are_those_of_a_real_server(version: str) -> None:
    with Running(definitions=(), collect_after=None, release=RELEASES[version]) as server, server.http() as api:
        for name, expected in RECORDED[version].items():
            path = name.removeprefix("agg ")
            found = api.ok("GET", path, accept="application/json" if path == name else AGGREGATED)
            assert without_differences(found) == without_differences(expected), name


def without_differences(value: Any) -> Any:
    """A document without what is known to differ."""
    if isinstance(value, list):
        return [without_differences(each) for each in value if not _is_unserved(each)]
    if not isinstance(value, dict):
        return value
    if "versions" in value and OLDER in (value.get("name"), (value.get("metadata") or {}).get("name")):
        value = {**value, "versions": value["versions"][:1]}
    return {name: without_differences(item) for name, item in value.items()}


def _is_unserved(item: Any) -> bool:
    return isinstance(item, dict) and UNSERVED in (item.get("name"), item.get("resource"))


def test_kinds_of_definitions_name_their_group_in_the_aggregated_document(api: Http) -> None:
    """Clients add the document's group to built-in kinds, which lack it; a real server writes that of definitions."""
    made = api.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
    groups = api.ok("GET", "/apis", accept=AGGREGATED)["items"]
    found = next(each for each in groups if each["metadata"]["name"] == made["spec"]["group"])
    (resource,) = found["versions"][0]["resources"]
    expected = {"group": made["spec"]["group"], "version": "v1alpha1", "kind": made["spec"]["names"]["kind"]}
    assert resource["responseKind"] == expected
    assert {each["responseKind"]["group"] for each in resource["subresources"]} == {made["spec"]["group"]}
