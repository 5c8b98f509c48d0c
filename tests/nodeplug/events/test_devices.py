"""Events about changes of offered devices."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import structs

from checkpoint import Lease
from hostdevices import Device, Host, Inventory
from hostdevices.device import Health
from hostdevices.presence import Presence
from nodeplug.events.devices import DeviceChange, Seen, device_changes, record_devices
from resources.assignment import Assignment
from telemetry import EventLog
from tests.checkpoint.build import lease

HOT = Health(False, "too hot")
A, B, C = (Device(id=f"misc-{name}", kind="misc", name=name) for name in "abc")
PAIR = structs.replace(A, id="group-ab", children=("misc-a", "misc-b"))


def unhealthy(device: Device) -> Device:
    return structs.replace(device, health=HOT)


def seen(*devices: Device, offered: Iterable[Device] | None = None) -> Seen:
    found = tuple(devices if offered is None else offered)
    return Seen(Inventory.of(devices), Assignment(devices={"example.com/x": found}))


def changes(before: Seen, now: Seen, *leases: Lease) -> list[tuple[str, str, str]]:
    found = device_changes(before, now, lambda device: (x for x in leases if device in x.devices))
    return [(x.kind, x.device, x.reason) for x in found]


def test_health_change_is_an_event() -> None:
    assert changes(seen(A, B), seen(unhealthy(A), B)) == [("unhealthy", "misc-a", "too hot")]
    assert changes(seen(unhealthy(A), B), seen(A, B)) == [("healthy", "misc-a", "")]


def test_first_scan_reports_only_unhealthy_devices() -> None:
    assert changes(Seen(), seen(A, unhealthy(B))) == [("unhealthy", "misc-b", "too hot")]


def test_plugged_and_unplugged_devices_are_events() -> None:
    assert changes(seen(A), seen(A, B)) == [("plugged", "misc-b", "")]
    assert changes(seen(A, B), seen(A)) == [("unplugged", "misc-b", "")]


def test_device_renamed_by_a_duplicate_is_not_unplugged() -> None:
    alone, twin = structs.replace(A, parents=("misc-b",)), structs.replace(C, parents=("misc-a", "misc-d"))
    among_twins = structs.replace(B, parents=("misc-a",))
    assert changes(seen(alone), seen(among_twins, twin)) == [("plugged", "misc-c", "")]
    assert changes(seen(among_twins, twin), seen(alone)) == [("unplugged", "misc-c", "")]


class Counted(dict[str, Device]):
    """Devices that count how often all of them are iterated."""

    iterations = 0

    def __iter__(self) -> Iterator[str]:
        Counted.iterations += 1
        return super().__iter__()

    def values(self) -> Any:
        Counted.iterations += 1
        return super().values()


def test_cost_of_many_unplugged_devices_is_linear() -> None:
    many = [Device(id=f"misc-{number}", kind="misc", name=f"m{number}") for number in range(200)]
    left = {x.id: x for x in many[:100]}
    now = Seen(Inventory(Counted(left)), Assignment(devices={"example.com/x": tuple(left.values())}))
    found = changes(seen(*many), now)
    assert found == [("unplugged", x.id, "") for x in sorted(many[100:], key=lambda x: x.id)]
    assert Counted.iterations < 10
    presence = Presence(Host("/"))
    presence.update(now.inventory.devices, ())
    assert not any(presence.has_device(x.id) for x in many[100:])
    assert Counted.iterations < 20


def test_changed_configuration_is_no_event() -> None:
    assert changes(seen(A, B, offered=[A]), seen(A, B, offered=[B])) == []
    assert changes(seen(A, B, offered=[A, B]), seen(A, B, offered=[PAIR])) == []


def test_group_is_unplugged_when_one_member_is_missing() -> None:
    assert changes(seen(A, B, offered=[PAIR]), seen(A, offered=[])) == [("unplugged", "group-ab", "")]
    assert changes(seen(A, offered=[]), seen(A, B, offered=[PAIR])) == [("plugged", "group-ab", "")]


def test_holder_of_a_member_is_a_holder_of_the_group() -> None:
    held = lease("misc-b", "example.com/x", holder="pod/default/p/c")
    (found,) = device_changes(
        seen(A, B, offered=[PAIR]), seen(A, offered=[]), lambda x: [held] if x == "misc-b" else []
    )
    assert found.leases == (held,)


def test_each_holder_has_an_event_and_free_devices_share_one() -> None:
    log = EventLog()
    pods = [lease(f"misc-a.{x}", shares=2, holder=f"pod/default/{x}/c") for x in ("p", "q")]
    free = [DeviceChange("unhealthy", "example.com/x", f"misc-{number}", "too hot") for number in range(300)]
    record_devices(log, [DeviceChange("unplugged", "example.com/x", "misc-a", "", tuple(pods)), *free])
    assert [(x.kind, x.device, x.message, x.holder) for x in log.since(0)] == [
        ("unplugged", "misc-a", "is gone; it is with pod default/p, container c", "pod/default/p/c"),
        ("unplugged", "misc-a", "is gone; it is with pod default/q, container c", "pod/default/q/c"),
        ("unhealthy", "misc-0,misc-1,misc-2,misc-3,misc-4", "is unhealthy: too hot (300 devices)", ""),
    ]
