"""The rules alone, without a disk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import Lease, LeaseRefused
from checkpoint.lease import Book


def lease(
    unit: str,
    resource: str = "example.com/gpu",
    *,
    api: str = "device-plugin",
    occupies: str = "",
    touches: str = "",
    holder: str = "",
    since: float = 100.0,
    boot_id: str = "boot-1",
) -> Lease:
    assert api in ("device-plugin", "dra")
    return Lease(
        resource=resource,
        unit=unit,
        api="dra" if api == "dra" else "device-plugin",
        occupies=frozenset(occupies.split() or [unit]),
        touches=frozenset(touches.split()),
        holder=holder,
        boot_id=boot_id,
        since=since,
    )


def test_another_resource_is_refused_by_name_rule_and_way_out() -> None:
    book = Book([lease("gpu-0", holder="pod/default/train/main")])
    with pytest.raises(LeaseRefused) as refused:
        book.grant([lease("vfio-7", "example.com/vfio", occupies="vfio-7 gpu-0")])
    assert refused.value.device == "gpu-0"
    assert str(refused.value) == (
        "device gpu-0: example.com/vfio cannot hand out vfio-7, because example.com/gpu (device-plugin) has given gpu-0"
        " to pod/default/train/main; a device has one holder at a time; end that pod, or leave the device to one"
        " resource"
    )


def test_the_other_api_is_another_party_even_with_the_same_name() -> None:
    book = Book([lease("gpu-0")])
    with pytest.raises(LeaseRefused, match="a holder that is not known yet"):
        book.grant([lease("gpu-0", api="dra", holder="claim/1")])


def test_the_kubelet_decides_within_one_resource_so_a_leased_unit_is_given_anew() -> None:
    old, new = lease("gpu-0", holder="pod/a/b/c"), lease("gpu-0", since=200.0)
    change = Book([old]).grant([new])
    assert (change.ended, change.begun, list(change.book)) == ((old,), (new,), [new])


def test_a_claim_keeps_its_device_from_other_claims_and_may_repeat_itself() -> None:
    mine = lease("gpu-0", api="dra", holder="claim/1")
    book = Book([mine])
    assert book.grant([mine]).ended == (mine,)
    with pytest.raises(LeaseRefused, match=r"claim/1.*one claim at a time"):
        book.grant([lease("gpu-0", api="dra", holder="claim/2")])


def test_claims_keep_from_each_other_what_they_took_whole_and_share_what_they_touch() -> None:
    whole = lease("gpu-0", api="dra", holder="claim/1")
    share = lease("gpu-1/s1", occupies="", touches="gpu-1", api="dra", holder="claim/1")
    admin = lease("gpu-0@claim/3", occupies="", api="dra", holder="claim/3")
    book = Book().grant([whole, share, admin]).book
    with pytest.raises(LeaseRefused, match=r"gpu-0.*claim/1; a device has one holder at a time; unprepare that claim"):
        book.grant([lease("gpu-0-half", touches="gpu-0", api="dra", holder="claim/2")])
    with pytest.raises(LeaseRefused, match=r"device gpu-1.*whole or in parts; unprepare that claim"):
        book.grant([lease("gpu-1", api="dra", holder="claim/2")])
    assert book.grant([lease("gpu-1/s2", occupies="", touches="gpu-1", api="dra", holder="claim/2")])


def test_obstacles_are_what_the_other_api_handed_out() -> None:
    part, claimed = lease("vf-0", touches="pf"), lease("gpu-0", api="dra", holder="claim/1")
    obstacles = Book([part, claimed]).obstacles("dra")
    assert obstacles
    assert not Book([claimed]).obstacles("dra")
    assert obstacles.why_not(["gpu-0"]) == ""
    assert "example.com/gpu (device-plugin) has given vf-0" in obstacles.why_not(["pf"])
    assert "has given vf-0" in obstacles.why_not(["vf-0"], ["pf"])
    assert obstacles.why_not(["vf-1"], ["pf"]) == ""
    assert "gpu-0 to claim/1" in Book([part, claimed]).obstacles("device-plugin").why_not(["gpu-0"])


def test_shares_of_one_device_go_to_one_resource_only() -> None:
    book = Book().grant([lease(f"fuse.{n}", "example.com/fuse", occupies="fuse") for n in range(3)]).book
    assert len(book.grant([lease("fuse.3", "example.com/fuse", occupies="fuse")]).book) == 4
    with pytest.raises(LeaseRefused, match="device fuse"):
        book.grant([lease("fuse", "example.com/other")])


def test_parts_of_one_whole_may_go_to_different_resources_but_the_whole_to_neither() -> None:
    book = Book().grant([lease("vf-0", "a.com/vf", touches="pf"), lease("vf-1", "b.com/vf", touches="pf")]).book
    with pytest.raises(LeaseRefused, match=r"device pf: .*whole or in parts"):
        book.grant([lease("pf", "a.com/pf")])
    with pytest.raises(LeaseRefused, match=r"device pf: .*one holder at a time"):
        Book([lease("pf", "a.com/pf")]).grant([lease("vf-0", "a.com/vf", touches="pf")])


def test_a_grant_is_all_or_nothing() -> None:
    book = Book([lease("gpu-1", "other.com/gpu")])
    with pytest.raises(LeaseRefused):
        book.grant([lease("gpu-0"), lease("gpu-1")])
    assert list(book) == [lease("gpu-1", "other.com/gpu")]


def test_one_request_cannot_take_the_same_unit_twice_or_quarrel_with_itself() -> None:
    with pytest.raises(LeaseRefused, match="gpu-0: asked for twice"):
        Book().grant([lease("gpu-0"), lease("gpu-0")])
    with pytest.raises(LeaseRefused, match="device gpu-0"):
        Book().grant([lease("gpu-0"), lease("gpu-0", "other.com/gpu")])


def test_an_ended_lease_frees_its_devices() -> None:
    book = Book([lease("vf-0", touches="pf"), lease("vf-1", touches="pf")])
    change = book.end(lambda each: each.unit == "vf-0")
    assert [each.unit for each in change.ended] == ["vf-0"]
    book = change.book.end(lambda each: True).book
    assert len(book.grant([lease("pf", "other.com/pf"), lease("vf-0", "other.com/pf")]).book) == 2


def test_a_look_at_the_kubelet_ends_what_it_does_not_know_and_names_who_holds_the_rest() -> None:
    gone, kept, new = lease("a"), lease("b", boot_id="boot-0"), lease("c", since=300.0)
    claim = lease("d", "example.com/d", api="dra", holder="claim/1")
    held = {("example.com/gpu", "b"): "pod/x/y/z", ("example.com/gpu", "c"): "pod/of/the/past"}
    change = Book([gone, kept, new, claim]).reconcile("device-plugin", held, 250.0, 250.0, "boot-1")
    assert set(change.book) == {lease("b", holder="pod/x/y/z"), new, claim}
    again = change.book.reconcile("device-plugin", held, 250.0, 250.0, "boot-1")
    assert (again.ended, again.begun) == ((), ())


def conflict(a: Lease, b: Lease) -> bool:
    """The rule as the issue states it, for pairs."""
    if a.party == b.party:
        return False
    return bool(a.occupies & (b.occupies | b.touches) or b.occupies & a.touches)


devices = st.sampled_from(["pf", "vf-0", "vf-1", "x"])
leases = st.builds(
    Lease,
    resource=st.sampled_from(["a.com/r", "b.com/r"]),
    unit=st.sampled_from(["u0", "u1", "u2"]),
    api=st.sampled_from(["device-plugin", "dra"]),
    occupies=st.frozensets(devices, min_size=1, max_size=2),
    touches=st.frozensets(devices, max_size=2),
    holder=st.sampled_from(["", "claim/1", "claim/2"]),
    boot_id=st.just("b"),
    since=st.just(0.0),
)
steps = st.lists(st.lists(leases, min_size=1, max_size=3) | st.tuples(leases), max_size=12)


@given(steps)
def test_the_index_agrees_with_comparing_all_pairs(script: list[list[Lease] | tuple[Lease]]) -> None:
    book = Book()
    for step in script:
        if isinstance(step, tuple):  # an end
            book = book.end(lambda each, key=step[0].key: each.key == key).book  # type: ignore[misc]  # bound at once
            continue
        names = {each.key for each in step}
        others = [each for each in book if each.key not in names]
        quarrel = len(names) < len(step) or any(conflict(a, b) for a in step for b in [*others, *step])
        taken = {each.key: each.holder for each in book if each.api == "dra"}
        foreign = any(each.key in taken and taken[each.key] != each.holder for each in step)
        try:
            book = book.grant(step).book
        except LeaseRefused:
            assert quarrel or foreign
        else:
            assert not quarrel
            assert not foreign
        assert not any(conflict(a, b) for a in book for b in book)
        assert book == Book(book)
