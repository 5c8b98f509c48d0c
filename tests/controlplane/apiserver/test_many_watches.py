"""Many watches of one kind: each is woken only for relevant changes, and misses none of them."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.apiserver import Server
from controlplane.apiserver.journal import FileJournal
from controlplane.apiserver.options import list_options
from controlplane.apiserver.store import Store
from controlplane.apiserver.target import Target
from controlplane.apiserver.watching import Change, watch

KIND = next(kind for kind in Server().registry if kind.kind == "ResourceSlice")
TARGET = Target(KIND, "v1", "")


def put_slice(store: Store, name: str, node: str) -> None:
    store.put(KIND.table, ("", name), {"metadata": {"name": name}, "spec": {"nodeName": node, "driver": "d"}})


async def open_watch(store: Store, selector: str, **query: str) -> AsyncIterator[Change]:
    return await watch(store, TARGET, list_options({"watch": "true", "fieldSelector": selector, **query}))


def type_and_name(change: Change) -> tuple[str, str]:
    return change.type, change.object["metadata"]["name"]


async def test_change_wakes_only_matching_subscriptions() -> None:
    store = Store()
    by_node = store.subscribe(KIND.table, ("spec.nodeName", "one"))
    by_name = store.subscribe(KIND.table, ("metadata.name", "a"))
    others = store.subscribe(KIND.table, ("spec.nodeName", "two")), store.subscribe("pods", ("spec.nodeName", "one"))
    everything = store.subscribe()
    put_slice(store, "a", "one")
    await store.commit()
    assert [each.take() for each in (by_node, by_name, *others, everything)] == [2, 2, None, None, 2]
    put_slice(store, "a", "two")  # wakes the watch that the object leaves and the one that it enters
    await store.commit()
    assert [each.take() for each in (by_node, by_name, *others, everything)] == [3, 3, 3, None, 3]


async def test_watch_does_not_expire_from_irrelevant_changes() -> None:
    store = Store(history=5)
    put_slice(store, "first", "one")
    await store.commit()
    stream = await open_watch(store, "spec.nodeName=one,spec.driver=d")
    assert type_and_name(await anext(stream)) == ("ADDED", "first")
    coming = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    for number in range(100):
        put_slice(store, f"other-{number}", "two")
        await store.commit()
    put_slice(store, "second", "one")
    await store.commit()
    assert type_and_name(await coming) == ("ADDED", "second")
    put_slice(store, "first", "two")
    store.remove(KIND.table, ("", "second"))
    await store.commit()
    assert [type_and_name(await anext(stream)) for _ in range(2)] == [("DELETED", "first"), ("DELETED", "second")]


async def test_watch_shows_object_only_after_it_is_in_journal(tmp_path: Path) -> None:
    """This includes the initial objects: they are on disk before the watch shows them."""
    journal = FileJournal(tmp_path / "objects")
    store = Store(journal)
    put_slice(store, "first", "one")
    stream = await open_watch(store, "spec.nodeName=one")
    assert type_and_name(await anext(stream)) == ("ADDED", "first")
    assert [key for _, key, _ in journal.objects()] == [("", "first")]
    journal.close()


async def test_watch_from_version_starts_with_matching_past_changes() -> None:
    store = Store()
    for number in range(40):  # the latest few are stored in another form than older ones
        put_slice(store, f"slice-{number}", "one" if number in (5, 39) else "two")
    await store.commit()
    stream = await open_watch(store, "spec.nodeName=one", resourceVersion="1")
    assert [type_and_name(await anext(stream)) for _ in range(2)] == [("ADDED", "slice-5"), ("ADDED", "slice-39")]


def test_list_by_node_is_complete_and_in_name_order() -> None:
    store = Store()
    for number in range(6):
        put_slice(store, f"slice-{5 - number}", f"node-{number % 2}")
    put_slice(store, "slice-5", "node-1")
    store.remove(KIND.table, ("", "slice-2"))

    def names(node: str, **after: Any) -> list[str]:
        return [obj["metadata"]["name"] for obj in store.objects(KIND.table, mark=("spec.nodeName", node), **after)]

    assert names("node-0") == ["slice-1", "slice-3"]
    assert names("node-1") == ["slice-0", "slice-4", "slice-5"] == [*names("node-1", after=("", "a"))]
    assert names("node-1", after=("", "slice-4")) == ["slice-5"]
    assert names("node-2") == []


async def test_idle_watch_without_bookmarks_uses_little_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.apiserver.watching.BOOKMARK_INTERVAL", 0.1)
    stream, began = await open_watch(Store(), "", timeoutSeconds="1"), time.process_time()
    assert [change async for change in stream] == []
    assert time.process_time() - began < 0.4
