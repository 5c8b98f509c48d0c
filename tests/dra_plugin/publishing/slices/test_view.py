"""The view of the server's slices: late events, own writes, and deletions by other clients."""

from msgspec.structs import replace

from dra_plugin.publishing.slices.view import PoolChanges, View
from resourceapi.objects import v1
from tests.dra_plugin.publishing.slices.build import device, stored

NOTHING = PoolChanges()
TOUCHED = PoolChanges(frozenset({"pool"}))
WIPED = PoolChanges(frozenset({"pool"}), frozenset({"pool"}))


def _at(version: int, name: str = "a", uid: str = "", pool: str = "pool") -> v1.ResourceSlice:
    made = stored(name, device(f"v{version}"), pool=pool)
    return replace(made, metadata=replace(made.metadata, resource_version=str(version), uid=uid or f"uid-{name}"))


def _versions(view: View, now: float = 0.0) -> list[str]:
    return sorted(f"{x.metadata.name}{x.metadata.resource_version}" for x in view.pool("pool", now))


def test_own_writes_count_until_the_watch_has_caught_up() -> None:
    view = View(60.0)
    assert view.listed([_at(1)], "1", 0.0) == TOUCHED
    assert view.record_write(_at(5), 0.0)
    assert view.record_write(_at(6, "b"), 0.0)
    assert _versions(view) == ["a5", "b6"]
    assert view.changed(_at(3)) == TOUCHED
    assert _versions(view) == ["a5", "b6"]
    view.changed(_at(5))
    view.changed(_at(7))
    assert _versions(view) == ["a7", "b6"]
    assert view.changed(_at(6)) == NOTHING
    assert _versions(view) == ["a7", "b6"]


def test_own_writes_that_the_watch_never_saw_are_forgotten() -> None:
    view = View(60.0)
    view.listed([], "1", 0.0)
    view.record_write(_at(5), 0.0)
    assert _versions(view, 59.0) == ["a5"]
    assert _versions(view, 61.0) == []


def test_an_answer_that_comes_after_its_event_is_no_news() -> None:
    view = View(60.0)
    view.changed(_at(9))
    view.record_write(_at(5), 0.0)
    assert _versions(view) == ["a9"]


def test_own_deletions_are_told_from_those_of_others() -> None:
    view = View(60.0)
    view.listed([_at(1, "a"), _at(1, "b"), _at(1, "c")], "1", 0.0)
    view.deleting(_at(1, "a"))
    assert view.removed(_at(2, "a"), 0.0) == TOUCHED
    view.deleted(_at(1, "a"), 0.0)
    view.deleting(_at(1, "b"))
    view.deletion_failed(_at(1, "b"))
    assert view.removed(_at(2, "b"), 0.0) == WIPED
    assert view.removed(_at(2, "b"), 0.0) == TOUCHED
    assert _versions(view) == ["c1"]


def test_a_late_event_does_not_bring_back_what_is_gone() -> None:
    view = View(60.0)
    view.listed([_at(1)], "1", 0.0)
    view.deleting(_at(1))
    view.deleted(_at(1), 0.0)
    assert view.changed(_at(2)) == NOTHING
    view.listed([_at(1)], "2", 0.0)
    assert _versions(view) == []
    view.changed(_at(9, uid="another"))
    assert _versions(view) == ["a9"]


def test_an_answer_for_what_is_gone_already() -> None:
    """Another client deletes our new slice so fast that the watch reports it before the answer arrives."""
    view = View(60.0)
    assert view.removed(_at(6), 0.0) == WIPED
    assert not view.record_write(_at(5), 0.0)
    assert _versions(view) == []


def test_a_new_list_says_what_was_missed() -> None:
    view = View(60.0)
    view.listed([_at(1, "a"), _at(1, "b", pool="other")], "1", 0.0)
    view.record_write(_at(5, "c"), 0.0)
    view.record_write(_at(9, "d"), 0.0)
    noticed = view.listed([_at(1, "a")], "7", 0.0)
    assert noticed == PoolChanges(frozenset({"pool", "other"}), frozenset({"pool", "other"}))
    assert _versions(view) == ["a1", "d9"]


def test_a_slice_that_changes_its_pool_touches_both() -> None:
    view = View(60.0)
    view.listed([_at(1)], "1", 0.0)
    assert view.changed(_at(2, pool="other")) == PoolChanges(frozenset({"pool", "other"}))


def test_versions_that_are_no_numbers_cannot_be_compared() -> None:
    view = View(60.0)
    odd = replace(_at(1), metadata=replace(_at(1).metadata, resource_version="x1"))
    view.listed([odd], "x1", 0.0)
    view.record_write(_at(5), 0.0)
    view.changed(replace(odd, metadata=replace(odd.metadata, resource_version="x2")))
    assert _versions(view) == ["ax2"]
