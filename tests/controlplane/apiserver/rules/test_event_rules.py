"""Validation of events, as in a real API server 1.37.1: lenient through core/v1, strict through events.k8s.io."""

from typing import Any

import pytest

from tests.controlplane.apiserver.running import MERGE, Http

CORE = "/api/v1/namespaces/{}/events"
GROUP_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
TIME = "2024-01-01T00:00:00.000001Z"
OLD: dict[str, Any] = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default"}}
TIMED: dict[str, Any] = {
    **OLD,
    "eventTime": TIME,
    "reportingComponent": "x.y/z",
    "reportingInstance": "i",
    "action": "A",
    "reason": "R",
}
STRICT: dict[str, Any] = {
    "metadata": {"name": "e"},
    "regarding": {"kind": "Pod", "namespace": "default"},
    "eventTime": TIME,
    "reportingController": "x.y/z",
    "reportingInstance": "i",
    "action": "A",
    "reason": "R",
    "type": "Normal",
}


@pytest.mark.parametrize(
    ("namespace", "change", "why"),
    [
        ("default", {}, ""),
        ("default", {"involvedObject": {"kind": "Node"}}, ""),
        ("kube-system", {"involvedObject": {"kind": "Node"}}, 'Invalid value: "": does not match event.namespace'),
        ("kube-system", {}, 'Invalid value: "default": does not match event.namespace'),
    ],
)
def test_core_event_must_be_in_the_namespace_of_its_object(api: Http, namespace: str, change: Any, why: str) -> None:
    made = api.send("POST", CORE.format(namespace), OLD | change)
    if why:
        assert made.message == f'Event "e" is invalid: involvedObject.namespace: {why}'
    else:
        assert made.status == 201


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"involvedObject": {}}, ""),
        ({"action": "", "reason": None}, "[action: Required value, reason: Required value]"),
        ({"reportingInstance": "i" * 129}, 'reportingInstance: Invalid value: "": can have at most 128 characters'),
        ({"message": "m" * 1025}, 'message: Invalid value: "": can have at most 1024 characters'),
    ],
)
def test_core_event_with_event_time_requires_action_and_reason(api: Http, change: Any, why: str) -> None:
    made = api.send("POST", CORE.format("default"), TIMED | change)
    assert (made.status == 201) if not why else (made.message == f'Event "e" is invalid: {why}')
    if not why:
        changed = api.send("PATCH", f"{CORE.format('default')}/e", {"reason": "other"}, content=MERGE)
        assert changed.status == 200


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"type": "Z"}, 'type: Invalid value: "": has invalid value: Z'),
        ({"deprecatedCount": 3}, 'count: Invalid value: "": needs to be unset'),
        ({"deprecatedSource": {"host": "h"}}, 'source: Invalid value: "": needs to be unset'),
        ({"series": {"count": 2, "lastObservedTime": TIME}}, ""),
        (
            {"series": {"count": 1, "lastObservedTime": None}},
            '[series.count: Invalid value: "": should be at least 2, series.lastObservedTime: Required value]',
        ),
    ],
)
def test_events_group_event_is_validated_strictly(api: Http, change: Any, why: str) -> None:
    made = api.send("POST", GROUP_EVENTS, STRICT | change)
    assert (made.status == 201) if not why else (made.message == f'Event "e" is invalid: {why}')


def test_only_series_of_events_group_event_is_mutable(api: Http) -> None:
    api.ok("POST", GROUP_EVENTS, STRICT)
    series = {"series": {"count": 2, "lastObservedTime": TIME}}
    assert api.ok("PATCH", f"{GROUP_EVENTS}/e", series, content=MERGE)["series"]["count"] == 2
    refused = api.send("PATCH", f"{GROUP_EVENTS}/e", {"reason": "other", "note": "n"}, content=MERGE)
    assert refused.status == 422
    assert {each["field"] for each in refused.body["details"]["causes"]} == {"reason", "message"}


def test_events_are_selected_by_source_component(api: Http) -> None:
    path = CORE.format("default")
    api.ok("POST", path, OLD | {"metadata": {"name": "a"}, "source": {"component": "kubelet"}})
    api.ok("POST", path, TIMED | {"metadata": {"name": "b"}})

    def named(where: str, selector: str) -> list[str]:
        items = api.ok("GET", where, fieldSelector=selector)["items"]
        return [each["metadata"]["name"] for each in items]

    assert named(path, "source=kubelet") == ["a"]
    assert named(path, "source=x.y/z") == named(path, "reportingComponent=x.y/z") == ["b"]
    assert named(GROUP_EVENTS, "reportingController=x.y/z") == ["b"]
    refused = api.send("GET", GROUP_EVENTS, fieldSelector="source=kubelet")
    assert (refused.status, refused.message) == (400, "field label not supported: source")


@pytest.mark.parametrize("policy", ["Orphan", "Foreground"])
def test_event_is_deleted_at_once_with_every_propagation_policy(api: Http, policy: str) -> None:
    path = CORE.format("default")
    api.ok("POST", path, OLD)
    assert api.ok("DELETE", f"{path}/e", propagationPolicy=policy)["kind"] == "Status"
    assert api.send("GET", f"{path}/e").status == 404
