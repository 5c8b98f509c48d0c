"""Drivers that start, stop and return: valid announcements, and the instance that the kubelet calls."""

from kubelet.stubs import DRAPluginStub, failing
from tests.dra_scenarios import scenario
from tests.kubelet.both.claims_stage import PREPARE, SECONDS, UNPREPARE, ClaimsStage
from tests.kubelet.both.scenario import both, both_with

V1, V1BETA1 = "v1.DRAPlugin", "v1beta1.DRAPlugin"


def versions_called(driver: DRAPluginStub) -> list[str]:
    """The API version of each prepare or unprepare call."""
    return [
        type(request).DESCRIPTOR.full_name.split(".")[-2]
        for method, request in driver.calls
        if method in (PREPARE, UNPREPARE)
    ]


@both
@scenario(155, 157)
async def v1beta1_api(stage: ClaimsStage) -> None:
    only = await stage.driver(versions=[V1BETA1], services=[V1BETA1])
    claim = await stage.claim("1")
    await stage.run(stage.user("x", claim))
    assert await stage.world.injected(f"{stage.name}x", "c") == [stage.cdi(claim, "g0")]
    await stage.world.remove(f"{stage.name}x")
    assert versions_called(only) == ["v1beta1"] * 2
    other = f"other.{stage.driver_name}"
    first = await stage.driver(other, versions=["v9.DRAPlugin", V1BETA1, V1])
    await stage.run(stage.user("y", await stage.claim("2", drivers={"g0": other})))
    assert versions_called(first) == ["v1beta1"], "the first in its list that the kubelet knows"


@both
@scenario(155)
async def announced_version_is_not_served(stage: ClaimsStage) -> None:
    await stage.driver(versions=[V1BETA1], services=[V1])
    text = await stage.refused(stage.user("", await stage.claim()))
    assert text == "NodePrepareResources: rpc error: code = Unimplemented desc = Method not found!"
    await stage.driver()  # a working driver has to unprepare the claim


@both
@scenario(157)
async def unknown_driver_versions(stage: ClaimsStage) -> None:
    for versions, text in (
        ([], "empty list of supported gRPC services (aka supported versions)"),
        (
            ["v1alpha3", "1.0.0"],
            'none of services supported by the plugin (["v1alpha3" "1.0.0"]) are supported by the kubelet'
            ' (["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        ),
    ):
        driver = await stage.serving(versions=versions)
        is_registered, error = await stage.registration_status(driver)
        assert not is_registered
        assert error.startswith(
            "RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC versions of DRA driver"
            f" plugin {stage.driver_name} at endpoint /"
        )
        assert error.endswith(f"/{driver.socket.name}: {text}")
        await driver.stop()


@both
async def driver_name_is_not_validated(stage: ClaimsStage) -> None:
    for name in ("", "UPPER_bad name"):
        assert await stage.registration_status(await stage.serving(name)) == (True, "")
    assert await stage.registration_status(await stage.serving(endpoint=stage.service)) == (True, "")
    text = await stage.refused(stage.user("", await stage.claim()))
    assert text == (
        'NodePrepareResources: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while'
        f' dialing: dial unix {stage.service}: connect: no such file or directory"'
    )
    await stage.driver()  # a working driver has to unprepare the claim


@both
@scenario(160, 161)
async def restarted_driver_registers_again(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    driver.behaviours["GetInfo"] = failing("not yet")
    await driver.stop()
    await driver.start()
    await driver.until(lambda: len(driver.called("GetInfo")) == 3, SECONDS)
    assert driver.notified == [(True, "")]
    del driver.behaviours["GetInfo"]
    await driver.until(lambda: driver.notified == [(True, "")] * 2, SECONDS)
    await stage.run(stage.user("", await stage.claim()))
    assert driver.claims(PREPARE) == [[stage.name]]


@both
@scenario(151)
async def endpoint_already_registered(stage: ClaimsStage) -> None:
    first = await stage.driver(socket=stage.service)
    second = await stage.serving(endpoint=stage.service)
    assert await stage.registration_status(second) == (
        False,
        "RegisterPlugin error -- plugin registration failed with err: endpoint"
        f" {stage.service} already registered for DRA driver plugin {stage.driver_name}",
    )
    await second.stop()
    if stage.release.keeps_refused_sockets:  # the refused driver's end also removes the first one
        for number in range(4):  # periods of the reconciler; the first ones skip a socket that has just failed
            await stage.driver(f"marker{number}.{stage.driver_name}")
        assert await stage.refused(stage.user("", await stage.claim())) == (
            f"DRA driver {stage.driver_name} is not registered"
        )
    else:
        await stage.run(stage.user("", await stage.claim()))
        assert first.claims(PREPARE) == [[stage.name]]


@both
@scenario(151, 214, 216)
async def second_driver_instance(stage: ClaimsStage) -> None:
    old = await stage.driver()
    names = [f"{stage.name}{number}" for number in range(3)]
    claims = [await stage.claim(str(number), f"r/g{number}") for number in range(3)]
    await stage.run(stage.user("0", claims[0]))
    new = await stage.driver()
    await stage.run(stage.user("1", claims[1]))
    await stage.world.remove(names[0])
    assert (old.claims(PREPARE), old.claims(UNPREPARE)) == ([[names[0]]], [])
    assert (new.claims(PREPARE), new.claims(UNPREPARE)) == ([[names[1]]], [[names[0]]])
    await new.stop()
    await stage.run(stage.user("2", claims[2]))
    await stage.world.remove(names[1])
    assert (old.claims(PREPARE)[1:], old.claims(UNPREPARE)) == ([[names[2]]], [[names[1]]])


@both_with("ResourceHealthStatus")
@scenario(172, 174)
async def service_stops_and_returns(stage: ClaimsStage) -> None:
    driver = await stage.serving(socket=stage.service, services=[V1, "v1alpha1.DRAResourceHealth"])

    async def comes_back() -> None:
        streams = driver.streams_opened
        await driver.start_service()
        # the kubelet reconnects after a delay, and calls fail until then
        await driver.until(lambda: driver.streams_opened > streams, SECONDS)

    await driver.stop_service()
    assert await stage.registration_status(driver) == (True, "")
    await comes_back()
    await stage.run(stage.user("", await stage.claim()))
    await driver.stop_service()
    await comes_back()
    await stage.world.remove(stage.name)
    assert driver.claims(PREPARE) == driver.claims(UNPREPARE) == [[stage.name]]
