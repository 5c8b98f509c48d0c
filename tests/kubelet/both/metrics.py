"""The kubelet's metrics about plugins and drivers, and their buckets."""

from collections.abc import Sequence
from math import inf

from prometheus_client.samples import Sample

from kubelet.pods import container, pod
from kubelet.stubs import failing
from tests.kubelet.both.claims_fixture import PREPARE, UNPREPARE, ClaimsFixture
from tests.kubelet.both.scenario import both, healthy
from tests.kubelet.both.world import ScenarioFixture

ALLOCATE = "kubelet_device_plugin_alloc_duration_seconds"
OPERATIONS = "dra_operations_duration_seconds"
CALLS = "dra_grpc_operations_duration_seconds"
_ALLOCATE_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, inf]
_DRA_BOUNDS = [0.1, 0.153413, 0.235355, 0.361064, 0.553918, 0.849781, 1.303673, 2, 3.068255]
_DRA_BOUNDS += [4.707094, 7.221282, 11.078366, 16.995625, 26.073454, 40, inf]


@both
async def registrations_metric(fixture: ScenarioFixture) -> None:
    plugin = await fixture.plugin(healthy("a"), register=False)
    await fixture.refusal(plugin, version="v1alpha2")
    await plugin.register(fixture.socket)
    (found,) = await fixture.counted("kubelet_device_plugin_registration_total", resource_name=fixture.resource)
    assert found.labels == {"resource_name": fixture.resource}
    assert found.value == 2, "refused ones count"


@both
async def allocation_duration_metric(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b"))
    assert await fixture.counted(ALLOCATE, resource_name=fixture.resource) == []
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    plugin.behaviours["Allocate"] = failing("not today")
    await fixture.run(pod(f"{fixture.name}-refused", container("c", {fixture.resource: 1})), "Failed")
    found = await fixture.counted(ALLOCATE, resource_name=fixture.resource)
    assert _count(found) == 2, "failed ones count"
    assert _bounds(found) == _ALLOCATE_BOUNDS


@both
async def claim_operation_metrics(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    before = {each: await _operations(fixture, each) for each in ("true", "false")}
    await fixture.run(fixture.user("", await fixture.claim()))
    driver.behaviours[PREPARE] = failing("not today")
    await fixture.refused(fixture.user("-refused", await fixture.claim("-refused")))
    await fixture.world.remove(fixture.name)
    after = {each: await _operations(fixture, each) for each in ("true", "false")}
    assert after["false"]["PrepareResources"] == before["false"]["PrepareResources"] + 1
    assert after["true"]["PrepareResources"] >= before["true"]["PrepareResources"] + 1, "it is tried again"
    assert after["false"]["UnprepareResources"] == before["false"]["UnprepareResources"] + 1
    found = await fixture.counted(CALLS, driver_name=fixture.driver_name)
    calls = {
        (each.labels["method_name"], each.labels["grpc_status_code"]) for each in found if each.name.endswith("_count")
    }
    service = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
    assert calls == {
        (f"{service}/{PREPARE}", "OK"),
        (f"{service}/{PREPARE}", "Internal"),
        (f"{service}/{UNPREPARE}", "OK"),
    }
    for name, labels in (
        (CALLS, {"driver_name": fixture.driver_name, "grpc_status_code": "Internal"}),
        (OPERATIONS, {"is_error": "true"}),
    ):
        assert [round(each, 6) for each in _bounds(await fixture.counted(name, **labels))] == _DRA_BOUNDS


async def _operations(fixture: ScenarioFixture, is_error: str) -> dict[str, float]:
    found = await fixture.counted(OPERATIONS, is_error=is_error)
    counts = {each.labels["operation_name"]: each.value for each in found if each.name.endswith("_count")}
    return {"PrepareResources": 0.0, "UnprepareResources": 0.0} | counts


def _count(found: Sequence[Sample]) -> float:
    (count,) = [each.value for each in found if each.name.endswith("_count")]
    return count


def _bounds(found: Sequence[Sample]) -> list[float]:
    return [float(each.labels["le"]) for each in found if each.name.endswith("_bucket")]
