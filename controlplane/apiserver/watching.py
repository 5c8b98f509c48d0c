"""Watches: the changes of a request's objects from a version on, event by event (allocator.md 5.12)."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import NamedTuple

from controlplane.apiserver.history import Event, Expired
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.listing import Selection
from controlplane.apiserver.options import ListOptions, uint
from controlplane.apiserver.status import expired, internal, version_in_the_future
from controlplane.apiserver.store import Store
from controlplane.apiserver.target import Target

BOOKMARK_INTERVAL = 60.0
BOOKMARK_BEFORE_END = 2.0
"""Seconds before the end of a watch at which its last bookmark is sent, from which the client can continue."""
_MIN_TIMEOUT, _MAX_TIMEOUT = 30 * 60, 60 * 60
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class Change(NamedTuple):
    """An event of a watch: ADDED, MODIFIED and DELETED with an object in the stored version, BOOKMARK, ERROR."""

    type: str
    object: Plain


async def watch(store: Store, target: Target, options: ListOptions) -> AsyncIterator[Change]:
    """Return the events of a request until its time is over. Raises ApiError at once if it cannot be served."""
    selection = Selection(target, options)
    position = _start(store, options)
    return _stream(store, target, options, selection, position)


def _start(store: Store, options: ListOptions) -> int | None:
    """The version after which events are sent; None: all existing objects first."""
    text = options.resource_version
    try:
        version = uint(text) if text else 0
    except ValueError as error:
        raise internal(f'resourceVersion: Invalid value: "{text}": {error}') from None
    if version > store.version:
        raise version_in_the_future(version, store.version)
    if options.initial_events:
        return None
    if options.initial_events is False and not version:
        return store.published
    return version or None


async def _stream(
    store: Store, target: Target, options: ListOptions, selection: Selection, position: int | None
) -> AsyncIterator[Change]:
    kind_id = target.kind.table
    loop = asyncio.get_running_loop()
    seconds = options.timeout or _MIN_TIMEOUT + secrets.randbelow(_MAX_TIMEOUT - _MIN_TIMEOUT)
    end = loop.time() + seconds
    subscription = store.subscribe(kind_id, selection.mark)
    try:
        if position is None:
            while store.published < store.version:  # changes that a crash could lose are not shown
                await store.commit()
            position = store.version
            for obj in list(store.objects(kind_id, target.namespace, mark=selection.mark)):
                if selection.takes(obj):
                    yield Change("ADDED", obj)
            if options.bookmarks:  # also without `sendInitialEvents`
                yield _bookmark(position, _INITIAL_EVENTS_END)
        next_bookmark = _next_bookmark(loop.time(), end)
        subscription.record_change(position + 1)  # changes since then, before the subscription
        while True:
            shown, first = store.published, subscription.take()
            position = max(position, shown if first is None else first - 1)
            try:
                events = store.events_after(kind_id, position, selection.mark) if first is not None else []
            except Expired as error:
                refusal = expired(f"too old resource version: {position} ({error.oldest})")
                yield Change("ERROR", refusal.body)
                return
            for event in events:
                if event.version > shown:
                    break
                position = event.version
                if target.namespace and event.key[0] != target.namespace:
                    continue
                change = _change_from(event, selection)
                if change is not None:
                    yield change
            position = max(position, shown)
            now = loop.time()
            if now >= next_bookmark:
                next_bookmark = _next_bookmark(now, end)
                if options.bookmarks:
                    yield _bookmark(position)
            if now >= end or store.is_closed:
                return
            try:
                async with asyncio.timeout(min(end, next_bookmark) - now):
                    await subscription.changed.wait()
            except TimeoutError:
                continue
    finally:
        store.unsubscribe(subscription)


def _next_bookmark(now: float, end: float) -> float:
    """The time of the next bookmark; after the end if none is due any more."""
    due = min(now + BOOKMARK_INTERVAL, end - BOOKMARK_BEFORE_END)
    return due if due > now else end + BOOKMARK_INTERVAL


def _change_from(event: Event, selection: Selection) -> Change | None:
    """The change that a watcher sees. An object is added or deleted, too, when it starts or stops matching."""
    was = event.old is not None and selection.takes(event.old)
    if event.new is not None and selection.takes(event.new):
        return Change("MODIFIED" if was else "ADDED", event.new)
    if not was:
        return None
    if event.new is None:
        return Change("DELETED", event.last)
    assert event.old is not None, "or it would not have been taken"
    metadata = {**event.old["metadata"], "resourceVersion": event.new["metadata"]["resourceVersion"]}
    return Change("DELETED", {**event.old, "metadata": metadata})


def _bookmark(version: int, annotations: Plain | None = None) -> Change:
    metadata: Plain = {"resourceVersion": str(version)}
    if annotations:
        metadata["annotations"] = annotations
    return Change("BOOKMARK", {"metadata": metadata})
