"""An observer of the server gets each request with its answer."""

from controlplane.apiserver.observing import AnsweredRequest
from tests.controlplane.apiserver.running import CLASSES, MERGE, Running


def test_observer_gets_accepted_and_refused_requests() -> None:
    seen: list[AnsweredRequest] = []
    with Running(observe=seen.append, collect_after=None) as running, running.http(sender={"User-Agent": "me"}) as api:
        api.send("POST", CLASSES, {"metadata": {"name": "good"}})
        api.send("POST", CLASSES, {"metadata": {"name": "G"}})
        api.send("POST", CLASSES, b"", content="text/csv")
        api.send("PATCH", f"{CLASSES}/none", {}, content=MERGE)
        api.send("GET", "/api/v1/namespaces/default/pods", watch="1", resourceVersion="x")
        api.send("GET", "/api/v1/nodes/n/status")
        api.send("GET", "/apis/cilium.io/v2/ciliumnodes")
        api.send("GET", "/apis/resource.k8s.io/v1alpha2/resourceslices")
        api.send("GET", "/apis/resource.k8s.io")
        with running.http(token="wrong") as stranger:
            stranger.send("GET", "/api/v1/nodes")
    assert {each.user_agent for each in seen[:-1]} == {"me"}
    assert [(each.verb, each.kind, each.name, each.code) for each in seen] == [
        ("create", "DeviceClass", "", 201),
        ("create", "DeviceClass", "G", 422),
        ("create", "DeviceClass", "", 415),
        ("patch", "DeviceClass", "none", 404),
        ("watch", "Pod", "", 500),
        ("get", "Node/status", "n", 404),
        ("list", "ciliumnodes.v2.cilium.io", "", 404),
        ("list", "resourceslices.v1alpha2.resource.k8s.io", "", 404),
        ("get", "/apis/resource.k8s.io", "", 200),
        ("list", "Node", "", 401),
    ]
    created, invalid, *_, not_served, _, _, unauthorized = seen
    assert (created.message, created.causes) == ("", ())
    assert invalid.message.startswith('DeviceClass.resource.k8s.io "G" is invalid: metadata.name: Invalid value: "G"')
    assert [each.split(": ")[0] for each in invalid.causes] == ["FieldValueInvalid Invalid value"]
    assert (not_served.message, unauthorized.message) == ("404 page not found", "Unauthorized")
