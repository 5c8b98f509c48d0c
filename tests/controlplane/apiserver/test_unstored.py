"""Requests whose objects are not stored or that are forwarded, and `finalize`. Messages are a real server's."""

from typing import Any

import pytest

from tests.controlplane.apiserver.running import Http, Plain, Running

SPACE = "/api/v1/namespaces/default"
REVIEWS = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
PODS: Plain = {"namespace": "default", "verb": "get", "resource": "pods"}
PATHS: Plain = {"path": "/", "verb": "get"}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"resourceAttributes": PODS}, 'spec.user: Invalid value: "": at least one of user or group must be specified'),
        ({"user": "u", "resourceAttributes": {**PODS, "namespace": "o"}}, "must match metadata.namespace"),
        (
            {"user": "u", "nonResourceAttributes": PATHS},
            'spec.nonResourceAttributes: Invalid value: {"Path":"/","Verb":"get"}: disallowed on this kind of request',
        ),
        (
            {"user": "u", "nonResourceAttributes": PATHS, "resourceAttributes": PODS},
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
    ],
)
def test_invalid_review_of_a_namespace_is_refused(api: Http, spec: Plain, why: str) -> None:
    refused = api.send("POST", REVIEWS, {"metadata": {"namespace": "default"}, "spec": spec})
    assert (refused.status, why in refused.message) == (422, True), refused


def test_review_of_a_namespace_is_answered(api: Http) -> None:
    made = api.ok("POST", REVIEWS, {"spec": {"user": "u", "resourceAttributes": PODS}})
    assert (made["status"]["allowed"], made["metadata"]) == (True, {"namespace": "default"})


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("services/s/proxy", 503, 'no endpoints available for service "s"'),
        ("services/s:80/proxy/a/b", 503, 'no endpoints available for service "s"'),
        ("services/http:s:82/proxy", 503, 'no service port 82 found for service "s"'),
        ("services/none:80/proxy", 404, 'services "none" not found'),
        ("services/none:web/proxy", 503, 'no endpoints available for service "none"'),
        ("services/ftp:s:80/proxy", 400, 'invalid service request "ftp:s:80"'),
        ("pods/none/proxy", 404, 'pods "none" not found'),
    ],
)
def test_request_to_be_forwarded_is_refused(api: Http, path: str, status: int, why: str) -> None:
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    api.ok("POST", f"{SPACE}/services", service)
    refused = api.send("GET", f"{SPACE}/{path}")
    assert (refused.status, refused.message) == (status, why)


def test_deleted_namespace_stays_until_its_last_finalizer_is_removed(api: Http, server: Running) -> None:
    """The server removes only its own finalizer, once the namespace is empty."""
    spaces = "/api/v1/namespaces"
    since = api.ok("POST", spaces, {"metadata": {"name": "ending"}})["metadata"]["resourceVersion"]

    def finalize(*finalizers: str) -> Any:
        body = {"metadata": {"name": "ending", "labels": {"a": "b"}}, "spec": {"finalizers": finalizers}}
        return api.ok("PUT", f"{spaces}/ending/finalize", body)

    assert finalize("kubernetes", "example.com/x")["spec"] == {"finalizers": ["kubernetes", "example.com/x"]}
    assert api.send("GET", f"{spaces}/ending/finalize").status == 405
    with api.watch(spaces, fieldSelector="metadata.name=ending", resourceVersion=since) as events:
        with server.http() as other:
            other.ok("DELETE", f"{spaces}/ending")
        changes = ((each["type"], each["object"]["spec"].get("finalizers")) for each in events)
        assert next(each for each in changes if "kubernetes" not in each[1]) == ("MODIFIED", ["example.com/x"])
    finalize()
    assert api.send("GET", f"{spaces}/ending").status == 404
