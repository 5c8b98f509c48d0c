"""Health: drivers' reports, their expiry, and the file."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpcunix import Status
from kubelet import RELEASES, FakeClock, Version
from kubelet.dramanager.health_cache import MAX_DEVICES, DeviceHealth, HealthCache
from kubelet.dramanager.health_streams import choose_health_service, parse_reports, truncate_message
from kubelet.stubs import DRAPluginStub, failing
from kubeletapi.dra.v1 import api_pb2 as dra
from kubeletapi.dra_health.v1alpha1 import api_pb2 as api
from resourceapi.objects.core import ContainerStatus, PodStatus
from tests.dra_scenarios import scenario
from tests.kubelet.dramanager.kit import DRIVER, POOL, Kit, claim, user

V1, ALPHA = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
SERVING = ("v1.DRAPlugin", ALPHA)


def report(device: str, health: int = api.HEALTHY, seconds: int = 0, message: str = "") -> api.DeviceHealth:
    return api.DeviceHealth(
        device=api.DeviceIdentifier(pool_name=POOL, device_name=device),
        health=api.HealthStatus.Name(health),
        health_check_timeout_seconds=seconds,
        message=message,
    )


async def driver_with_stream(kit: Kit, versions: Sequence[str] = SERVING) -> DRAPluginStub:
    """A driver with an open health stream, for which claim `c1` of pod `p` is prepared."""
    stub = await kit.driver(services=SERVING, versions=versions)
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    await stub.until(lambda: stub.streams == 1)
    return stub


def current_health(kit: Kit, device: str = "g0") -> tuple[str, str]:
    return kit.manager.health.get(DRIVER, POOL, device)


async def until_health(kit: Kit, health: str, device: str = "g0") -> None:
    await kit.until(lambda: current_health(kit, device)[0] == health)


@scenario(135)
async def test_changed_health_updates_pods_of_the_device(kit: Kit) -> None:
    stub = await driver_with_stream(kit)
    updates = kit.manager.updates()
    stub.report(report("g0"), report("stranger"))
    assert await updates.get() == ["p"]
    assert current_health(kit) == ("Healthy", "")
    stub.report(report("g0", api.UNHEALTHY, message="overheated"))
    assert await updates.get() == ["p"]
    assert current_health(kit) == ("Unhealthy", "overheated")
    stub.report(report("g0", api.UNHEALTHY, message="burning"))
    assert await updates.get() == ["p"]
    assert current_health(kit) == ("Unhealthy", "burning")
    stub.report(report("stranger", api.UNHEALTHY))
    await until_health(kit, "Unhealthy", "stranger")
    assert updates.empty(), "no pod has it"
    assert current_health(kit) == ("Unhealthy", "burning"), "a device that is left out keeps its health"
    stub.send(api.NodeWatchResourcesResponse(devices=[api.DeviceHealth(health=api.HealthStatus.UNHEALTHY)]))
    await kit.until(lambda: kit.manager.health.get(DRIVER, "", "")[0] == "Unhealthy")
    stub.report(report("g0"))
    await until_health(kit, "Healthy")


@scenario(135, 191)
@pytest.mark.parametrize("kubernetes", ["1.36", "1.37"])
async def test_end_of_stream_makes_health_unknown_without_pod_update(kit: Kit, kubernetes: Version) -> None:
    stub = await driver_with_stream(kit)
    updates = kit.manager.updates()
    stub.report(report("g0"))
    assert await updates.get() == ["p"]
    stub.end_streams()
    await stub.until(lambda: stub.streams == 0)
    await kit.advance_until(5, lambda: stub.streams_opened == 2)
    assert current_health(kit) == ("Unknown", "")
    assert updates.empty(), "the pods' statuses stay as they are"
    stub.report(report("g0"))
    await until_health(kit, "Healthy")


@pytest.mark.parametrize("kubernetes", ["1.34", "1.35"])
async def test_health_is_not_watched_before_1_36(kit: Kit, kubernetes: Version) -> None:
    stub = await kit.driver(services=SERVING, versions=SERVING)
    kit.put(claim("c1"))
    owner = user("p", "c1")
    await kit.manager.prepare_resources(owner)
    await kit.clock.advance(60)
    assert stub.called("NodeWatchResources") == []
    shown = PodStatus(container_statuses=(ContainerStatus(name="c"),))
    assert kit.manager.update_allocated_resources_status(owner, shown) is shown


async def test_malformed_report_ends_stream_and_is_retried(kit: Kit) -> None:
    stub = await driver_with_stream(kit)
    stub.send(b"\xff\xff")
    await kit.advance_until(5, lambda: stub.streams_opened == 2)


@pytest.mark.parametrize("kubernetes", ["1.36"])
async def test_unimplemented_health_service_is_retried_in_1_36(kit: Kit) -> None:
    """1.36 calls every plugin, whatever versions it announces."""
    stub = await kit.serving(services=SERVING, versions=("v1.DRAPlugin",))
    stub.behaviours["NodeWatchResources"] = failing("unknown service", Status.UNIMPLEMENTED)
    await kit.register(stub)
    await kit.advance_until(5, lambda: len(stub.called("NodeWatchResources")) == 3)
    del stub.behaviours["NodeWatchResources"]
    await kit.advance_until(5, lambda: stub.streams == 1)


@scenario(150, 250)
@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        ([], None),
        ([V1], V1),
        ([ALPHA], ALPHA),
        ([ALPHA, V1], V1),
        (["v9.DRAResourceHealth", "v1.DRAPlugin"], None),
    ],
)
def test_health_service_is_chosen_by_release_and_versions(versions: list[str], chosen: str | None) -> None:
    assert choose_health_service(RELEASES["1.37"], versions) == chosen
    assert choose_health_service(RELEASES["1.36"], versions) == ALPHA
    assert {choose_health_service(RELEASES[x], versions) for x in ("1.34", "1.35")} == {None}


@scenario(152)
async def test_each_driver_instance_has_a_separate_stream(kit: Kit) -> None:
    both = ("v1.DRAPlugin", V1)
    old = await kit.driver(name="old.sock", services=both, versions=both)
    new = await kit.driver(name="new.sock", services=both, versions=both)
    for each in (old, new):
        await each.until(lambda: each.streams == 1)  # noqa: B023 - it is awaited here
    old.report(report("g0"))
    await until_health(kit, "Healthy")
    new.report(report("g0", api.UNHEALTHY))
    await until_health(kit, "Unhealthy")
    without = await kit.driver(name="without.sock", services=both, versions=("v1.DRAPlugin",))
    assert without.streams_opened == 0
    await kit.manager.get_watcher_handler().deregister_plugin(DRIVER, str(old.socket))
    await old.until(lambda: old.streams == 0)
    assert current_health(kit) == ("Unknown", ""), "the end of any stream deletes all reports of the driver"
    new.report(report("g0"))
    await until_health(kit, "Healthy")
    await kit.manager.get_watcher_handler().deregister_plugin(DRIVER, str(new.socket))
    await new.until(lambda: new.streams == 0)


async def test_failed_reconnections_keep_reports_of_newer_instance(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """Only the end of a stream deletes reports. Failed reconnections and the deregistration do not."""
    both = ("v1.DRAPlugin", V1)
    old = await kit.driver(name="old.sock", services=both, versions=both)
    new = await kit.driver(name="new.sock", services=both, versions=both)
    for each in (old, new):
        await each.until(lambda: each.streams == 1)  # noqa: B023 - it is awaited here
    with caplog.at_level(logging.INFO, "kubelet.dramanager.health_streams"):
        await old.stop()
        await kit.advance_until(0, lambda: len(caplog.records) == 1)
        await kit.connected(old, False)
        new.report(report("g0", seconds=1_000_000))
        await until_health(kit, "Healthy")
        await kit.advance_until(5, lambda: len(caplog.records) == 3)
    assert current_health(kit) == ("Healthy", "")
    await kit.manager.get_watcher_handler().deregister_plugin(DRIVER, str(old.socket))
    assert current_health(kit) == ("Healthy", "")


@scenario(152)
async def test_unimplemented_health_service_is_not_retried(kit: Kit) -> None:
    stub = await kit.serving(services=SERVING, versions=SERVING)
    stub.behaviours["NodeWatchResources"] = failing("unknown service", Status.UNIMPLEMENTED)
    await kit.register(stub)
    await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name() == f"health {stub.socket}"])
    assert len(stub.called("NodeWatchResources")) == 1


@scenario(137)
@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("", ""),
        ("hot", "hot"),
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1021 + "..."),
        ("ü" * 513, "ü" * 510 + "\N{REPLACEMENT CHARACTER}..."),
    ],
)
def test_long_message_is_truncated(message: str, shown: str) -> None:
    assert truncate_message(message) == shown


@scenario(139)
@pytest.mark.parametrize(
    ("sent", "parsed"),
    [
        (report("g", api.HEALTHY), DeviceHealth(POOL, "g", "Healthy", 30)),
        (report("g", api.UNHEALTHY, 7), DeviceHealth(POOL, "g", "Unhealthy", 7)),
        (report("g", api.UNKNOWN, -5), DeviceHealth(POOL, "g", "Unknown", 30)),
    ],
)
def test_report_is_parsed_with_default_timeout(
    sent: api.DeviceHealth, parsed: DeviceHealth, caplog: pytest.LogCaptureFixture
) -> None:
    assert parse_reports(api.NodeWatchResourcesResponse(devices=[sent])) == [parsed]
    assert ("health_check_timeout_seconds is -5" in caplog.text) == (sent.health_check_timeout_seconds < 0)


@scenario(145, 147)
async def test_only_changed_health_is_returned_from_update(folder: Path) -> None:
    cache = HealthCache(folder, FakeClock())
    well = DeviceHealth(POOL, "g0", "Healthy")
    assert cache.update(DRIVER, [well]) == [well]
    assert cache.update(DRIVER, [well]) == []
    for changed in (DeviceHealth(POOL, "g0", "Healthy", 30, "fine"), DeviceHealth(POOL, "g0", "Healthy", 60, "fine")):
        assert cache.update(DRIVER, [changed]) == [changed]
    assert cache.get(DRIVER, POOL, "g0") == ("Healthy", "fine")
    assert cache.get(DRIVER, POOL, "g1") == cache.get("x", POOL, "g0") == ("Unknown", "")
    await cache.close()


async def test_last_of_two_reports_for_a_device_is_used(folder: Path) -> None:
    """The last report is used, and both count as changes each time."""
    cache = HealthCache(folder, FakeClock())
    well, ill = DeviceHealth(POOL, "g0", "Healthy"), DeviceHealth(POOL, "g0", "Unhealthy")
    for _ in range(2):
        assert cache.update(DRIVER, [well, ill]) == [well, ill]
        assert cache.get(DRIVER, POOL, "g0") == ("Unhealthy", "")
    await cache.close()


@scenario(146, 147)
@pytest.mark.parametrize("kubernetes", ["1.36", "1.37"])
async def test_report_expires_after_its_timeout(folder: Path, kubernetes: Version) -> None:
    clock = FakeClock()
    cache = HealthCache(folder, clock, RELEASES[kubernetes])
    short, long = DeviceHealth(POOL, "g0", "Healthy", 10, "m"), DeviceHealth(POOL, "g1", "Healthy", 100)
    cache.update(DRIVER, [short, long])
    await clock.advance(10)
    assert cache.update(DRIVER, []) == []
    await clock.advance(1)
    assert cache.get(DRIVER, POOL, "g0") == ("Unknown", "")
    assert cache.update(DRIVER, []) == [DeviceHealth(POOL, "g0", "Unknown", 10)]
    assert cache.update(DRIVER, []) == []
    assert cache.get(DRIVER, POOL, "g1") == ("Healthy", "")
    assert (b"/g0" in cache.content()) == (kubernetes == "1.36"), "since 1.37 it is forgotten"
    await cache.close()


async def test_number_of_cached_devices_is_limited(folder: Path) -> None:
    cache = HealthCache(folder, FakeClock())
    reported = [DeviceHealth(POOL, f"g{number}", "Healthy") for number in range(MAX_DEVICES + 2)]
    assert len(cache.update(DRIVER, reported)) == MAX_DEVICES
    assert cache.get(DRIVER, POOL, reported[-1].device) == ("Unknown", "")
    known = DeviceHealth(POOL, "g0", "Unhealthy")
    assert cache.update(DRIVER, [known]) == [known]
    await cache.close()


@scenario(144, 148)
async def test_health_file_is_written_sorted_and_read_back(folder: Path) -> None:
    clock = FakeClock()
    cache = HealthCache(folder, clock)
    await cache.load()
    await clock.advance(1.25)
    cache.update(DRIVER, [DeviceHealth(POOL, "g1", "Healthy"), DeviceHealth(POOL, "g0", "Unhealthy", 10, "hot")])
    cache.update("other", [DeviceHealth(POOL, "g0", "Healthy")])
    cache.clear_driver("other")
    assert cache.get("other", POOL, "g0") == ("Unknown", "")
    await cache.close()
    path = folder / "dra_health_state"
    assert path.read_text() == (
        '{"driver.example.com":{"Devices":{'
        '"realnode/g0":{"PoolName":"realnode","DeviceName":"g0","Health":"Unhealthy",'
        '"LastUpdated":"2026-01-01T00:00:01.25Z","HealthCheckTimeout":10000000000,"Message":"hot"},'
        '"realnode/g1":{"PoolName":"realnode","DeviceName":"g1","Health":"Healthy",'
        '"LastUpdated":"2026-01-01T00:00:01.25Z","HealthCheckTimeout":30000000000,"Message":""}}}}'
    )
    assert path.stat().st_mode & 0o777 == 0o600
    again = HealthCache(folder, clock)
    await again.load()
    assert again.get(DRIVER, POOL, "g0") == ("Unhealthy", "hot")
    await clock.advance(11)
    assert again.get(DRIVER, POOL, "g0") == ("Unknown", "")


@pytest.mark.parametrize("moment", ["2026-01-01T01:00:00.5+01:00", "2025-12-31T14:30:00-09:30", "2026-01-01T00:00:00Z"])
async def test_health_file_with_time_zone_and_without_timeout_is_read(folder: Path, moment: str) -> None:
    device = f'{{"PoolName":"p","DeviceName":"g","Health":"Healthy","LastUpdated":"{moment}"}}'
    written = f'{{"d":{{"Devices":{{"p/g":{device}}}}}}}'
    (folder / "dra_health_state").write_text(written)
    clock = FakeClock()
    cache = HealthCache(folder, clock)
    await cache.load()
    await clock.advance(30)
    assert cache.get("d", "p", "g") == ("Healthy", "")
    await clock.advance(1)
    assert cache.get("d", "p", "g") == ("Unknown", "")
    await cache.close()


@scenario(144)
@pytest.mark.parametrize("content", [b"{", b"[]", b'{"d":{"Devices":{"p/d":{"LastUpdated":"yesterday"}}}}'])
async def test_corrupt_health_file_is_an_empty_cache(folder: Path, content: bytes) -> None:
    (folder / "dra_health_state").write_bytes(content)
    cache = HealthCache(folder, FakeClock())
    await cache.load()
    assert cache.get("d", "p", "d") == ("Unknown", "")
    cache.update(DRIVER, [DeviceHealth(POOL, "g0", "Healthy")])
    await cache.close()
    assert b"g0" in (folder / "dra_health_state").read_bytes()


async def test_report_for_unclaimed_device_updates_no_pod(kit: Kit) -> None:
    """A report about a device that no claim uses yet is stored for later."""
    stub = await kit.driver(
        services=SERVING, versions=SERVING, prepare=lambda _: [dra.Device(pool_name=POOL, device_name="g0")]
    )
    await stub.until(lambda: stub.streams == 1)
    stub.report(report("g0", api.UNHEALTHY, message="m"))
    await until_health(kit, "Unhealthy")
    assert kit.manager.updates().empty()
    with pytest.raises(asyncio.QueueEmpty):
        kit.manager.updates().get_nowait()
