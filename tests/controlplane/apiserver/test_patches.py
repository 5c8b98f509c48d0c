"""Patches and server-side apply: results, field ownership, and refusals."""

from typing import Any

import pytest

from tests.controlplane.apiserver.running import APPLY, CLAIMS, CLASSES, MERGE, Http, claim, device_class

JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PATH = f"{CLASSES}/gpu"


@pytest.fixture
def gpu(api: Http) -> Any:
    """A stored class."""
    return api.ok("POST", CLASSES, device_class(labels={"a": "1"}), fieldManager="creator")


def _fields_by_manager(obj: Any) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", ())}


@pytest.mark.usefixtures("gpu")
def test_json_patch_applies_all_operations_or_is_refused(api: Http) -> None:
    """All operations. If one operation fails, the object stays unchanged."""
    operations = [
        {"op": "test", "path": "/metadata/labels/a", "value": "1"},
        {"op": "add", "path": "/metadata/labels/b~1c", "value": "2"},
        {"op": "copy", "from": "/metadata/labels/a", "path": "/metadata/labels/d"},
        {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/e"},
        {"op": "replace", "path": "/spec/selectors/0/cel/expression", "value": "true"},
        {"op": "add", "path": "/spec/selectors/-", "value": {"cel": {"expression": "false"}}},
        {"op": "remove", "path": "/metadata/labels/d"},
    ]
    changed = api.ok("PATCH", PATH, operations, content=JSON_PATCH)
    assert changed["metadata"]["labels"] == {"b/c": "2", "e": "1"}
    assert [each["cel"]["expression"] for each in changed["spec"]["selectors"]] == ["true", "false"]
    faults: list[dict[str, Any]] = [
        {"op": "remove", "path": "/metadata/labels/nope"},
        {"op": "replace", "path": "/metadata/nope/x", "value": "x"},
        {"op": "add", "path": "", "value": {}},
        {"op": "replace", "path": None, "value": {}},
        {"op": "copy", "from": "", "path": "/metadata/labels/x"},
        {"op": "test", "path": "/metadata/name", "value": "x"},
        {"op": "add", "path": "/spec/selectors/9", "value": {}},
        {"op": "bogus", "path": "/x"},
    ]
    for wrong in faults:
        refused = api.send("PATCH", PATH, [wrong], content=JSON_PATCH)
        assert (refused.status, refused.message) == (
            422,
            "the server rejected our request due to an error in our request",
        )
    many = api.send("PATCH", PATH, [operations[0]] * 10_001, content=JSON_PATCH)
    assert (many.status, many.body["reason"]) == (413, "RequestEntityTooLarge")


@pytest.mark.usefixtures("gpu")
def test_json_patch_replaces_absent_member_and_takes_negative_index(api: Http) -> None:
    """The reference's library replaces absent members, and accepts negative list indexes for `add`."""
    label, finalizers = "/metadata/labels/new", "/metadata/finalizers"
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": label, "value": None},
        {"op": "replace", "path": label, "value": "1"},
        {"op": "add", "path": finalizers, "value": ["a.b/1", "a.b/2"]},
        {"op": "add", "path": f"{finalizers}/-1", "value": "a.b/3"},
        {"op": "add", "path": f"{finalizers}/-4", "value": "a.b/0"},
        {"op": "replace", "path": f"{finalizers}/-1", "value": "a.b/4"},
    ]
    metadata = api.ok("PATCH", PATH, operations, content=JSON_PATCH, dryRun="All")["metadata"]
    assert (metadata["labels"]["new"], metadata["finalizers"]) == ("1", ["a.b/0", "a.b/1", "a.b/2", "a.b/4"])


