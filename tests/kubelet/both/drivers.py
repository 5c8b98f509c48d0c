"""Drivers that start, stop and return: valid announcements, and the instance that the kubelet calls."""

from kubelet.stubs import DRAPluginStub, failing
from tests.dra_scenarios import scenario
from tests.kubelet.both.claims_fixture import ACTION_TIMEOUT, PREPARE, UNPREPARE, ClaimsFixture
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
async def v1beta1_api(fixture: ClaimsFixture) -> None:
    only = await fixture.driver(versions=[V1BETA1], services=[V1BETA1])
    claim = await fixture.claim("1")
    await fixture.run(fixture.user("x", claim))
    assert await fixture.world.injected(f"{fixture.name}x", "c") == [fixture.cdi(claim, "g0")]
    await fixture.world.remove(f"{fixture.name}x")
    assert versions_called(only) == ["v1beta1"] * 2
    other = f"other.{fixture.driver_name}"
    first = await fixture.driver(other, versions=["v9.DRAPlugin", V1BETA1, V1])
    await fixture.run(fixture.user("y", await fixture.claim("2", drivers={"g0": other})))
    assert versions_called(first) == ["v1beta1"], "the first in its list that the kubelet knows"


@both
@scenario(155)
async def announced_version_is_not_served(fixture: ClaimsFixture) -> None:
    await fixture.driver(versions=[V1BETA1], services=[V1])
    text = await fixture.refused(fixture.user("", await fixture.claim()))
    assert text == "NodePrepareResources: rpc error: code = Unimplemented desc = Method not found!"
    await fixture.driver()  # a working driver has to unprepare the claim


@both
@scenario(157)
async def unknown_driver_versions(fixture: ClaimsFixture) -> None:
    for versions, text in (
        ([], "empty list of supported gRPC services (aka supported versions)"),
        (
            ["v1alpha3", "1.0.0"],
            'none of services supported by the plugin (["v1alpha3" "1.0.0"]) are supported by the kubelet'
            ' (["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        ),
    ):
        driver = await fixture.serving(versions=versions)
        is_registered, error = await fixture.registration_status(driver)
        assert not is_registered
        assert error.startswith(
            "RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC versions of DRA driver"
            f" plugin {fixture.driver_name} at endpoint /"
        )
        assert error.endswith(f"/{driver.socket.name}: {text}")
        await driver.stop()


@both
async def driver_name_is_not_validated(fixture: ClaimsFixture) -> None:
    for name in ("", "UPPER_bad name"):
        assert await fixture.registration_status(await fixture.serving(name)) == (True, "")
    assert await fixture.registration_status(await fixture.serving(endpoint=fixture.service)) == (True, "")
    text = await fixture.refused(fixture.user("", await fixture.claim()))
    assert text == (
        'NodePrepareResources: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while'
        f' dialing: dial unix {fixture.service}: connect: no such file or directory"'
    )
    await fixture.driver()  # a working driver has to unprepare the claim


@both
@scenario(160, 161)
async def restarted_driver_registers_again(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    driver.behaviours["GetInfo"] = failing("not yet")
    await driver.stop()
    await driver.start()
    await driver.until(lambda: len(driver.called("GetInfo")) == 3, ACTION_TIMEOUT)
    assert driver.notified == [(True, "")]
    del driver.behaviours["GetInfo"]
    await driver.until(lambda: driver.notified == [(True, "")] * 2, ACTION_TIMEOUT)
    await fixture.run(fixture.user("", await fixture.claim()))
    assert driver.claims(PREPARE) == [[fixture.name]]


@both
@scenario(151)
async def endpoint_already_registered(fixture: ClaimsFixture) -> None:
    first = await fixture.driver(socket=fixture.service)
    second = await fixture.serving(endpoint=fixture.service)
    assert await fixture.registration_status(second) == (
        False,
        "RegisterPlugin error -- plugin registration failed with err: endpoint"
        f" {fixture.service} already registered for DRA driver plugin {fixture.driver_name}",
    )
    await second.stop()
    if fixture.release.keeps_refused_sockets:  # the refused driver's end also removes the first one
        for number in range(4):  # periods of the reconciler; the first ones skip a socket that has just failed
            await fixture.driver(f"marker{number}.{fixture.driver_name}")
        assert await fixture.refused(fixture.user("", await fixture.claim())) == (
            f"DRA driver {fixture.driver_name} is not registered"
        )
    else:
        await fixture.run(fixture.user("", await fixture.claim()))
        assert first.claims(PREPARE) == [[fixture.name]]


@both
@scenario(151, 214, 216)
async def second_driver_instance(fixture: ClaimsFixture) -> None:
    old = await fixture.driver()
    names = [f"{fixture.name}{number}" for number in range(3)]
    claims = [await fixture.claim(str(number), f"r/g{number}") for number in range(3)]
    await fixture.run(fixture.user("0", claims[0]))
    new = await fixture.driver()
    await fixture.run(fixture.user("1", claims[1]))
    await fixture.world.remove(names[0])
    assert (old.claims(PREPARE), old.claims(UNPREPARE)) == ([[names[0]]], [])
    assert (new.claims(PREPARE), new.claims(UNPREPARE)) == ([[names[1]]], [[names[0]]])
    await new.stop()
    await fixture.run(fixture.user("2", claims[2]))
    await fixture.world.remove(names[1])
    assert (old.claims(PREPARE)[1:], old.claims(UNPREPARE)) == ([[names[2]]], [[names[1]]])


@both_with("ResourceHealthStatus")
@scenario(172, 174)
async def service_stops_and_returns(fixture: ClaimsFixture) -> None:
    driver = await fixture.serving(socket=fixture.service, services=[V1, "v1alpha1.DRAResourceHealth"])

    async def restart_plugin() -> None:
        streams = driver.streams_opened
        await driver.start_service()
        # the kubelet reconnects after a delay, and calls fail until then
        await driver.until(lambda: driver.streams_opened > streams, ACTION_TIMEOUT)

    await driver.stop_service()
    assert await fixture.registration_status(driver) == (True, "")
    await restart_plugin()
    await fixture.run(fixture.user("", await fixture.claim()))
    await driver.stop_service()
    await restart_plugin()
    await fixture.world.remove(fixture.name)
    assert driver.claims(PREPARE) == driver.claims(UNPREPARE) == [[fixture.name]]
