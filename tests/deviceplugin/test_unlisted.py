"""A unit of a running pod that the kubelet no longer lists, beside the other reasons of an unavailable device."""

import pytest
from msgspec.structs import replace

from checkpoint import Ledger
from hostdevices import Health
from tests.checkpoint.build import lease
from tests.deviceplugin.conftest import Side, StartPlugins, resource

HELD = lease("misc-fuse", "example.com/fuse", holder="pod/x/y/z", pods="u1")
SHARES = [lease(f"misc-fuse.{i}", "example.com/fuse", holder=f"pod/x/p{i}/z", pods=f"u{i}", shares=2) for i in range(2)]


def state(side: Side) -> tuple[int, int, int, int, str]:
    """Healthy, unlisted, withheld and in-use units, and the reason of the first device."""
    (found,) = side.plugins.status()
    device = side.plugins.devices()["example.com/fuse"][0]
    return found.healthy, found.unlisted, found.withheld, found.in_use, device.reason.partition(",")[0]


async def test_reason_of_unlisted_unit_yields_to_other_reasons(
    start: StartPlugins, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    side = await start([resource()])
    (device,) = (x for x in side.presence.devices() if x.id == "misc-fuse")
    why = "pod x/y still runs with misc-fuse"
    await ledger.grant([HELD])
    ledger.unlisted.add([HELD])
    assert state(side) == (0, 1, 0, 0, why)
    side.update({"example.com/fuse": (replace(device, withheld="withheld: noise"),)})
    assert state(side) == (0, 0, 1, 0, "withheld: noise")
    side.update({"example.com/fuse": (replace(device, health=Health(False, "broken")),)})
    assert state(side) == (0, 0, 0, 0, "broken")
    side.update({"example.com/fuse": ()})
    assert state(side) == (0, 0, 0, 1, "it is not offered any more")
    caplog.clear()
    side.update({"example.com/fuse": (device,)})
    assert state(side) == (0, 1, 0, 0, why)
    ledger.unlisted.remove([HELD])
    assert state(side) == (1, 0, 0, 0, "")
    assert [(x.levelname, x.getMessage().partition(",")[0]) for x in caplog.records if x.name.endswith("plugin")] == [
        ("WARNING", f"device is unavailable: {why}"),
        ("INFO", "device is available again"),
    ]


async def test_each_share_is_counted_separately(start: StartPlugins, ledger: Ledger) -> None:
    side = await start([resource(shares=2)])
    await ledger.grant(SHARES)
    ledger.unlisted.add(SHARES[:1])
    assert state(side) == (1, 1, 0, 0, "")
    _, share = side.plugins.devices()["example.com/fuse"]
    assert (share.id, share.reason.partition(",")[0]) == ("misc-fuse.0", "pod x/p0 still runs with misc-fuse.0")
    ledger.unlisted.add(SHARES)
    assert state(side) == (0, 2, 0, 0, "pod x/p0 still runs with misc-fuse.0")
    assert len(side.plugins.devices()["example.com/fuse"]) == 1
    ledger.unlisted.remove(SHARES[:1])
    assert state(side) == (1, 1, 0, 0, "")


async def test_unit_is_available_after_it_is_listed_and_other_lease_ends(start: StartPlugins, ledger: Ledger) -> None:
    side = await start([resource()])
    await ledger.grant([HELD])
    ledger.unlisted.add([HELD])
    await ledger.end([HELD])
    await ledger.grant([other := lease("misc-fuse", "example.com/other")])
    assert state(side)[0] == 0
    ledger.unlisted.remove([HELD])
    await ledger.end([other])
    assert state(side) == (1, 0, 0, 0, "")
