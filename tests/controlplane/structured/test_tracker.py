"""Slices with the taints of device taint rules, and the change events."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.structured import Tracker, patched
from resourceapi.objects import from_dict
from resourceapi.objects.v1 import DeviceTaintRule, ResourceSlice
from tests.cases import Case, recorded
from tests.controlplane.structured.build import DRIVER, device, slice_

Events = list[tuple[list[str] | None, list[str] | None]]


@recorded("allocator/tracker.json")
def test_recorded_tracker_events_are_reproduced(case: Case) -> None:
    case.run()


def _rule(name: str, *, key: str = "", **selector: str) -> DeviceTaintRule:
    spec = {"deviceSelector": selector, "taint": {"key": key or name, "effect": "NoSchedule"}}
    return from_dict(DeviceTaintRule, {"metadata": {"name": name}, "spec": spec})


def _taints(each: ResourceSlice | None) -> list[str] | None:
    """`device:key,key` of every device; None without a slice."""
    if each is None:
        return None
    return [f"{x.name}:{','.join(taint.key for taint in x.taints)}" for x in each.spec.devices]


def _slice(name: str, *devices: str, **fields: Any) -> ResourceSlice:
    return slice_(name, [device(x) for x in devices], **fields)


def test_taint_rule_applies_where_all_selector_fields_match() -> None:
    slices = [_slice("a", "x", "y", pool="p"), _slice("b", "x", pool="q")]
    for selector, expected in (
        ({}, [["x:r", "y:r"], ["x:r"]]),
        ({"driver": DRIVER}, [["x:r", "y:r"], ["x:r"]]),
        ({"driver": "other"}, [["x:", "y:"], ["x:"]]),
        ({"pool": "p"}, [["x:r", "y:r"], ["x:"]]),
        ({"device": "x"}, [["x:r", "y:"], ["x:r"]]),
        ({"driver": DRIVER, "pool": "q", "device": "x"}, [["x:", "y:"], ["x:r"]]),
        ({"pool": "q", "device": "y"}, [["x:", "y:"], ["x:"]]),
    ):
        assert [_taints(each) for each in patched(slices, [_rule("r", **selector)])] == expected


def test_rules_that_select_no_device_return_slices_unchanged() -> None:
    rule = from_dict(DeviceTaintRule, {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "None"}}})
    slices = [_slice("a", "x"), _slice("b")]
    for found, original in zip(patched(slices, [rule, _rule("s", device="z")]), slices, strict=True):
        assert found is original


def test_device_taints_precede_rule_taints_in_rule_name_order() -> None:
    own = {"key": "own", "effect": "NoExecute"}
    slices = [slice_("a", [device("x", taints=[own])])]
    assert [_taints(each) for each in patched(slices, [_rule("b"), _rule("a")])] == [["x:own,a,b"]]


def test_each_write_and_each_taint_change_emits_one_event() -> None:
    """One for each write of the slice, and for each rule that changes its taints."""
    notified: Events = []
    tracker = Tracker(lambda before, after: notified.append((_taints(before), _taints(after))))
    tracker.set_slice(_slice("a", "x"))
    tracker.set_slice(_slice("a", "x"))
    tracker.set_rule(_rule("r", device="x"))
    tracker.set_rule(_rule("r", device="x", key="k"))
    tracker.set_rule(_rule("s", device="y"))
    tracker.set_slice(_slice("a", "x", "y"))
    tracker.remove_rule("r")
    tracker.remove_rule("unknown")
    tracker.remove_slice("a")
    tracker.remove_slice("a")
    assert notified == [
        (None, ["x:"]),
        (["x:"], ["x:"]),
        (["x:"], ["x:r"]),
        (["x:r"], ["x:k"]),
        (["x:k"], ["x:k", "y:s"]),
        (["x:k", "y:s"], ["x:", "y:s"]),
        (["x:", "y:s"], None),
    ]
    assert tracker.slices == []


_SLICES = st.builds(
    lambda name, devices, pool: _slice(name, *devices, pool=pool),
    st.sampled_from("abc"),
    st.lists(st.sampled_from("xyz"), unique=True, max_size=3),
    st.sampled_from("pq"),
)
_RULES = st.builds(
    lambda name, selector: _rule(name, **selector),
    st.sampled_from("rs"),
    st.dictionaries(st.sampled_from(["pool", "device"]), st.sampled_from("pqxyz"), max_size=2),
)


@given(st.lists(st.one_of(_SLICES, _RULES, st.sampled_from("abcrs")), max_size=20))
def test_tracked_slices_equal_patched_slices_after_any_event_order(
    events: list[ResourceSlice | DeviceTaintRule | str],
) -> None:
    known: dict[str, ResourceSlice] = {}
    mirror: dict[str, ResourceSlice] = {}
    rules: dict[str, DeviceTaintRule] = {}

    def note(before: ResourceSlice | None, after: ResourceSlice | None) -> None:
        name = (before or after or _slice("")).metadata.name
        assert mirror.get(name) == before
        mirror.pop(name, None)
        if after is not None:
            mirror[name] = after

    tracker = Tracker(note)
    for event in events:
        match event:
            case ResourceSlice():
                known[event.metadata.name] = event
                tracker.set_slice(event)
            case DeviceTaintRule():
                rules[event.metadata.name] = event
                tracker.set_rule(event)
            case name:
                known.pop(name, None)
                rules.pop(name, None)
                tracker.remove_slice(name)
                tracker.remove_rule(name)
    expected = patched(sorted(known.values(), key=lambda each: each.metadata.name), rules.values())
    assert tracker.slices == expected
    assert sorted(mirror.values(), key=lambda each: each.metadata.name) == expected
