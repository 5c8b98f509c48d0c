"""Requests that schemathesis generates from the served OpenAPI documents never cause a server error."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.controlplane.apiserver.running import Http, Running, device_class, is_reference_server_error

DOCUMENTS = [
    "/openapi/v2",
    "/openapi/v3/api/v1",
    "/openapi/v3/apis/apiextensions.k8s.io/v1",
    "/openapi/v3/apis/devmgmtproto.k8s.io/v1alpha1",
    "/openapi/v3/apis/resource.k8s.io/v1",
    "/openapi/v3/apis/resource.k8s.io/v1beta1",
    "/openapi/v3/apis/resource.k8s.io/v1beta2",
]
_TARGET = {"name": "gpu", "namespace": "default"}


@pytest.fixture(scope="module")
def schema(server: Running) -> Callable[[str], Any]:
    """An OpenAPI document, read by schemathesis. The import and the reading are slow, so tests share the result."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

    @cache
    def read(document: str) -> Any:
        with server.http() as http:
            return schemathesis.openapi.from_dict(http.ok("GET", document))

    return read


@pytest.mark.hypothesis
@pytest.mark.parametrize("has_target", [False, True], ids=["random-object", "existing-object"])
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("document", DOCUMENTS)
def test_generated_request_causes_no_server_error(
    schema: Callable[[str], Any], server: Running, api: Http, document: str, mode: str, has_target: bool
) -> None:
    """With valid and invalid data, with random names and with the name of an existing object."""
    import requests
    from schemathesis import GenerationMode

    headers = {"Authorization": f"Bearer {server.server.token}"}
    target = {"path_parameters": _TARGET} if has_target else {}

    with requests.Session() as session:

        @given(case=schema(document).as_strategy(generation_mode=GenerationMode(mode), **target))
        @settings(
            max_examples=settings().max_examples // 8,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def send(case: Any) -> None:
            request = case.as_transport_kwargs(base_url=server.url, headers=headers)
            if has_target and isinstance(request.get("json"), dict):
                _complete_object(case, request["json"])
            with session.request(**request, stream=True, timeout=30) as answer:
                if answer.status_code == 200 and "watch" in request.get("params", {}):
                    return  # this test does not check streams
                text = answer.text
            if answer.headers["Content-Type"].startswith("text/plain"):  # no resource is served at this path
                assert (answer.status_code, text) == (404, "404 page not found\n"), request
                return
            assert answer.status_code < 500 or is_reference_server_error(text), (request, text)
            json.loads(text)

        api.send("POST", "/apis/resource.k8s.io/v1/deviceclasses", device_class("gpu"))
        send()


def _complete_object(case: Any, body: dict[str, Any]) -> None:
    """Set the fields without which the server refuses an object at once."""
    kind = case.operation.definition.raw.get("x-kubernetes-group-version-kind", {})
    metadata = body.get("metadata")
    body["apiVersion"] = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
    body["kind"] = kind["kind"]
    body["metadata"] = (metadata if isinstance(metadata, dict) else {}) | {"name": _TARGET["name"]}