@pytest.mark.parametrize("namespace", ["", None])
def test_patch_without_namespace_is_accepted_and_other_namespace_is_refused(api: Http, namespace: str | None) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    api.ok("POST", maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    changed = api.ok("PATCH", f"{maps}/a", {"metadata": {"namespace": namespace}, "data": {"a": "b"}}, content=MERGE)
    assert (changed["metadata"]["namespace"], changed["data"]) == ("default", {"a": "b"})
    other = api.send("PATCH", f"{maps}/a", {"metadata": {"namespace": "other"}}, content=MERGE)
    assert other.message == "the namespace of the provided object does not match the namespace sent on the request"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("content", "body", "code", "message"),
    [
        (MERGE, b"{", 400, "invalid JSON patch"),
        (APPLY, b"{", 400, "error decoding patch: error converting YAML to JSON: yaml: line 1: did not find expected"),
        (
            APPLY,
            b"[]",
            400,
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal",
        ),
        (MERGE, b"[]", 400, "cannot unmarshal array into Go value of type map[string]interface {}"),
        (MERGE, b"null", 400, "Invalid JSON Patch"),
        (MERGE, b'{"metadata":{"resourceVersion":"1"}}', 409, "the object has been modified"),
        (MERGE, b'{"metadata":{"name":"x"}}', 400, "the name of the object (x) does not match the name on the URL"),
        (MERGE, b'{"kind":"Other"}', 422, 'no kind "Other" is registered for version'),
        (MERGE, b'{"metadata":{"uid":"x"}}', 422, "metadata.uid: Invalid value"),
        (JSON_PATCH, b"{}", 400, "cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        (STRATEGIC, b"[]", 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (APPLY, b"{}", 400, "invalid object type: /, Kind="),
        (APPLY, b'{"apiVersion":[1],"kind":3}', 400, "invalid object type: /, Kind="),
        (
            APPLY,
            b'{"apiVersion":"resource.k8s.io/v1","kind":"DeviceClass","metadata":"x"}',
            500,
            "expected map, got &{x}",
        ),
        ("application/json", b"{}", 415, "415: Unsupported Media Type"),
    ],
)
def test_invalid_patch_is_refused_with_status_and_message(
    api: Http, content: str, body: bytes, code: int, message: str
) -> None:
    """Status code and message."""
    query = {"fieldManager": "me"} if content == APPLY else {}
    answer = api.send("PATCH", PATH, body, content=content, **query)
    assert answer.status == code
    assert message in answer.message


@pytest.mark.usefixtures("gpu")
def test_strategic_merge_follows_list_strategies_and_directives(api: Http) -> None:
    """Lists merged by key and as sets, directives, atomic lists."""
    uid = api.ok("GET", "/api/v1/namespaces/default")["metadata"]["uid"]  # the owner must exist
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": uid}
    first = {"metadata": {"finalizers": ["a.b/c"], "ownerReferences": [owner | {"controller": True}]}}
    api.ok("PATCH", PATH, first, content=STRATEGIC)
    second = {
        "metadata": {
            "finalizers": ["d.e/f"],
            "ownerReferences": [{"uid": uid, "blockOwnerDeletion": True}],
            "$deleteFromPrimitiveList/finalizers": ["a.b/c"],
        }
    }
    changed = api.ok("PATCH", PATH, second, content=STRATEGIC)
    assert changed["metadata"]["finalizers"] == ["d.e/f"]
    assert changed["metadata"]["ownerReferences"] == [owner | {"blockOwnerDeletion": True, "controller": True}]
    third = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": uid}]}, "spec": {"$patch": "delete"}}
    emptied = api.ok("PATCH", PATH, third, content=STRATEGIC)
    assert (emptied["spec"], "ownerReferences" in emptied["metadata"]) == ({}, False)
    api.ok("PATCH", PATH, first, content=STRATEGIC)
    keyless = api.send("PATCH", PATH, {"metadata": {"ownerReferences": [{"name": "z"}]}}, content=STRATEGIC)
    assert "does not contain declared merge key: uid" in keyless.message


@pytest.mark.usefixtures("gpu")
def test_json_patch_of_wrong_type_is_refused_at_first_wrong_member(api: Http) -> None:
    """The first member with a wrong type, in document order, is reported. Null is the zero value."""
    unread = "error decoding patch: json: cannot unmarshal"
    for patch, why in (
        (["a"], f"{unread} string into Go value of type handlers.jsonPatchOp"),
        ([{"path": 1, "op": 2}], f"{unread} number into Go struct field jsonPatchOp.path of type string"),
        (
            [{"op": "add", "path": "/x", "from": {}}],
            f"{unread} object into Go struct field jsonPatchOp.from of type string",
        ),
    ):
        refused = api.send("PATCH", PATH, patch, content=JSON_PATCH)
        assert (refused.status, refused.message) == (400, why)
    assert (
        "labels"
        not in api.ok("PATCH", PATH, [{"op": "add", "path": "/metadata/labels"}], content=JSON_PATCH)["metadata"]
    )


@pytest.mark.usefixtures("gpu")
def test_duplicate_and_unknown_patch_fields_cause_warnings_or_refusal(api: Http) -> None:
    patch = b'[{"op":"add","op":"add","path":"/metadata/labels/x","value":"1","why":1}]'
    errors = ['json patch duplicate field "[0].op"', 'json patch unknown field "[0].why"']
    quoted = [text.replace('"', '\\"') for text in errors]
    assert api.send("PATCH", PATH, patch, content=JSON_PATCH).warnings == [f'299 - "{text}"' for text in quoted]
    refused = api.send("PATCH", PATH, patch, content=JSON_PATCH, fieldValidation="Strict")
    assert (refused.status, refused.message.endswith(f"strict decoding error: {', '.join(errors)}")) == (422, True)
    twice = b'{"metadata":{"labels":{"x":"1","x":"2"}}}'
    (warning,) = api.send("PATCH", PATH, twice, content=MERGE).warnings
    assert "duplicate field" in warning


@pytest.mark.usefixtures("gpu")
def test_strategic_patch_with_unconvertible_value_is_refused(api: Http) -> None:
    """The messages are those of upstream's converter, not of its JSON decoder. Kind and version cannot be changed."""
    for metadata, why in (
        ({"labels": "x"}, "cannot restore map from string"),
        ({"labels": {"a": 1}}, "cannot convert int64 to string"),
        ({"finalizers": [{}]}, "unrecognized type: string"),
        ({"generation": 1.5}, "cannot convert float64 to int64"),
        ({"uid": 5}, "cannot convert int64 to types.UID"),
        ({"ownerReferences": [3]}, "cannot restore struct from: int64"),
    ):
        refused = api.send("PATCH", PATH, {"metadata": metadata}, content=STRATEGIC)
        assert (refused.status, refused.message.endswith(f": {why}")) == (422, True), refused.message
    assert api.ok("PATCH", PATH, {"kind": "X"}, content=STRATEGIC)["kind"] == "DeviceClass"


@pytest.mark.usefixtures("gpu")
def test_update_makes_its_manager_the_owner_of_changed_fields(api: Http) -> None:
    """A manager that changes a field owns it. Removed fields have no owner."""
    changed = api.ok("PATCH", PATH, {"metadata": {"labels": {"a": "2", "b": "1"}}}, content=MERGE, fieldManager="other")
    assert _fields_by_manager(changed) == {
        "creator": {"f:metadata": {"f:labels": {}}, "f:spec": {"f:selectors": {}}},
        "other": {"f:metadata": {"f:labels": {"f:a": {}, "f:b": {}}}},
    }
    emptied = api.ok("PATCH", PATH, {"metadata": {"labels": None}}, content=MERGE, fieldManager="third")
    assert _fields_by_manager(emptied) == {"creator": {"f:spec": {"f:selectors": {}}}}
    cleared = api.ok("PATCH", PATH, {"metadata": {"managedFields": [{}]}}, content=MERGE)
    assert "managedFields" not in cleared["metadata"]


def _applied_class(labels: dict[str, str], expression: str = "true") -> Any:
    value = device_class()
    if labels:
        value["metadata"]["labels"] = labels
    value["spec"] = {"selectors": [{"cel": {"expression": expression}}]}
    return value


def test_apply_creates_shares_and_removes_fields_and_refuses_conflicts(api: Http) -> None:
    """Apply creates, shares equal values, removes fields that it no longer contains, and refuses conflicts."""
    made = api.send("PATCH", PATH, _applied_class({"x": "1", "y": "1"}), content=APPLY, fieldManager="a")
    assert made.status == 201
    assert _fields_by_manager(made.body) == {
        "a": {"f:metadata": {"f:labels": {"f:x": {}, "f:y": {}}}, "f:spec": {"f:selectors": {}}}
    }
    shared = api.ok("PATCH", PATH, _applied_class({"x": "1"}), content=APPLY, fieldManager="b")
    assert set(_fields_by_manager(shared)) == {"a", "b"}
    dropped = api.ok("PATCH", PATH, _applied_class({}), content=APPLY, fieldManager="a")
    assert dropped["metadata"]["labels"] == {"x": "1"}
    conflict = api.send("PATCH", PATH, _applied_class({"x": "2"}, "false"), content=APPLY, fieldManager="c")
    assert conflict.status == 409
    assert conflict.message == (
        'Apply failed with 3 conflicts: conflicts with "a":\n- .spec.selectors\n'
        'conflicts with "b":\n- .metadata.labels.x\n- .spec.selectors'
    )
    forced = api.ok("PATCH", PATH, _applied_class({"x": "2"}, "false"), content=APPLY, fieldManager="c", force="true")
    assert set(_fields_by_manager(forced)) == {"c"}
    same = api.ok("PATCH", PATH, _applied_class({"x": "2"}, "false"), content=APPLY, fieldManager="c")
    assert same["metadata"]["resourceVersion"] == forced["metadata"]["resourceVersion"]


def test_apply_tracks_owners_of_list_items_by_key(api: Http) -> None:
    """Two managers own parts of a claim's status."""
    api.ok("POST", CLAIMS, claim())
    path, base = f"{CLAIMS}/one/status", claim()
    del base["spec"]
    result = {"request": "gpu", "driver": "d.e", "pool": "p", "device": "d"}
    allocation = base | {"status": {"allocation": {"devices": {"results": [result]}}}}
    api.ok("PATCH", path, allocation, content=APPLY, fieldManager="scheduler")
    condition = {"type": "Ready", "status": "True", "reason": "Ok", "message": ""}
    condition["lastTransitionTime"] = "2024-01-01T00:00:00Z"
    device = {"driver": "d.e", "pool": "p", "device": "d", "conditions": [condition]}
    both = api.ok("PATCH", path, base | {"status": {"devices": [device]}}, content=APPLY, fieldManager="driver")
    assert both["status"]["allocation"]
    key = 'k:{"device":"d","driver":"d.e","pool":"p"}'
    owned = _fields_by_manager(both)["driver"]["f:status"]["f:devices"][key]
    assert set(owned) == {".", "f:conditions", "f:device", "f:driver", "f:pool"}
    other = base | {"status": {"devices": [device | {"conditions": [condition | {"status": "False"}]}]}}
    conflict = api.send("PATCH", path, other, content=APPLY, fieldManager="other")
    assert conflict.message == (
        'Apply failed with 1 conflict: conflict with "driver" with subresource "status":'
        ' .status.devices[device="d",driver="d.e",pool="p"].conditions[type="Ready"].status'
    )
    gone = api.ok("PATCH", path, base | {"status": {}}, content=APPLY, fieldManager="driver")
    assert "devices" not in gone["status"]


@pytest.mark.parametrize(
    ("query", "change", "code", "message"),
    [
        ({}, {}, 422, "fieldManager: Required value: is required for apply patch"),
        ({"fieldManager": "a"}, {"metadata": {"name": "x"}}, 400, "does not match the name on the URL"),
        ({"fieldManager": "a"}, {"metadata": {"name": "gpu", "managedFields": []}}, 400, "managedFields must be nil"),
        ({"fieldManager": "a"}, {"kind": "X"}, 400, "invalid object type: resource.k8s.io/v1, Kind=X"),
        ({"fieldManager": "a"}, {"spec": {"x": 1}}, 500, ".spec.x: field not declared in schema"),
        ({"fieldManager": "a"}, {"spec": {"selectors": "x"}}, 500, ".spec.selectors: expected list, got &{x}"),
    ],
)
def test_invalid_apply_is_refused_with_status_and_message(
    api: Http, query: dict[str, str], change: Any, code: int, message: str
) -> None:
    """Status code and message."""
    answer = api.send("PATCH", PATH, device_class() | change, content=APPLY, **query)
    assert answer.status == code
    assert message in answer.message


@pytest.mark.usefixtures("gpu")
def test_apply_without_changes_records_no_time(api: Http) -> None:
    """A later apply with fewer fields has no time either, because it changes nothing."""
    less = {**device_class(), "spec": {}}
    for applied in (device_class(), device_class(), less):
        found = api.ok("PATCH", PATH, applied, content=APPLY, fieldManager="late")
        (entry,) = (each for each in found["metadata"]["managedFields"] if each["manager"] == "late")
        assert "time" not in entry
    changed = api.ok("PATCH", PATH, device_class(labels={"b": "1"}), content=APPLY, fieldManager="late")
    assert all("time" in each for each in changed["metadata"]["managedFields"])


@pytest.mark.usefixtures("gpu")
def test_first_apply_assigns_unowned_fields_to_before_first_apply(api: Http) -> None:
    """The first apply assigns all fields without an owner to one manager."""
    api.ok("PATCH", PATH, {"metadata": {"managedFields": [{}]}}, content=MERGE)
    applied = api.ok("PATCH", PATH, device_class(labels={"b": "1"}), content=APPLY, fieldManager="a")
    assert set(_fields_by_manager(applied)) == {"a", "before-first-apply"}


@pytest.mark.usefixtures("gpu")
def test_oldest_of_more_than_ten_managers_are_merged(api: Http) -> None:
    """More than ten updaters are merged."""
    for index in range(12):
        change = {"metadata": {"annotations": {f"n{index}": "x"}}}
        changed = api.ok("PATCH", PATH, change, content=MERGE, fieldManager=f"m{index:02}")
    assert len(changed["metadata"]["managedFields"]) == 10
    assert "ancient-changes" in _fields_by_manager(changed)


@pytest.mark.usefixtures("gpu")
def test_apply_conflict_is_evaluated_in_api_version_of_owner(api: Http) -> None:
    """An empty map of a manager that wrote in another version causes no conflict, because conversion removes it."""
    older = PATH.replace("/v1/", "/v1beta1/")
    empty = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "DeviceClass", "metadata": {"name": "n", "labels": {}}}
    named = f"{older.rpartition('/')[0]}/n"
    api.ok("PATCH", named, empty, content=APPLY, fieldManager="a")
    same = api.send("PATCH", named, empty, content=APPLY, fieldManager="b")
    newer = empty | {"apiVersion": "resource.k8s.io/v1"}
    other = api.send("PATCH", f"{CLASSES}/n", newer, content=APPLY, fieldManager="c")
    assert (same.status, 'conflict with "a": .metadata.labels' in same.message, other.status) == (409, True, 200)


