"""The view of the server's slices: late events, own writes, and deletions by other clients."""

from msgspec.structs import replace

from dra_plugin.publishing.slices.view import PoolChanges, View
from resourceapi.objects import v1
from tests.dra_plugin.publishing.slices.build import device, stored

NO_CHANGE = PoolChanges()
CHANGED = PoolChanges(frozenset({"pool"}))
DELETED = PoolChanges(frozenset({"pool"}), frozenset({"pool"}))


def _at(version: int, name: str = "a", uid: str = "", pool: str = "pool") -> v1.ResourceSlice:
    made = stored(name, device(f"v{version}"), pool=pool)
    return replace(made, metadata=replace(made.metadata, resource_version=str(version), uid=uid or f"uid-{name}"))


def _versions(view: View, now: float = 0.0) -> list[str]:
    return sorted(f"{x.metadata.name}{x.metadata.resource_version}" for x in view.pool("pool", now))


def test_own_write_counts_until_the_watch_reports_it() -> None:
    view = View(60.0)
    assert view.listed([_at(1)], "1", 0.0) == CHANGED
    assert view.record_write(_at(5), 0.0)
    assert view.record_write(_at(6, "b"), 0.0)
    assert _versions(view) == ["a5", "b6"]
    assert view.changed(_at(3)) == CHANGED
    assert _versions(view) == ["a5", "b6"]
    view.changed(_at(5))
    view.changed(_at(7))
    assert _versions(view) == ["a7", "b6"]
    assert view.changed(_at(6)) == NO_CHANGE
    assert _versions(view) == ["a7", "b6"]


def test_own_write_is_forgotten_when_the_watch_never_reports_it() -> None:
    view = View(60.0)
    view.listed([], "1", 0.0)
    view.record_write(_at(5), 0.0)
    assert _versions(view, 59.0) == ["a5"]
    assert _versions(view, 61.0) == []


def test_answer_after_a_newer_event_is_ignored() -> None:
    view = View(60.0)
    view.changed(_at(9))
    view.record_write(_at(5), 0.0)
    assert _versions(view) == ["a9"]


def test_own_deletion_is_distinguished_from_a_deletion_by_others() -> None:
    view = View(60.0)
    view.listed([_at(1, "a"), _at(1, "b"), _at(1, "c")], "1", 0.0)
    view.deleting(_at(1, "a"))
    assert view.removed(_at(2, "a"), 0.0) == CHANGED
    view.deleted(_at(1, "a"), 0.0)
    view.deleting(_at(1, "b"))
    view.deletion_failed(_at(1, "b"))
    assert view.removed(_at(2, "b"), 0.0) == DELETED
    assert view.removed(_at(2, "b"), 0.0) == CHANGED
    assert _versions(view) == ["c1"]


def test_late_event_does_not_restore_a_deleted_slice() -> None:
    view = View(60.0)
    view.listed([_at(1)], "1", 0.0)
    view.deleting(_at(1))
    view.deleted(_at(1), 0.0)
    assert view.changed(_at(2)) == NO_CHANGE
    view.listed([_at(1)], "2", 0.0)
    assert _versions(view) == []
    view.changed(_at(9, uid="another"))
    assert _versions(view) == ["a9"]


def test_answer_for_a_deleted_slice_is_ignored() -> None:
    """Another client deletes our new slice so fast that the watch reports it before the answer arrives."""
    view = View(60.0)
    assert view.removed(_at(6), 0.0) == DELETED
    assert not view.record_write(_at(5), 0.0)
    assert _versions(view) == []


def test_new_list_reports_missed_changes_and_deletions() -> None:
    view = View(60.0)
    view.listed([_at(1, "a"), _at(1, "b", pool="other")], "1", 0.0)
    view.record_write(_at(5, "c"), 0.0)
    view.record_write(_at(9, "d"), 0.0)
    noticed = view.listed([_at(1, "a")], "7", 0.0)
    assert noticed == PoolChanges(frozenset({"pool", "other"}), frozenset({"pool", "other"}))
    assert _versions(view) == ["a1", "d9"]


def test_slice_that_moves_to_another_pool_changes_both_pools() -> None:
    view = View(60.0)
    view.listed([_at(1)], "1", 0.0)
    assert view.changed(_at(2, pool="other")) == PoolChanges(frozenset({"pool", "other"}))


def test_event_replaces_an_own_write_when_versions_are_not_numeric() -> None:
    view = View(60.0)
    odd = replace(_at(1), metadata=replace(_at(1).metadata, resource_version="x1"))
    view.listed([odd], "x1", 0.0)
    view.record_write(_at(5), 0.0)
    view.changed(replace(odd, metadata=replace(odd.metadata, resource_version="x2")))
    assert _versions(view) == ["ax2"]
