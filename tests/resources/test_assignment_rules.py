"""Invariants of every assignment, for any devices and resources."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hostdevices import Device, Inventory, is_device_id
from resources.assignment import Assignment, assign
from resources.groups import Functions, PathMember, PathSet, SameAttribute, Within
from resources.resource import Resource
from resources.selector import AllOf, AnyOf, Attribute, Ids, Kinds, Not, Paths
from tests.hostdevices.made import device

KINDS = ("pci", "usb", "tty", "block")


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """Devices, each of which can be a part of earlier ones."""
    found: list[Device] = []
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(KINDS))
        wholes = tuple(draw(st.sets(st.sampled_from([x.id for x in found]), max_size=2))) if found else ()
        nodes = tuple(f"/dev/{kind}/{letter}{number}" for letter in draw(st.sets(st.sampled_from("ab"))))
        found.append(
            device(
                f"{kind}-{number}",
                kind,
                *nodes,
                parents=tuple(sorted(wholes)),
                attributes={"port": draw(st.integers(0, 2))},
                numbers=(240, 10 * number),
                node_kind="b" if kind == "block" else "c",
            )
        )
    return Inventory.of(found)


SELECTORS = st.recursive(
    st.sampled_from(
        [
            *(Kinds((kind,)) for kind in KINDS),
            Attribute("port", (1,)),
            Attribute("port", (">=1",)),
            Ids(("*-[0-3]",)),
            Paths(("/dev/*/a*",)),
            AllOf(()),
        ]
    ),
    lambda inner: st.builds(Not, inner) | st.lists(inner, max_size=3).map(lambda x: AnyOf(tuple(x))),
    max_leaves=4,
)
GROUPS = st.sampled_from(
    [
        None,
        Within(),
        Within("pci"),
        Within("usb"),
        SameAttribute("port"),
        Functions(),
        PathSet((PathMember("/dev/*/a*"), PathMember("/dev/*/b*", optional=True))),
    ]
)
RESOURCES = st.lists(st.builds(Resource, st.just("x/y"), SELECTORS, GROUPS, dangerous=st.booleans()), max_size=4).map(
    lambda found: [Resource(f"x/r{i}", x.selector, x.group, dangerous=x.dangerous) for i, x in enumerate(found)]
)


@given(inventories(), RESOURCES)
def test_every_assignment_has_the_invariants(inventory: Inventory, resources: list[Resource]) -> None:
    found = assign(inventory, resources)
    assert list(found.devices) == [resource.name for resource in resources]
    _assert_every_device_is_assigned_or_unassigned_once(inventory, found)
    _assert_owners_of_wholes_own_the_parts(inventory, found)
    _assert_ids_are_valid_and_unique(found)
    for resource in resources:
        if not resource.dangerous:
            assert not any(node.kind == "b" for x in found.devices[resource.name] for node in x.devnodes)
    assert assign(inventory, resources) == found


def _assert_every_device_is_assigned_or_unassigned_once(inventory: Inventory, found: Assignment) -> None:
    handed_out = Counter(
        i for devices in found.devices.values() for x in devices for i in {x.id, *x.children} if i in inventory.devices
    )
    assert set(handed_out.values()) <= {1}
    rest = [x.device.id for x in found.rest]
    assert sorted([*handed_out, *rest]) == list(inventory.devices)
    assert {i for i in found.owners if i in inventory.devices} == set(handed_out)
    assert all(x.reason for x in found.rest)


def _assert_owners_of_wholes_own_the_parts(inventory: Inventory, found: Assignment) -> None:
    for part in inventory.devices.values():
        for whole in part.parents:
            if whole in found.owners:
                assert found.owners[part.id] == found.owners[whole]


def _assert_ids_are_valid_and_unique(found: Assignment) -> None:
    offered = [x.id for devices in found.devices.values() for x in devices]
    assert len(set(offered)) == len(offered)
    assert all(is_device_id(i) for i in offered)
