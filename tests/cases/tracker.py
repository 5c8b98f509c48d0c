"""Runner for the taint tracker: `allocator/tracker.json`.

Rules: the reference is release v0.37.2. The patched slices must be the expected ones for every interleaving of the
events that keeps the order inside nested lists. The notifications must be those of the recorded order.
"""

import random
from collections.abc import Iterator
from functools import partial
from itertools import islice
from math import factorial, prod
from typing import Any

from controlplane.structured import Tracker
from resourceapi.objects import from_dict, to_dict
from resourceapi.objects.v1 import DeviceTaintRule, ResourceSlice
from tests.cases.allocator import RELEASE
from tests.cases.documents import Document
from tests.cases.results import Case, Format, Skipped, expect_equal

Event = dict[str, Any]
MAX_ORDERS = 2_000  # above this number, this many random orders are used


def _is_tracker(document: Document) -> bool:
    return document.has_cases_with("events", "expect") and "patchedSlices" in document.cases[0]["expect"]


def _cases(document: Document) -> Iterator[Case]:
    for entry in document.cases:
        yield Case(entry["id"], partial(_run, entry))


def _run(entry: Event) -> None:
    if RELEASE not in entry["versions"]:
        raise Skipped(f"not a case of {RELEASE}")
    sequences = [each if isinstance(each, list) else [each] for each in entry["events"]]
    expected = [_plain(each) for each in entry["expect"]["patchedSlices"]]
    notifications: list[Event] = []
    expect_equal(expected, _patched_after([event for each in sequences for event in each], notifications))
    expected_events = entry["expect"].get("handlerEvents")
    if expected_events is not None:
        comparable = [
            {"event": x["event"], "newObj": _plain_or_none(x["newObj"]), "oldObj": _plain_or_none(x["oldObj"])}
            for x in expected_events
        ]
        expect_equal(comparable, notifications)
    for order in _orders(sequences):
        expect_equal(expected, _patched_after(order, []))


def _patched_after(events: list[Event], notifications: list[Event]) -> list[Event]:
    """The patched slices after some events; notifications are appended to `notifications`."""

    def note(before: ResourceSlice | None, after: ResourceSlice | None) -> None:
        kind = "add" if before is None else "delete" if after is None else "update"
        notifications.append({"event": kind, "newObj": after and to_dict(after), "oldObj": before and to_dict(before)})

    tracker = Tracker(note)
    for event in events:
        _apply(tracker, event)
    return [to_dict(each) for each in tracker.slices]


def _apply(tracker: Tracker, event: Event) -> None:
    if event.get("removeByName"):
        tracker.remove_rule(str(event["removeByName"]))
    elif event["kind"] == "ResourceSlice":
        if event["new"] is None:
            tracker.remove_slice(event["old"]["metadata"]["name"])
        else:
            tracker.set_slice(from_dict(ResourceSlice, event["new"]))
    elif event["kind"] == "DeviceTaintRule":
        if event["new"] is None:
            tracker.remove_rule(event["old"]["metadata"]["name"])
        else:
            tracker.set_rule(from_dict(DeviceTaintRule, event["new"]))


def _orders(sequences: list[list[Event]]) -> Iterator[list[Event]]:
    """Interleavings that keep each sequence's order: all of them, or a number of random ones."""
    total = factorial(sum(map(len, sequences))) // prod(factorial(len(each)) for each in sequences)
    if total <= MAX_ORDERS:
        yield from _interleaved(sequences)
        return
    rng = random.Random(total)
    places = [index for index, each in enumerate(sequences) for _ in each]
    for _ in range(MAX_ORDERS):
        rng.shuffle(places)
        rest = [iter(each) for each in sequences]
        yield [next(rest[index]) for index in places]


def _interleaved(sequences: list[list[Event]]) -> Iterator[list[Event]]:
    if not any(sequences):
        yield []
    for index, sequence in enumerate(sequences):
        if sequence:
            others = [*sequences[:index], list(islice(sequence, 1, None)), *sequences[index + 1 :]]
            for tail in _interleaved(others):
                yield [sequence[0], *tail]


def _plain(value: Event) -> Event:
    return to_dict(from_dict(ResourceSlice, value))


def _plain_or_none(value: Event | None) -> Event | None:
    return None if value is None else _plain(value)


FORMATS = [Format("taint tracker", _is_tracker, _cases)]
