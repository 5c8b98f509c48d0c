"""The health of claimed devices: the driver's reports and the pod's status."""

from kubelet.pods import container
from kubelet.stubs import DRAPluginStub, claimed
from kubeletapi.dra_health.v1 import api_pb2 as v1
from kubeletapi.dra_health.v1alpha1 import api_pb2 as api
from tests.dra_scenarios import scenario
from tests.kubelet.both.claims_stage import POOL, SECONDS, ClaimsStage
from tests.kubelet.both.scenario import both, both_with
from tests.kubelet.both.world import ShownHealth

SERVICES = ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
GATE = "ResourceHealthStatus"
HEALTHY, UNHEALTHY = api.HealthStatus.HEALTHY, api.HealthStatus.UNHEALTHY
LEASE = 600  # seconds


def report(device: str, health: api.HealthStatus = HEALTHY, message: str = "") -> api.DeviceHealth:
    identifier = api.DeviceIdentifier(pool_name=POOL, device_name=device)
    return api.DeviceHealth(device=identifier, health=health, message=message, health_check_timeout_seconds=LEASE)


async def driver_with_stream(stage: ClaimsStage) -> DRAPluginStub:
    """A driver with an open health stream."""
    driver = await stage.driver(services=SERVICES)
    await driver.until(lambda: driver.streams == 1, SECONDS)
    return driver


@both_with(GATE)
@scenario(135, 136, 137, 188)
async def health_in_pod_status(stage: ClaimsStage) -> None:
    driver = await driver_with_stream(stage)
    claim = await stage.claim()
    await stage.run(stage.user("", claim))

    async def shows(health: str, message: str = "") -> None:
        await stage.world.until_health(stage.name, [ShownHealth("claim:a", stage.cdi(claim, "g0"), health, message)])

    await shows("Unknown")
    driver.report(report("g0"))
    await shows("Healthy")
    driver.report(report("g0", UNHEALTHY, "overheated"))
    await shows("Unhealthy", "overheated")
    driver.report(report("g0", UNHEALTHY, "x" * 1025))
    await shows("Unhealthy", "x" * 1021 + "...")
    driver.report(report("g0"))
    await shows("Healthy")
    (request,) = driver.called("NodeWatchResources")
    called = v1 if stage.release.calls_announced_health else api
    assert isinstance(request, called.NodeWatchResourcesRequest), "both are served and announced"


@both_with(GATE)
@scenario(136)
async def device_names_in_pod_status(stage: ClaimsStage) -> None:
    driver = await driver_with_stream(stage)
    claim = await stage.claim("", "a/g0", "b/g1", "b/g2")
    id_ = stage.cdi(claim, "g0")
    driver.prepare = lambda _: [
        claimed(["a"], POOL, "g0", id_, stage.cdi(claim, "g1")),
        claimed(["b"], POOL, "g1"),
        claimed([], POOL, "g2"),
    ]
    await stage.run(stage.user("", claim, containers=[container("c", claims=["a/a"])]))
    driver.report(report("g0"), report("g1"), report("g2", UNHEALTHY))
    await stage.world.until_health(
        stage.name,
        [
            ShownHealth("claim:a/a", id_, "Healthy"),
            ShownHealth("claim:a/a", f"{stage.driver_name}/{POOL}/g2", "Unhealthy"),
        ],
    )


@both_with(GATE)
@scenario(191)
async def health_stream_ends(stage: ClaimsStage) -> None:
    driver = await driver_with_stream(stage)
    claim = await stage.claim("", "r/g0", "r/g1")
    await stage.run(stage.user("", claim))

    async def shows(first: str, second: str) -> None:
        pairs = (("g0", first), ("g1", second))
        await stage.world.until_health(
            stage.name, [ShownHealth("claim:a", stage.cdi(claim, device), health) for device, health in pairs]
        )

    driver.report(report("g0"), report("g1"))
    await shows("Healthy", "Healthy")
    driver.end_streams()
    await driver.until(lambda: driver.streams_opened == 2, SECONDS)
    driver.report(report("g1"))
    await shows("Unknown", "Healthy")


@both_with(GATE)
@scenario(139)
async def malformed_health_reports(stage: ClaimsStage) -> None:
    driver = await driver_with_stream(stage)
    claim = await stage.claim("", "r/g0", "r/g1", "r/g2")
    await stage.run(stage.user("", claim, containers=[container("c", claims=["a"])], init=[container("i")]))
    unnamed = api.DeviceHealth(health=UNHEALTHY)
    unheard = api.DeviceHealth(device=api.DeviceIdentifier(pool_name=POOL, device_name="g1"), message="?")
    timeless = report("g2", UNHEALTHY, "cold")
    timeless.health_check_timeout_seconds = -1
    driver.report(unnamed, report("g0"), report("g0", UNHEALTHY, "second"), unheard, timeless, report("stranger"))
    await stage.world.until_health(
        stage.name,
        [
            ShownHealth("claim:a", stage.cdi(claim, "g0"), "Unhealthy", "second"),
            ShownHealth("claim:a", stage.cdi(claim, "g1"), "Unknown", "?"),
            ShownHealth("claim:a", stage.cdi(claim, "g2"), "Unhealthy", "cold"),
        ],
    )


@both
async def unannounced_health_service(stage: ClaimsStage) -> None:
    driver = await stage.driver(versions=["v1.DRAPlugin"], services=SERVICES)
    if stage.release.has(GATE) and not stage.release.calls_announced_health:
        await driver.until(lambda: driver.streams == 1, SECONDS)
        return
    other = await stage.driver(f"other.{stage.driver_name}", services=SERVICES)
    await stage.run(stage.user("", await stage.claim()))
    if stage.release.has(GATE):
        await other.until(lambda: other.streams == 1, SECONDS)
    assert driver.streams_opened == 0
    assert (other.streams_opened == 0) == (not stage.release.has(GATE))