@pytest.mark.usefixtures("gpu")
def test_apply_checks_types_inside_atomic_fields(api: Http) -> None:
    config = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    unread = "failed to create typed patch object (/gpu; resource.k8s.io/v1, Kind=DeviceClass): "
    for spec, why in (
        (
            {"selectors": [{"cel": {"expression": ["x"]}}]},
            ".spec.selectors[0].cel.expression: expected string, got "
            '&value.valueUnstructured{Value:[]interface {}{"x"}}',
        ),
        ({"selectors": [{"cell": 1}]}, ".spec.selectors[0].cell: field not declared in schema"),
    ):
        refused = api.send("PATCH", PATH, config | {"spec": spec}, content=APPLY, fieldManager="m")
        assert (refused.status, refused.message) == (500, unread + why)


def test_apply_of_non_boolean_flag_is_refused(api: Http) -> None:
    account: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    account["automountServiceAccountToken"] = {"labels": [True]}
    path = "/api/v1/namespaces/default/serviceaccounts/a"
    refused = api.send("PATCH", path, account, content=APPLY, fieldManager="m")
    assert refused.message.endswith(": .automountServiceAccountToken: expected boolean, got &{map[labels:[true]]}")


@pytest.mark.usefixtures("gpu")
def test_strategic_merge_puts_new_list_items_first(api: Http) -> None:
    """As on real servers: new items precede those that the patch does not name. A wrong directive removes the list."""

    def finalizers(value: Any) -> Any:
        answer = api.send("PATCH", PATH, {"metadata": {"finalizers": value}}, content=STRATEGIC)
        return answer.body["metadata"].get("finalizers") if answer.status == 200 else (answer.status, answer.message)

    assert finalizers(["a.b/c", "a.b/d"]) == ["a.b/c", "a.b/d"]
    assert finalizers(["x.y/z"]) == ["x.y/z", "a.b/c", "a.b/d"]
    assert finalizers(["a.b/d", "q.r/s"]) == ["x.y/z", "a.b/c", "a.b/d", "q.r/s"]
    why = "list element types are not identical: [[x.y/z a.b/c a.b/d q.r/s] [map[]]]"
    assert finalizers([{}]) == (500, why)
    assert finalizers({"$patch": 1.5}) is None


def test_apply_to_status_of_missing_object_is_404_for_any_body(api: Http) -> None:
    """404 for any body, because a status cannot create an object."""
    for body in (b"true", b"[1]", b"{"):
        assert api.send("PATCH", f"{CLAIMS}/none/status", body, content=APPLY, fieldManager="m").status == 404
    for body, why in (
        (b"true", "decoding patch: error unm"),
        (b"{", "decoding patch: error con"),
        (b"- [", "encoding patch: ya"),
    ):
        refused = api.send("PATCH", f"{CLAIMS}/none", body, content=APPLY, fieldManager="m")
        assert (refused.status, refused.message.startswith(f"error {why}")) == (400, True), refused.message


@pytest.mark.usefixtures("gpu")
def test_patch_with_non_string_kind_or_api_version_is_refused(api: Http) -> None:
    for patch, name, found in (({"kind": True}, "kind", "bool"), ({"apiVersion": 1.5}, "apiVersion", "number")):
        refused = api.send("PATCH", PATH, patch, content=MERGE)
        why = f"couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field"
        assert (refused.status, refused.message.endswith(f"{why} .{name} of type string")) == (422, True)
