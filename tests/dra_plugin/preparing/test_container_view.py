"""What a claim's containers see of a device, according to its resource."""

from msgspec.structs import replace

from hostdevices import Device, Inventory
from resources.assignment import assign
from resources.resource import Resource
from resources.selector import Kinds
from tests.checkpoint.build import claimed
from tests.dra_plugin.preparing.node import Node
from tests.dra_plugin.preparing.world import World, claim, config, resource, result, uid
from tests.running import until


async def test_missing_attribute_is_named_in_the_refusal(world: World) -> None:
    """The same holds for the resource's settings and for a claim's configuration."""
    wanted = claim(result("misc-fuse"), configs=[config(env={"MAC": "{mac}"})])
    assert await world.refusal(wanted) == "request gpu: device misc-fuse has no mac, which the variable MAC uses"
    world.scan(fuse=replace(world.made_up.devices()["misc-fuse"], unavailable="it has no serial"))
    assert await world.refusal(claim(result("misc-fuse"))) == (
        "request gpu: device misc-fuse is unavailable: it has no serial"
    )
    assert (world.units(), world.files()) == ([], [])


async def test_withheld_device_is_refused_to_new_claims_only(world: World) -> None:
    found = world.made_up.devices()["misc-fuse"]
    devices = await world.prepare(claim(result("misc-fuse")))
    world.scan(fuse=replace(found, withheld="withheld: fan"))
    assert await world.prepare(claim(result("misc-fuse"))) == devices
    await world.unprepare(claim(result("misc-fuse")))
    message = "request gpu: device misc-fuse is withheld: fan; `nodeplug readmit` ends that"
    assert await world.refusal(claim(result("misc-fuse"))) == message
    assert (world.units(), world.files()) == ([], [])


async def test_variables_keep_the_attributes_of_the_preparation(world: World) -> None:
    """Its containers must be able to restart after the device lost the attribute."""
    found = world.made_up.devices()["misc-fuse"]
    world.scan(fuse=replace(found, attributes={**found.attributes, "serial": "A1"}))
    devices = await world.prepare(claim(result("misc-fuse"), configs=[config(env={"SERIAL": "{serial}"})]))
    world.scan(fuse=replace(found, devnodes=world.made_up.devices()["misc-kvm"].devnodes))
    await until(lambda: list(world.container(devices).nodes) == ["/dev/kvm"])
    assert world.container(devices).env == {"NODEPLUG_MINE__GPU": "misc-fuse", "SERIAL": "A1"}


async def test_container_path_of_a_node_is_kept_when_the_node_moves(world: World) -> None:
    found = world.made_up.devices()["misc-fuse"]
    (node,) = found.devnodes
    world.scan(fuse=replace(found, devnodes=(replace(node, container_path="/dev/old"),)))
    devices = await world.prepare(claim(result("misc-fuse")))
    moved = replace(world.made_up.devices()["misc-kvm"].devnodes[0], container_path="/dev/new")
    world.scan(fuse=replace(found, devnodes=(moved,)))
    await until(
        lambda: [(x.path, x.host_path) for x in world.container(devices).nodes.values()] == [("/dev/old", "/dev/kvm")]
    )


BY_PORT = Resource("example.com/coral", Kinds(("usb",)), api="dra", identity="port")


def plug_in(world: World, name: str, node: str) -> None:
    """Make a scan find this USB device at the port, with the node of an existing device."""
    nodes = world.made_up.devices()[node].devnodes
    found = Inventory.of([Device(name, "usb", name, parents=("usb-port-2",), devnodes=nodes)])
    assigned = assign(found, [BY_PORT]).devices
    world.presence.update(found.devices, assigned[BY_PORT.name])
    world.offer(assigned)


async def test_claim_of_a_port_keeps_a_replaced_device(world: World) -> None:
    world.offers.configure([BY_PORT])
    plug_in(world, "usb-1a6e-089a-2", "misc-fuse")
    devices = await world.prepare(claim(result("usb-port-2")))
    plug_in(world, "usb-18d1-9302-2", "misc-kvm")
    await until(lambda: list(world.container(devices).nodes) == ["/dev/kvm"])
    assert await world.prepare(claim(result("usb-port-2"))) == devices
    assert "has allocated usb-port-2" in await world.refusal(claim(result("usb-port-2"), uid=uid(2)))


async def test_claimed_port_is_not_reported_as_held_by_another_claim(node: Node) -> None:
    """No taint may say that another claim has it."""
    node.plugin.configure([BY_PORT])
    plug_in(node, "usb-1a6e-089a-2", "misc-fuse")
    await node.ledger.grant([claimed("usb-port-2", uid(1), BY_PORT.name, exclusive="usb-port-2 usb-1a6e-089a-2")])
    assert [held for _, held in node.plugin.devices()] == [None]
    plug_in(node, "usb-18d1-9302-2", "misc-kvm")
    assert [(x.name, held) for x, held in node.plugin.devices()] == [("usb-port-2", None)]


async def test_two_devices_with_the_same_container_path_are_refused(world: World) -> None:
    devices = world.made_up.devices()
    names = {
        name: replace(x, devnodes=(replace(x.devnodes[0], container_path="/dev/mine"),))
        for name in ("fuse", "kvm")
        for x in [devices[f"misc-{name}"]]
    }
    world.scan(**names)
    assert await world.refusal(claim(result("misc-fuse"), result("misc-kvm"))) == (
        "request gpu: two of its devices would have the path /dev/mine in one container; request one"
    )
    await world.prepare(claim(result("misc-fuse", "a"), result("misc-kvm", "b")))


async def test_vhost_net_nodes_are_added_to_the_device(world: World) -> None:
    world.resources = [resource("fuse", vhost_net=True)]
    await world.restart()
    assert "needs /dev/vhost-net, which does not exist" in await world.refusal(claim(result("misc-fuse")))
    (world.made_up.root / "dev/net").mkdir()
    for name in ("vhost-net", "net/tun"):
        (world.made_up.root / "dev" / name).write_text("c 10:200\n")
    nodes = world.container(await world.prepare(claim(result("misc-fuse")))).nodes
    assert list(nodes) == ["/dev/fuse", "/dev/vhost-net", "/dev/net/tun"]


async def test_members_of_a_held_group_beyond_the_counter_limit_are_in_use(node: Node) -> None:
    """A claim has a group of a hundred devices, now offered individually: more than the counters of a device."""
    gpus = Resource("example.com/gpu", Kinds(("gpu",)), api="dra")
    members = [Device(f"gpu-{i}", "gpu", f"gpu{i}") for i in range(100)]
    whole = Device("all", "group", "all", children=tuple(x.id for x in members))
    node.plugin.configure([gpus])
    found = Inventory.of(members).devices

    def offer(*devices: Device) -> None:
        node.presence.update(found, devices)
        node.plugin.update({gpus.name: devices})

    offer(whole)
    await node.ledger.grant([claimed("all", uid(1), gpus.name, exclusive=" ".join(whole.ids))])
    offer(*members)
    offer(*members[1:])
    held = {x.name: lease for x, lease in node.plugin.devices()}
    assert held.keys() == {"all", *(x.id for x in members[1:])}
    assert held.pop("all") is None
    assert all(lease is not None and lease.unit == "all" for lease in held.values())
