"""Indexes are correct when a name has one lease, several, or one again."""

from hypothesis import given
from hypothesis import strategies as st

from checkpoint.indexes import KeysByDevice, KeysByName
from checkpoint.lease import Lease, LeaseKey

_OWNERS, _UNITS = ("a", "b"), ("1", "2", "3")


def _lease(owner: str, unit: str) -> Lease:
    name = f"{owner}-{unit}"
    return Lease(resource="r", unit=name, api="device-plugin", owner=owner, exclusive=frozenset(), boot_id="b")


@given(st.lists(st.tuples(st.sampled_from(_OWNERS), st.sampled_from(_UNITS)), max_size=30))
def test_indexes_contain_what_was_added_and_not_removed(toggled: list[tuple[str, str]]) -> None:
    leases: dict[LeaseKey, Lease] = {}
    by_owner, by_device = KeysByName[str](), KeysByDevice(leases)
    for each in toggled:
        lease = _lease(*each)
        if lease.key in leases:
            del leases[lease.key]
            by_owner.remove(lease.owner, lease.key)
            by_device.remove("d", lease, lease.key)
        else:
            leases[lease.key] = lease
            by_owner.add(lease.owner, lease.key)
            by_device.add("d", lease, lease.key)
        there = list(leases.values())
        for owner in _OWNERS:
            assert list(by_owner.of(owner)) == [x.key for x in there if x.owner == owner]
            assert {x.owner for x in by_device.of_others("d", owner)} == {x.owner for x in there} - {owner}
        assert set(by_owner.names()) == {x.owner for x in there}
        assert sorted(x.unit for x in by_device.of("d")) == sorted(x.unit for x in there)
        assert len(list(by_device.of_others("d", ""))) == len({x.owner for x in there})
    assert list(by_device.of("other")) == []
