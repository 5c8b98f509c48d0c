"""Lists, watches and tables: consistent pages, history, and the effect of selectors on changes."""

import base64
import json
from datetime import timedelta

import pytest

from tests.controlplane.apiserver.running import CLAIMS, CLASSES, MERGE, Http, Running, claim, device_class

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def _fill(api: Http, count: int) -> list[str]:
    """Create objects, and return the versions of their creation."""
    made = [
        api.ok("POST", CLASSES, device_class(f"m{index}", labels={"odd": str(index % 2)})) for index in range(count)
    ]
    return [each["metadata"]["resourceVersion"] for each in made]


def _names(listed: dict[str, object]) -> list[str]:
    items = listed["items"]
    assert isinstance(items, list)
    return [item["metadata"]["name"] for item in items]


def test_pages_show_one_version_of_list(api: Http) -> None:
    """Changes between two pages are not visible. The token contains the position of the next page."""
    _fill(api, 5)
    first = api.ok("GET", CLASSES, limit="2")
    assert (_names(first), first["metadata"]["remainingItemCount"]) == (["m0", "m1"], 3)
    api.ok("DELETE", f"{CLASSES}/m3")
    api.ok("POST", CLASSES, device_class("m2a"))
    second = api.ok("GET", CLASSES, limit="2", **{"continue": first["metadata"]["continue"]})
    third = api.ok("GET", CLASSES, limit="2", **{"continue": second["metadata"]["continue"]})
    assert _names(second) + _names(third) == ["m2", "m3", "m4"]
    assert {page["metadata"]["resourceVersion"] for page in (second, third)} == {first["metadata"]["resourceVersion"]}
    assert _names(api.ok("GET", CLASSES)) == ["m0", "m1", "m2", "m2a", "m4"]


def test_long_list_is_sent_in_chunks(api: Http) -> None:
    """Sent in chunks, so that other requests are not blocked. The content is complete and equal in every format."""
    path = "/api/v1/namespaces/default/configmaps"
    for number in range(30):
        data = {"k": "x" * 80_000}
        api.ok("POST", path, {"kind": "ConfigMap", "metadata": {"name": f"m{number:02}"}, "data": data})
    answer = api.send("GET", path)
    assert dict(answer.headers).get("transfer-encoding") == "chunked"
    whole = api.send("GET", path, pretty="true")
    assert "transfer-encoding" not in dict(whole.headers)
    assert answer.body == whole.body
    assert [each["metadata"]["name"] for each in answer.body["items"]] == [f"m{number:02}" for number in range(30)]
    assert api.send("GET", path, accept="application/vnd.kubernetes.protobuf").data.count(b"x" * 80_000) == 30


def test_list_at_exact_version_shows_past_state(api: Http) -> None:
    """The list at that version."""
    versions = _fill(api, 3)
    then = api.ok("GET", CLASSES, resourceVersion=versions[1], resourceVersionMatch="Exact")
    assert _names(then) == ["m0", "m1"]
    old = api.send("GET", CLASSES, resourceVersion="1", resourceVersionMatch="Exact")
    assert (old.status, old.body["reason"]) == (410, "Expired")
    future = api.send("GET", CLASSES, resourceVersion="999999")
    assert (future.status, future.body["details"]["retryAfterSeconds"]) == (504, 1)
    assert ("retry-after", "1") in future.headers


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ({"limit": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"continue": "zzz"}, 400, "continue key is not valid"),
        ({"labelSelector": "a in (b"}, 400, "unable to parse requirement: found '', expected: ',' or ')'"),
        ({"fieldSelector": "spec.x=1"}, 400, '"spec.x" is not a known field selector'),
        ({"resourceVersionMatch": "Exact"}, 422, "is forbidden unless resourceVersion is provided"),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents is forbidden for list"),
        ({"watch": "1", "sendInitialEvents": "true"}, 422, "requires setting resourceVersionMatch to NotOlderThan"),
        ({"watch": "1", "resourceVersion": "x"}, 500, "strconv.ParseUint"),
    ],
)
def test_invalid_list_query_is_refused(api: Http, query: dict[str, str], code: int, message: str) -> None:
    """Status code and message."""
    answer = api.send("GET", CLASSES, **query)
    assert answer.status == code
    assert message in answer.message


