"""The health of claimed devices: the driver's reports and the pod's status."""

from kubelet.pods import container
from kubelet.stubs import DRAPluginStub, claimed
from kubeletapi.dra_health.v1 import api_pb2 as v1
from kubeletapi.dra_health.v1alpha1 import api_pb2 as api
from tests.dra_scenarios import scenario
from tests.kubelet.both.claims_fixture import ACTION_TIMEOUT, POOL, ClaimsFixture
from tests.kubelet.both.scenario import both, both_with
from tests.kubelet.both.world import ShownHealth

SERVICES = ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
GATE = "ResourceHealthStatus"
HEALTHY, UNHEALTHY = api.HealthStatus.HEALTHY, api.HealthStatus.UNHEALTHY
LEASE = 600  # seconds


def report(device: str, health: api.HealthStatus = HEALTHY, message: str = "") -> api.DeviceHealth:
    identifier = api.DeviceIdentifier(pool_name=POOL, device_name=device)
    return api.DeviceHealth(device=identifier, health=health, message=message, health_check_timeout_seconds=LEASE)


async def driver_with_stream(fixture: ClaimsFixture) -> DRAPluginStub:
    """A driver with an open health stream."""
    driver = await fixture.driver(services=SERVICES)
    await driver.until(lambda: driver.streams == 1, ACTION_TIMEOUT)
    return driver


@both_with(GATE)
@scenario(135, 136, 137, 188)
async def health_in_pod_status(fixture: ClaimsFixture) -> None:
    driver = await driver_with_stream(fixture)
    claim = await fixture.claim()
    await fixture.run(fixture.user("", claim))

    async def shows(health: str, message: str = "") -> None:
        await fixture.world.until_health(
            fixture.name, [ShownHealth("claim:a", fixture.cdi(claim, "g0"), health, message)]
        )

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
    called = v1 if fixture.release.calls_announced_health else api
    assert isinstance(request, called.NodeWatchResourcesRequest), "both are served and announced"


@both_with(GATE)
@scenario(136)
async def device_names_in_pod_status(fixture: ClaimsFixture) -> None:
    driver = await driver_with_stream(fixture)
    claim = await fixture.claim("", "a/g0", "b/g1", "b/g2")
    id_ = fixture.cdi(claim, "g0")
    driver.prepare = lambda _: [
        claimed(["a"], POOL, "g0", id_, fixture.cdi(claim, "g1")),
        claimed(["b"], POOL, "g1"),
        claimed([], POOL, "g2"),
    ]
    await fixture.run(fixture.user("", claim, containers=[container("c", claims=["a/a"])]))
    driver.report(report("g0"), report("g1"), report("g2", UNHEALTHY))
    await fixture.world.until_health(
        fixture.name,
        [
            ShownHealth("claim:a/a", id_, "Healthy"),
            ShownHealth("claim:a/a", f"{fixture.driver_name}/{POOL}/g2", "Unhealthy"),
        ],
    )


@both_with(GATE)
@scenario(191)
async def health_stream_ends(fixture: ClaimsFixture) -> None:
    driver = await driver_with_stream(fixture)
    claim = await fixture.claim("", "r/g0", "r/g1")
    await fixture.run(fixture.user("", claim))

    async def shows(first: str, second: str) -> None:
        pairs = (("g0", first), ("g1", second))
        await fixture.world.until_health(
            fixture.name, [ShownHealth("claim:a", fixture.cdi(claim, device), health) for device, health in pairs]
        )

    driver.report(report("g0"), report("g1"))
    await shows("Healthy", "Healthy")
    driver.end_streams()
    await driver.until(lambda: driver.streams_opened == 2, ACTION_TIMEOUT)
    driver.report(report("g1"))
    await shows("Unknown", "Healthy")


@both_with(GATE)
@scenario(139)
async def malformed_health_reports(fixture: ClaimsFixture) -> None:
    driver = await driver_with_stream(fixture)
    claim = await fixture.claim("", "r/g0", "r/g1", "r/g2")
    await fixture.run(fixture.user("", claim, containers=[container("c", claims=["a"])], init=[container("i")]))
    unnamed = api.DeviceHealth(health=UNHEALTHY)
    unheard = api.DeviceHealth(device=api.DeviceIdentifier(pool_name=POOL, device_name="g1"), message="?")
    timeless = report("g2", UNHEALTHY, "cold")
    timeless.health_check_timeout_seconds = -1
    driver.report(unnamed, report("g0"), report("g0", UNHEALTHY, "second"), unheard, timeless, report("stranger"))
    await fixture.world.until_health(
        fixture.name,
        [
            ShownHealth("claim:a", fixture.cdi(claim, "g0"), "Unhealthy", "second"),
            ShownHealth("claim:a", fixture.cdi(claim, "g1"), "Unknown", "?"),
            ShownHealth("claim:a", fixture.cdi(claim, "g2"), "Unhealthy", "cold"),
        ],
    )


@both
async def unannounced_health_service(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver(versions=["v1.DRAPlugin"], services=SERVICES)
    if fixture.release.has(GATE) and not fixture.release.calls_announced_health:
        await driver.until(lambda: driver.streams == 1, ACTION_TIMEOUT)
        return
    other = await fixture.driver(f"other.{fixture.driver_name}", services=SERVICES)
    await fixture.run(fixture.user("", await fixture.claim()))
    if fixture.release.has(GATE):
        await other.until(lambda: other.streams == 1, ACTION_TIMEOUT)
    assert driver.streams_opened == 0
    assert (other.streams_opened == 0) == (not fixture.release.has(GATE))
