"""The rules of leases, without a disk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from checkpoint import Lease, LeaseRefused
from checkpoint.lease import Book, Change
from tests.checkpoint.build import claimed, lease


def units(book: Book) -> list[str]:
    return [each.unit for each in book]


def test_refusal_names_the_device_the_rule_and_the_remedy() -> None:
    book = Book([lease("gpu-0", holder="pod/default/train/main")])
    with pytest.raises(LeaseRefused) as refused:
        book.grant([lease("vfio-7", "example.com/vfio", exclusive="vfio-7 gpu-0")])
    assert refused.value.device == "gpu-0"
    assert str(refused.value) == (
        "device gpu-0: example.com/vfio cannot allocate vfio-7, because example.com/gpu (device-plugin) has allocated"
        " gpu-0 to pod/default/train/main; a device has one holder at a time; delete that pod, or let only one resource"
        " select the device"
    )


def test_claim_is_refused_a_device_of_the_device_plugin_api() -> None:
    book = Book([lease("gpu-0")])
    with pytest.raises(LeaseRefused, match="a pod that the kubelet has not reported yet"):
        book.grant([claimed("gpu-0", "1")])


def test_reallocated_unit_replaces_its_lease() -> None:
    old, new = lease("gpu-0", holder="pod/a/b/c"), lease("gpu-0", granted_at=200.0)
    book = Book([old])
    change = book.grant([new])
    assert change == Change(renewed=((old, new),))
    assert (change.replaced, change.granted) == ((old,), (new,))
    assert list(book) == [new]


def test_undone_or_refused_renewal_restores_the_former_leases() -> None:
    before = (lease("a"), lease("b"), lease("c"))
    book = Book(before)
    change = book.grant([lease("b", granted_at=200.0), lease("a", exclusive="a d")])
    assert list(book) == [lease("b", granted_at=200.0), lease("c"), lease("a", exclusive="a d")]
    book.undo(change)
    assert list(book) == [lease("b"), lease("c"), lease("a")]
    with pytest.raises(LeaseRefused):
        book.grant([lease("c", granted_at=200.0), lease("x", exclusive="b")])
    assert list(book) == [lease("b"), lease("c"), lease("a")]
    assert not list(book.of_device("d"))


def test_claim_can_repeat_its_grant_and_excludes_other_claims() -> None:
    mine = claimed("gpu-0", "1")
    book = Book([mine])
    assert book.grant([mine]).renewed == ((mine, mine),)
    with pytest.raises(LeaseRefused, match=r"claim/default/1/1.*one claim at a time"):
        book.grant([claimed("gpu-0", "2")])
    assert list(book) == [mine]


def test_claims_conflict_on_exclusive_and_share_shared_devices() -> None:
    whole = claimed("gpu-0", "1")
    share = claimed("gpu-1/s1", "1", exclusive="", shared="gpu-1")
    admin = claimed("gpu-0@3", "3", exclusive="")
    book = Book()
    book.grant([whole, share, admin])
    with pytest.raises(LeaseRefused, match=r"gpu-0.*claim/default/1/1; a device has one holder at a time; wait until"):
        book.grant([claimed("gpu-0-half", "2", shared="gpu-0")])
    with pytest.raises(LeaseRefused, match=r"device gpu-1.*whole or in parts; wait until that claim is unprepared"):
        book.grant([claimed("gpu-1", "2")])
    assert book.grant([claimed("gpu-1/s2", "2", exclusive="", shared="gpu-1")]).begun


def test_conflicts_have_the_device_and_lease_of_each_other_owner() -> None:
    part, whole = lease("vf-0", shared="pf"), claimed("gpu-0", "1")
    book = Book([part, whole, lease("vf-1", shared="pf")])
    found = [(device, x.unit) for device, x in book.conflicts("somebody", ["pf", "gpu-0"])]
    assert found == [("gpu-0", "gpu-0"), ("pf", "vf-0"), ("pf", "vf-1")]
    assert not list(book.conflicts(part.owner, part.exclusive, part.shared))
    assert not list(book.conflicts("somebody", ["vf-2"], ["pf"]))
    assert [x for _, x in book.conflicts("somebody", ["vf-0"], ["pf"])] == [part]


def test_shares_of_a_device_must_have_the_same_number() -> None:
    book = Book()
    book.grant([lease(f"fuse.{n}", "example.com/fuse", shares=3) for n in range(2)])
    assert book.grant([lease("fuse.2", "example.com/fuse", shares=3)]).begun
    for other in (
        lease("fuse", "example.com/fuse"),
        lease("fuse.3", "example.com/fuse", shares=4),
        lease("fuse.3", "example.com/other", shares=3),
    ):
        with pytest.raises(LeaseRefused, match="device fuse"):
            book.grant([other])


def test_group_conflicts_with_a_held_member_of_one_resource() -> None:
    book = Book([lease("gpu-0")])
    with pytest.raises(LeaseRefused, match="device gpu-0"):
        book.grant([lease("pair-1", exclusive="pair-1 gpu-0 snd-0")])


def test_parts_of_a_device_conflict_only_with_the_whole() -> None:
    book = Book([lease("vf-0", "a.com/vf", shared="pf"), lease("vf-1", "b.com/vf", shared="pf")])
    with pytest.raises(LeaseRefused, match=r"device pf: .*whole or in parts"):
        book.grant([lease("pf", "a.com/pf")])
    with pytest.raises(LeaseRefused, match=r"device pf: .*one holder at a time"):
        Book([lease("pf", "a.com/pf")]).grant([lease("vf-0", "a.com/vf", shared="pf")])


def test_refused_grant_changes_nothing() -> None:
    before = lease("gpu-0", holder="pod/a/b/c")
    book = Book([lease("gpu-1", "other.com/gpu"), before])
    with pytest.raises(LeaseRefused):
        book.grant([lease("gpu-0"), lease("gpu-1")])
    assert set(book) == {lease("gpu-1", "other.com/gpu"), before}


def test_request_with_repeated_or_conflicting_units_is_refused() -> None:
    with pytest.raises(LeaseRefused, match="gpu-0: requested twice"):
        Book().grant([lease("gpu-0"), lease("gpu-0")])
    with pytest.raises(LeaseRefused, match="device gpu-0"):
        Book().grant([lease("gpu-0"), lease("gpu-0", "other.com/gpu")])


def test_ended_lease_frees_its_devices_and_unknown_keys_are_ignored() -> None:
    first, second = lease("vf-0", shared="pf"), lease("vf-1", shared="pf")
    book = Book([first, second])
    assert book.end([first.key, first.key, lease("vf-9").key]).ended == (first,)
    book.end([second.key])
    book.grant([lease("pf", "other.com/pf"), lease("vf-0", "third.com/vf", exclusive="vf-0")])
    assert units(book) == ["pf", "vf-0"]


def test_leases_are_found_by_owner_resource_unit_and_device() -> None:
    one, two, other = claimed("a", "1"), claimed("b", "1", "example.com/b"), lease("c", shared="a")
    book = Book([one, two, other])
    assert book.resources("dra") == {"example.com/gpu", "example.com/b"}
    assert book.resources("device-plugin") == {"example.com/gpu"}
    assert list(book.of_device("a")) == [one, other]
    assert book.of_owner("claim/1") == (one, two)
    assert book.of_resource("example.com/gpu", "dra") == (one,)
    assert book.get(other.key) == other
    book.end([one.key])
    assert book.of_owner("claim/1") == (two,)


def test_update_changes_the_holder_and_ignores_ended_leases() -> None:
    book = Book([lease("a"), lease("b")])
    book.end([lease("b").key])
    named = lease("a", holder="pod/x/y/z", pods="uid-1")
    assert book.update([named, lease("b", holder="pod/of/the/past")]).updated == ((lease("a"), named),)
    assert not book.update([named])
    assert list(book) == [named]


class CountedRecord(bytes):
    """A record that counts its comparisons: the records of thousands of units are large."""

    compared = 0
    __hash__ = bytes.__hash__

    def __ne__(self, other: object) -> bool:
        CountedRecord.compared += 1
        return super().__ne__(other)


def test_shared_record_of_leases_is_compared_once() -> None:
    before, equal, other = (CountedRecord(text) for text in (b"one", b"one", b"two"))
    names = [f"gpu-{n}" for n in range(9)]
    book = Book(lease(name, record=before) for name in names)
    CountedRecord.compared = 0
    assert not book.grant([lease(name, record=equal) for name in names]).rerecorded
    assert CountedRecord.compared == 1
    change = book.grant([lease(name, record=other if name == "gpu-3" else equal) for name in names])
    assert [x.unit for x in change.rerecorded] == ["gpu-3"]


def test_update_of_an_ended_lease_does_not_change_its_successor() -> None:
    book = Book([claimed("a", "1")])
    known = replace(claimed("a", "1"), holder="claim/default/one/1", pods=frozenset({"uid-1"}))
    book.end([known.key])
    book.grant([claimed("a", "2")])
    assert not book.update([known])
    assert book.of_owner("claim/2") == (claimed("a", "2"),)


def conflict(a: Lease, b: Lease) -> bool:
    """The rule of conflicts, written directly for a pair of leases."""
    if a.owner == b.owner:
        return False
    return bool(a.exclusive & b.devices or b.exclusive & a.shared)


devices = st.sampled_from(["pf", "vf-0", "vf-1", "x"])
leases = st.builds(
    Lease,
    resource=st.sampled_from(["a.com/r", "b.com/r"]),
    unit=st.sampled_from(["u0", "u1", "u2"]),
    api=st.sampled_from(["device-plugin", "dra"]),
    owner=st.sampled_from(["claim/1", "claim/2", "a.com/r=x/2"]),
    exclusive=st.frozensets(devices, min_size=1, max_size=2),
    shared=st.frozensets(devices, max_size=2),
    boot_id=st.just("b"),
)
steps = st.lists(st.lists(leases, min_size=1, max_size=3) | st.tuples(leases), max_size=12)


@given(steps)
def test_index_agrees_with_pairwise_comparison_and_every_step_can_be_undone(
    script: list[list[Lease] | tuple[Lease]],
) -> None:
    book = Book()
    for step in script:
        before = set(book)
        if isinstance(step, tuple):  # an end
            change = book.end([step[0].key])
        else:
            names = {each.key for each in step}
            others = [each for each in book if each.key not in names]
            has_conflict = len(names) < len(step) or any(conflict(a, b) for a in step for b in [*others, *step])
            taken = {each.key: each.owner for each in book if each.api == "dra"}
            foreign = any(each.key in taken and taken[each.key] != each.owner for each in step)
            try:
                change = book.grant(step)
            except LeaseRefused:
                assert has_conflict or foreign
                change = Change()
            else:
                assert not has_conflict
                assert not foreign
        after = set(book)
        book.undo(change)
        assert set(book) == before
        book.end([x.key for x in change.ended])
        book.grant(change.granted)
        assert set(book) == after
        assert not any(conflict(a, b) for a in book for b in book)
        for name in ("pf", "vf-0", "vf-1", "x"):
            found = {x for _, x in book.conflicts("nobody", [name])}
            assert {x.owner for x in found} == {x.owner for x in book if name in x.devices}