def test_continue_token_of_kube_apiserver_is_accepted(api: Http) -> None:
    """The token has the reference server's form: version, start key."""
    _fill(api, 2)
    version = api.ok("GET", CLASSES)["metadata"]["resourceVersion"]
    document = {"v": "meta.k8s.io/v1", "rv": int(version), "start": "/m0\0"}
    token = base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")
    assert _names(api.ok("GET", CLASSES, **{"continue": token})) == ["m1"]


def test_watch_from_version_sends_each_later_change_once(api: Http) -> None:
    """All later changes, once each and in order. Label changes add objects to the watch and remove them."""
    versions = _fill(api, 2)
    api.ok("PATCH", f"{CLASSES}/m0", {"metadata": {"labels": {"odd": "1"}}}, content=MERGE)
    gone = api.ok("DELETE", f"{CLASSES}/m1")
    query = {"resourceVersion": versions[0], "timeoutSeconds": "1"}
    with api.watch(CLASSES, **query) as events:
        found = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert found == [("ADDED", "m1"), ("MODIFIED", "m0"), ("DELETED", "m1")]
    with api.watch(CLASSES, **query, labelSelector="odd=0") as events:
        (left,) = list(events)
    assert (left["type"], left["object"]["metadata"]["labels"]) == ("DELETED", {"odd": "0"})
    assert gone["metadata"]["resourceVersion"] > versions[1]


