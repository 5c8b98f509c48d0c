"""Devices of prepared claims that move, disappear and return: the answer stays, and runtimes find the current nodes.

When a container restarts, the kubelet repeats an old answer without a call.
"""

import shutil

import pytest
from msgspec.structs import replace

from dra_plugin.driver import PreparedDevice
from tests.dra_plugin.preparing.world import World, claim, config, result
from tests.running import until

WANTED = claim(result("misc-fuse"))


def nodes(world: World, answer: tuple[PreparedDevice, ...]) -> list[str]:
    """Return the nodes of a container that starts now; empty if the runtime refuses a device's name."""
    known = world.devices()
    return [
        node.path for x in answer for name in x.cdi_device_ids if name in known for node in known[name].device_nodes
    ]


def move(world: World) -> None:
    """Make a scan find the fuse device at the other node."""
    world.scan(fuse=replace(world.made_up.devices()["misc-kvm"], id="misc-fuse"))


async def test_moved_device_is_described_at_its_new_node(world: World) -> None:
    answer = await world.prepare(WANTED)
    leases = world.ledger.leases()
    move(world)
    await until(lambda: nodes(world, answer) == ["/dev/kvm"])
    world.scan()
    await until(lambda: nodes(world, answer) == ["/dev/fuse"])
    assert world.ledger.leases() == leases  # a lease does not depend on the device's node


async def test_moved_device_is_described_before_the_first_call_after_a_restart(world: World) -> None:
    answer = await world.prepare(WANTED)
    await world.restart("next-boot")
    assert nodes(world, answer) == ["/dev/fuse"]
    move(world)
    await until(lambda: nodes(world, answer) == ["/dev/kvm"])
    assert await world.prepare(WANTED) == answer
    assert nodes(world, answer) == ["/dev/kvm"]


async def test_unplugged_device_has_no_cdi_device_until_it_returns(
    world: World,
) -> None:
    answer = await world.prepare(WANTED)
    world.made_up.remove_node("fuse")
    world.scan()
    await until(lambda: nodes(world, answer) == [])
    assert "device misc-fuse is unhealthy: it is gone" in await world.refusal(WANTED)
    assert world.units() == ["misc-fuse"]  # still leased, because a container can have it open
    world.made_up.renumber("fuse", 0)
    world.scan()
    await until(lambda: nodes(world, answer) == ["/dev/fuse"])
    assert await world.prepare(WANTED) == answer


async def test_repeated_call_is_refused_while_the_node_has_changed(world: World) -> None:
    answer = await world.prepare(WANTED)
    world.made_up.renumber("fuse", 77)  # /dev/fuse opens another device, and no scan has seen it yet
    assert "changed since it was published" in await world.refusal(WANTED)
    assert world.units() == ["misc-fuse"]
    world.made_up.renumber("fuse", 0)
    assert await world.prepare(WANTED) == answer


async def test_moved_device_stays_leased_when_its_reset_fails(world: World) -> None:
    """A container can have it; a repeated call that fails must not end the claim's lease."""
    reset = world.made_up.root / "sys/bus/pci/devices/0000:00:05.0/reset"
    reset.parent.mkdir(parents=True)
    reset.touch()

    def scan() -> None:
        attributes = {"resource.kubernetes.io/pciBusID": "0000:00:05.0"}
        world.scan(fuse=replace(world.made_up.devices()["misc-fuse"], attributes=attributes))

    scan()
    wanted = claim(result("misc-fuse"), configs=[config(reset=True)])
    answer = await world.prepare(wanted)
    world.made_up.unplug("fuse")
    shutil.rmtree(world.made_up.root / "sys/devices/virtual/misc/fuse")
    world.made_up.add("fuse", 77)
    scan()
    reset.unlink()
    reset.mkdir()
    assert "reset of 0000:00:05.0 failed" in await world.refusal(wanted)
    assert world.units() == ["misc-fuse"]
    assert nodes(world, answer)
    reset.rmdir()
    reset.touch()
    assert await world.prepare(wanted) == answer
    assert reset.read_text() == "1"


async def test_failed_description_is_retried_after_the_next_scan(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await world.prepare(WANTED)
    hidden = world.cdi.rename(world.folder / "hidden")
    world.cdi.write_text("a disk that is not mounted")
    move(world)
    await until(lambda: "cannot describe devices of a claim" in caplog.text)
    world.cdi.unlink()
    hidden.rename(world.cdi)
    move(world)
    await until(lambda: nodes(world, answer) == ["/dev/kvm"])
