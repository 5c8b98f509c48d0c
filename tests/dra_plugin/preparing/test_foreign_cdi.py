"""CDI devices of other programs' specs are added to a claim's devices."""

from msgspec.structs import replace

from tests.dra_plugin.preparing.world import World, claim, resource, result


async def test_cdi_devices_of_other_specs_are_added_to_a_claim(world: World) -> None:
    """They come after ours, and a repeated call returns the same answer."""
    world.resources = [resource("fuse", cdi_devices=("nvidia.com/gpu={name}",))]
    world.offers.configure(world.resources)
    world.scan()
    wanted = claim(result("misc-fuse"))
    (device,) = await world.prepare(wanted)
    assert device.cdi_device_ids[0].startswith("nodeplug.dev/claim=")
    assert device.cdi_device_ids[-1] == "nvidia.com/gpu=fuse"
    assert await world.prepare(wanted) == (device,)


async def test_missing_attribute_of_a_cdi_name_is_refused_with_admin_access(world: World) -> None:
    world.resources = [resource("fuse", cdi_devices=("nvidia.com/gpu={uuid}",))]
    world.offers.configure(world.resources)
    found = world.made_up.devices()["misc-fuse"]
    world.scan(fuse=replace(found, unavailable="it has no uuid"))
    wanted = claim(result("misc-fuse", admin_access=True))
    assert await world.refusal(wanted) == (
        "request gpu: device misc-fuse is unavailable: it has no uuid, which cdiDevices uses"
    )
