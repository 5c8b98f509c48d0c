"""What a server of 1.37 has that one of 1.36 has not."""

from collections.abc import Iterator

import pytest

from tests.controlplane.apiserver.running import Http, Running
from tests.controlplane.scheduler.kit import slice_

RULES = "/apis/resource.k8s.io/{}/devicetaintrules"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
RULE = {
    "metadata": {"name": "r"},
    "spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "example.com/t", "effect": "NoSchedule"}},
}


@pytest.fixture(scope="module")
def of_1_37() -> Iterator[Http]:
    with Running(release="1.37") as server, server.http() as http:
        yield http


def test_taint_rules_are_in_v1(of_1_37: Http, api: Http) -> None:
    made = of_1_37.ok("POST", RULES.format("v1"), RULE)
    assert made["apiVersion"] == "resource.k8s.io/v1"
    older = of_1_37.ok("GET", f"{RULES.format('v1beta2')}/r")
    assert older["spec"] == made["spec"]
    assert api.send("GET", RULES.format("v1")).status == 404


def test_an_update_in_v1_says_of_which_version(of_1_37: Http) -> None:
    named = {**RULE, "metadata": {"name": "u"}}
    of_1_37.ok("POST", RULES.format("v1"), named)
    refused = of_1_37.send("PUT", f"{RULES.format('v1')}/u", named)
    assert refused.status == 422
    assert refused.message.endswith("metadata.resourceVersion: Invalid value: 0: must be specified for an update")
    of_1_37.ok("PUT", f"{RULES.format('v1beta2')}/u", named)


def test_slices_are_selected_by_their_pool(of_1_37: Http, api: Http) -> None:
    of_1_37.ok("POST", SLICES, slice_("n1", "gpu-0"))
    pool = slice_("n1")["spec"]["pool"]["name"]
    assert len(of_1_37.ok("GET", SLICES, fieldSelector=f"spec.pool.name={pool}")["items"]) == 1
    assert of_1_37.ok("GET", SLICES, fieldSelector="spec.pool.name=other")["items"] == []
    assert api.send("GET", SLICES, fieldSelector=f"spec.pool.name={pool}").status == 400
