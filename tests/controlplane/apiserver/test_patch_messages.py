"""Refusals of patches: their text, and the order of managers and fields in it, as on a real server."""

from typing import Any

import pytest

from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, DRIVERS, definition, driver
from tests.controlplane.apiserver.running import APPLY, CLASSES, Http, device_class

MAPS = "/api/v1/namespaces/default/configmaps"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.mark.parametrize(
    ("patch", "shown", "why"),
    [
        ({"metadata": {"name": 1}}, "map[metadata:map[name:1]]", "cannot convert int64 to string"),
        ({"metadata": {"name": 1.5}}, "map[metadata:map[name:1.5]]", "unrecognized type: string"),
        (
            {"metadata": {"labels": {"a": True, "b": None}}},
            "map[metadata:map[labels:map[a:true]]]",
            "unrecognized type: string",
        ),
        (
            {"metadata": {"labels": None, "finalizers": [1.5]}},
            "map[metadata:map[finalizers:[1.5] labels:<nil>]]",
            "unrecognized type: string",
        ),
    ],
)
def test_strategic_patch_refusal_omits_nulls_in_new_maps(api: Http, patch: Any, shown: str, why: str) -> None:
    api.ok("POST", MAPS, {"kind": "ConfigMap", "metadata": {"name": "m"}})
    answer = api.send("PATCH", f"{MAPS}/m", patch, content=STRATEGIC)
    assert (answer.status, answer.message) == (422, f' "" is invalid: patch: Invalid value: "{shown}": {why}')


def test_conflict_lists_leaf_fields_before_nested_fields(api: Http) -> None:
    path = "/apis/storage.k8s.io/v1/storageclasses/s"
    body: Any = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    api.ok(
        "PATCH",
        f"{path}?fieldManager=m",
        {**body, "metadata": {"name": "s", "labels": {"x": "1"}}, "provisioner": "a"},
        content=APPLY,
    )
    other = {**body, "metadata": {"name": "s", "labels": {"x": "2"}}, "provisioner": "b"}
    answer = api.send("PATCH", f"{path}?fieldManager=n", other, content=APPLY)
    assert answer.message == (
        'Apply failed with 2 conflicts: conflicts with "m":\n- .provisioner\n- .metadata.labels.x'
    )


def test_applied_null_labels_keep_ownership_of_other_manager(api: Http) -> None:
    """Earlier appliers are compared with the stored object, in which an empty map counts as absent."""

    def applied(manager: str, **metadata: Any) -> Any:
        config = {**device_class(), "metadata": {"name": "gpu", **metadata}}
        return api.ok("PATCH", f"{CLASSES}/gpu?fieldManager={manager}", config, content=APPLY)

    applied("m", labels={})
    applied("n")
    again = applied("n", labels=None)
    owners = {each["manager"]: each["fieldsV1"] for each in again["metadata"]["managedFields"]}
    assert owners["m"]["f:metadata"] == owners["n"]["f:metadata"] == {"f:labels": {}}


def test_custom_resource_metadata_errors_are_in_name_order(api: Http) -> None:
    api.ok("POST", DEFINITIONS, definition())
    one: Any = driver("a", {"type": "x", "n": 1})
    one["metadata"] |= {"x": {}, "exactly": {}, "apiVersion": None}
    warnings = api.send("POST", f"{DRIVERS}?dryRun=All", one).warnings
    assert [text.split('\\"')[1] for text in warnings] == ["metadata.apiVersion", "metadata.exactly", "metadata.x"]
    one["metadata"] = {"uid": {}, "finalizers": 1.5}  # the first field by name is reported
    assert "into Go struct field ObjectMeta.finalizers" in api.send("POST", DRIVERS, one).message