def test_initial_events_end_with_annotated_bookmark(api: Http) -> None:
    """All objects, then a bookmark with the annotation, then changes."""
    _fill(api, 2)
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with api.watch(CLASSES, **query, timeoutSeconds="1") as events:
        found = list(events)
    assert [event["type"] for event in found] == ["ADDED", "ADDED", "BOOKMARK"]
    assert found[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_watch_of_all_objects_marks_end_of_initial_events_by_default(api: Http) -> None:
    """kube-apiserver 1.34, 1.36 and 1.37 do this for every watch that starts with all objects."""
    _fill(api, 1)
    for start in ({}, {"resourceVersion": "0"}):
        with api.watch(CLASSES, **start, allowWatchBookmarks="true") as events:
            first, second = next(events), next(events)
        assert (first["type"], second["type"]) == ("ADDED", "BOOKMARK")
        assert second["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_watch_sends_last_bookmark_before_timeout(api: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next watch can resume from there. A real server sends the bookmark two seconds before the end."""
    (version,) = _fill(api, 1)
    monkeypatch.setattr("controlplane.apiserver.watching.BOOKMARK_BEFORE_END", 999.9)
    with api.watch(CLASSES, resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds="1000") as events:
        bookmark = next(events)
    assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "DeviceClass")
    assert "annotations" not in bookmark["object"]["metadata"]


@pytest.mark.parametrize(
    ("path", "query", "code", "message"),
    [
        (
            CLASSES,
            {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
            422,
            'ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: sendInitialEvents requires'
            ' setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: "Exact":'
            ' supported values: "NotOlderThan"]',
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            {"fieldSelector": "metadata.namespace=work"},
            400,
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: metadata.namespace",
        ),
    ],
)
def test_invalid_watch_query_is_refused(api: Http, path: str, query: dict[str, str], code: int, message: str) -> None:
    """The refusals of kube-apiserver 1.37.1."""
    refused = api.send("GET", path, watch="true", timeoutSeconds="1", **query)
    assert (refused.status, refused.message) == (code, message)


def test_watch_options_are_checked_before_media_type(api: Http) -> None:
    """The answers of kube-apiserver 1.37.1. A list view contains no event and ends the stream."""
    _fill(api, 1)
    watching = {"watch": "true", "timeoutSeconds": "60"}
    refused = api.send("GET", CLASSES, accept="application/yaml", **watching, labelSelector="((")
    assert refused.status == 400
    assert "expected: !, identifier, or" in refused.text
    assert api.send("GET", CLASSES, accept="application/yaml", **watching).status == 406
    drivers = "/apis/foozer.example.com/v1alpha1/foozerconfigs"
    for query in ({}, watching):
        refused = api.send("GET", drivers, accept="application/vnd.kubernetes.protobuf", **query)
        assert refused.status == 406
        assert b"application/yaml, application/vnd.kubernetes.protobuf" in refused.data
    lists = TABLE.replace("Table", "PartialObjectMetadataList")
    assert api.send("GET", CLASSES, accept=lists, **watching).text == ""


def test_watch_from_expired_version_sends_error_event(api: Http) -> None:
    """An ERROR event with a Status 410."""
    _fill(api, 1)
    with api.watch(CLASSES, resourceVersion="1", timeoutSeconds="1") as events:
        (event,) = list(events)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_table_has_kubectl_columns_and_requested_objects(api: Http) -> None:
    """kubectl's columns, for lists and single objects, with the requested part of the object."""
    api.ok("POST", CLAIMS, claim())
    table = api.ok("GET", CLAIMS, accept=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "State", "Age"]
    assert table["rows"][0]["cells"][:2] == ["one", "pending"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert api.ok("GET", f"{CLAIMS}/one", accept=TABLE, includeObject="None")["rows"][0]["object"] is None
    whole = api.ok("GET", f"{CLAIMS}/one", accept=TABLE, includeObject="Object")
    assert whole["rows"][0]["object"]["kind"] == "ResourceClaim"
    assert (
        "must be 'Metadata', 'Object', 'None', or empty"
        in api.send("GET", CLAIMS, accept=TABLE, includeObject="x").text
    )


def test_table_ages_use_clock_of_server() -> None:
    with Running() as running, running.http() as api:
        api.ok("POST", CLAIMS, claim())
        was = running.server.rest.clock()
        running.server.rest.clock = lambda: was + timedelta(hours=30, minutes=5)
        assert api.ok("GET", CLAIMS, accept=TABLE)["rows"][0]["cells"][2] == "30h"


def test_table_watch_sends_columns_only_once(api: Http) -> None:
    """Only the first event contains the column definitions."""
    versions = _fill(api, 3)
    path = f"{CLASSES}?watch=1&timeoutSeconds=1&resourceVersion={versions[0]}"
    lines = [json.loads(line) for line in api.send("GET", path, accept=TABLE).text.splitlines()]
    assert [bool(line["object"]["columnDefinitions"]) for line in lines] == [True, False]


def test_partial_object_metadata_omits_spec(api: Http) -> None:
    """PartialObjectMetadata and its list."""
    _fill(api, 1)
    one = api.ok("GET", f"{CLASSES}/m0", accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    assert (one["kind"], "spec" in one) == ("PartialObjectMetadata", False)
    many = api.ok("GET", CLASSES, accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
    assert (many["kind"], many["items"][0]["metadata"]["name"]) == ("PartialObjectMetadataList", "m0")


def test_media_types_are_negotiated_and_body_size_is_limited(api: Http) -> None:
    """YAML in requests and answers; other formats are refused; bodies have a size limit."""
    text = b"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: made, annotations: {t: 2024-01-01}}\n"
    made = api.send("POST", CLASSES, text, content="application/yaml", accept="application/yaml")
    assert made.status == 201
    assert '  annotations:\n    t: "2024-01-01"\n' in made.text
    assert api.send("GET", CLASSES, accept="text/html").status == 406
    assert api.send("GET", CLASSES, accept="text/html, */*;q=0.8").status == 200
    assert api.send("POST", CLASSES, b"{}", content="text/plain").status == 415
    big = api.send("POST", CLASSES, b" " * (3 * 1024 * 1024 + 1))
    assert (big.status, big.message) == (413, "Request entity too large: limit is 3145728")


def test_watch_with_websocket_upgrade_ends_immediately(server: Running) -> None:
    """So that fabric8's informers watch over HTTP: a stream as the answer keeps them waiting for ever."""
    with server.http(sender={"Connection": "Upgrade", "Upgrade": "websocket"}) as client:
        answer = client.send("GET", "/api/v1/nodes", watch="true")
        assert (answer.status, answer.text) == (200, "")
        assert client.send("GET", "/api/v1/nodes").body["kind"] == "NodeList"
