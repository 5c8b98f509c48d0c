"""Syncs of pools with a watch that is late or loses events, while other clients write and delete."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_plugin.publishing.slices import DriverResources, Pool, Slice, SyncFailed
from dra_plugin.publishing.slices.publisher import Publisher
from resourceapi.objects import v1
from tests.dra_plugin.publishing.slices.build import changed, device, indexed, one_pool, slices, stored, taint
from tests.dra_plugin.publishing.slices.kit import LOCAL
from tests.dra_plugin.publishing.slices.memory import MemoryServer
from tests.dra_scenarios import scenario

POOLS = ("pool-a", "pool-b")
D1, D2 = device("device-1"), device("device-2")


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _publisher(server: MemoryServer, clock: Clock | None = None, only: str = "") -> Publisher:
    def fail(error: Exception, message: str) -> None:
        raise AssertionError(f"{message}: {error}")

    found = Publisher(
        server, "driver", LOCAL, reconcile_pool=only, mutation_ttl=60.0, on_error=fail, clock=clock or Clock()
    )
    server.relist(found)
    return found


async def test_second_sync_before_any_event_creates_no_second_slice() -> None:
    server = MemoryServer()
    publisher = _publisher(server)
    publisher.set_desired(one_pool(*slices(D1)))
    await publisher.sync("pool")
    await publisher.sync("pool")
    assert server.writes == 1


async def test_slice_deleted_without_an_event_is_created_after_the_mutation_ttl() -> None:
    server, clock = MemoryServer(), Clock()
    publisher = _publisher(server, clock)
    publisher.set_desired(one_pool(*slices(D1)))
    await publisher.sync("pool")
    assert publisher.recheck_at("pool") == 1060.0
    (name,) = server.objects
    server.remove(name)
    server.events.clear()
    clock.now = 1059.0
    await publisher.sync("pool")
    assert server.objects == {}
    clock.now = 1060.0
    assert publisher.recheck_at("pool") is None
    await publisher.sync("pool")
    assert len(server.objects) == 1


async def test_slice_restored_by_a_backup_is_deleted_again() -> None:
    server, clock = MemoryServer(), Clock()
    publisher = _publisher(server, clock)
    publisher.set_desired(one_pool(*slices(D1), *slices(D2)))
    await publisher.sync("pool")
    backup, version = dict(server.objects), server.version
    publisher.set_desired(one_pool(*slices(D1)))
    await publisher.sync("pool")
    server.deliver(publisher, 9)
    assert len(server.objects) == 1
    clock.now += 3600
    server.objects, server.version = backup, version
    server.relist(publisher)
    await publisher.sync("pool")
    (found,) = server.objects.values()
    assert (found.spec.pool.resource_slice_count, [x.name for x in found.spec.devices]) == (1, ["device-1"])


async def test_change_reverted_by_a_backup_is_written_again() -> None:
    server, clock = MemoryServer(), Clock()
    publisher = _publisher(server, clock)
    publisher.set_desired(one_pool(*slices(D1)))
    await publisher.sync("pool")
    server.deliver(publisher, 9)
    clock.now += 3600
    backup, version = dict(server.objects), server.version
    publisher.set_desired(one_pool(*slices(D2)))
    await publisher.sync("pool")
    server.objects, server.version = backup, version
    server.relist(publisher)
    moment = publisher.recheck_at("pool")
    assert moment is not None
    clock.now = moment
    await publisher.sync("pool")
    assert publisher.recheck_at("pool") == moment + 60.0
    server.deliver(publisher, 9)
    assert publisher.recheck_at("pool") is None
    (found,) = server.objects.values()
    assert [x.name for x in found.spec.devices] == ["device-2"]


async def test_slice_deleted_during_its_creation_is_created_again() -> None:
    """The watch reports the deletion before the server answers the request."""

    class DeletingServer(MemoryServer):
        async def create(self, wanted: v1.ResourceSlice, *, dry_run: bool = False) -> v1.ResourceSlice:
            made = await super().create(wanted, dry_run=dry_run)
            if self.writes == 1:
                self.remove(made.metadata.name)
                self.deliver(publisher, 9)
            return made

    server = DeletingServer()
    publisher = _publisher(server)
    publisher.set_desired(one_pool(*slices(D1)))
    await publisher.sync("pool")
    assert len(server.objects) == 1
    assert server.writes == 2


async def test_conflicting_change_of_another_client_is_read_and_kept() -> None:
    """Another client set a label, and the watch has not reported it yet."""
    server = MemoryServer()
    server.put(indexed(0, D1))
    publisher = _publisher(server)
    (before,) = server.objects.values()
    server.put(replace(before, metadata=replace(before.metadata, labels={"a": "b"})))
    publisher.set_desired(one_pool(*slices(D2)))
    await publisher.sync("pool")
    (found,) = server.objects.values()
    assert (found.spec.devices, found.metadata.labels) == ((D2,), {"a": "b"})


async def test_slice_deleted_before_its_update_is_created_again() -> None:
    server = MemoryServer()
    server.put(indexed(0, D1))
    server.put(indexed(1, D2))
    publisher = _publisher(server)
    for name in list(server.objects):
        server.remove(name)
    publisher.set_desired(one_pool(*slices(D2)))
    await publisher.sync("pool")
    (found,) = server.objects.values()
    assert found.spec.devices == (D2,)
    assert publisher.statistics.deletes == 0


@scenario(102)
def test_publisher_of_one_pool_ignores_other_pools() -> None:
    for only, expected in (("pool-a", ["pool-a", "", "pool-a"]), ("", ["pool-a", "pool-b", "pool-a"])):
        publisher = _publisher(MemoryServer(), only=only)
        reported = [
            publisher.changed(stored("a", pool="pool-a")),
            publisher.changed(stored("b", pool="pool-b")),
            publisher.removed(stored("a", pool="pool-a")),
        ]
        assert ["".join(each.changed_pools) for each in reported] == expected


async def test_lost_answer_is_uncertain_only_when_a_slice_was_created() -> None:
    for initial, expected in (((), True), ((indexed(0, D2),), False)):
        server = MemoryServer()
        for each in initial:
            server.put(each)
        publisher = _publisher(server)
        publisher.set_desired(one_pool(*slices(D1)))
        server.fails = "after"
        with pytest.raises(SyncFailed) as failed:
            await publisher.sync("pool")
        assert failed.value.may_have_created is expected


_DEVICES = st.lists(
    st.sampled_from([D1, D2, changed("device-1"), device("device-3"), replace(D2, taints=(taint("a.example.com/k"),))]),
    unique_by=lambda each: each.name,
    max_size=3,
).map(tuple)


@st.composite
def _desired(draw: st.DrawFn) -> DriverResources:
    pools = {}
    for name in draw(st.lists(st.sampled_from(POOLS), unique=True)):
        content = draw(st.lists(_DEVICES, max_size=4))
        names = [f"{index}-" for index in range(len(content))]
        unique = tuple(
            Slice(devices=tuple(replace(each, name=prefix + each.name) for each in devices))
            for prefix, devices in zip(names, content, strict=True)
        )
        pools[name] = Pool(generation=draw(st.integers(0, 3)), slices=unique)
    return DriverResources(pools)


_STEPS = st.one_of(
    _desired(),
    st.tuples(st.just("sync"), st.sampled_from(POOLS)),
    st.tuples(st.sampled_from(["deliver", "lose", "delete", "overwrite"]), st.integers(0, 9)),
    st.tuples(st.sampled_from(["relist", "delete all"]), st.just(0)),
    st.tuples(st.just("fail"), st.sampled_from(["before", "after"])),
    st.tuples(st.just("add"), st.sampled_from(POOLS)),
)


@given(st.lists(_STEPS, max_size=25), _desired())
def test_desired_slices_exist_after_any_sequence_of_events(
    steps: list[DriverResources | tuple[str, int | str]], last: DriverResources
) -> None:
    """A further sync writes nothing."""
    asyncio.run(_play(steps, last))


async def _play(steps: list[DriverResources | tuple[str, int | str]], last: DriverResources) -> None:
    server = MemoryServer()
    publisher = _publisher(server)
    for step in steps:
        match step:
            case DriverResources():
                publisher.set_desired(step)
            case ("sync", str(pool)):
                with contextlib.suppress(SyncFailed):
                    await publisher.sync(pool)
            case ("deliver", int(count)):
                server.deliver(publisher, count)
            case ("lose", int(count)):
                del server.events[:count]
            case ("relist", _):
                server.relist(publisher)
            case ("fail", str(when)):
                server.fails = when
            case ("add", str(pool)):
                server.put(stored(f"{server.version}-foreign", D1, pool=pool, generation=server.version % 3))
            case (what, number):
                _disturb(server, str(what), int(number))
    server.fails = ""
    server.relist(publisher)
    publisher.set_desired(last)
    for pool in POOLS:
        await publisher.sync(pool)
    _check(server, last)
    before = server.version
    server.deliver(publisher, 99)
    for pool in POOLS:
        await publisher.sync(pool)
    assert server.version == before


def _disturb(server: MemoryServer, what: str, number: int) -> None:
    names = sorted(server.objects)
    if what == "delete all":
        for name in names:
            server.remove(name)
    elif names:
        name = names[number % len(names)]
        if what == "delete":
            server.remove(name)
        else:
            found = server.objects[name]
            server.put(replace(found, spec=replace(found.spec, devices=(D2,))))


def _check(server: MemoryServer, desired: DriverResources) -> None:
    for name in POOLS:
        pool = desired.pools.get(name, Pool())
        found = sorted(
            (each for each in server.objects.values() if each.spec.pool.name == name), key=lambda x: x.metadata.name
        )
        assert [[replace(x, taints=()) for x in each.spec.devices] for each in found] == [
            [replace(x, taints=()) for x in each.devices] for each in pool.slices
        ]
        assert [[len(x.taints) for x in each.spec.devices] for each in found] == [
            [len(x.taints) for x in each.devices] for each in pool.slices
        ]
        assert {each.spec.pool.resource_slice_count for each in found} <= {len(pool.slices)}
        assert len({each.spec.pool.generation for each in found}) <= 1
        assert all(each.spec.pool.generation >= pool.generation for each in found)
