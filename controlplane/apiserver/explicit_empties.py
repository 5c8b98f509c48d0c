"""Lists and maps that were sent empty. Go distinguishes them from missing ones until they are stored; so do rules."""

from typing import Any

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import Record
from resourceapi.objects.codec import json_fields
from resourceapi.objects.meta import WrittenEmpty


def with_empties(value: Any, sent: Any) -> Any:
    """Return the value with the empty lists and maps that were sent; `sent` has their places, None: there are none."""
    if isinstance(value, dict) and isinstance(sent, dict):
        found = {name: item for name, item in sent.items() if value.get(name) is None and item in ([], {})}
        return {name: with_empties(item, sent.get(name)) for name, item in value.items()} | found
    if isinstance(value, list) and isinstance(sent, list) and len(value) == len(sent):
        return [with_empties(*pair) for pair in zip(value, sent, strict=True)]
    return value


def with_written_empties(value: Any, sent: Any) -> Any:
    """Return the value with the empty ones that were sent where its type writes null: the client owns these fields."""
    if isinstance(value, dict) and isinstance(sent, dict):
        return {
            name: sent[name]
            if item is None and sent.get(name) in ([], {})
            else with_written_empties(item, sent.get(name))
            for name, item in value.items()
        }
    if isinstance(value, list) and isinstance(sent, list) and len(value) == len(sent):
        return [with_written_empties(*pair) for pair in zip(value, sent, strict=True)]
    return value


def lost_empties(sent: Any, held: Any) -> Any:
    """Return the places where `sent` has an empty list or map that `held` lacks, with their parents."""
    found: Any = None
    if isinstance(sent, dict) and isinstance(held, dict):
        found = {name: item for name, item in sent.items() if held.get(name) is None and item in ([], {})}
        below = {name: lost_empties(item, held[name]) for name, item in sent.items() if name in held}
        found |= {name: item for name, item in below.items() if item}
    elif isinstance(sent, list) and isinstance(held, list) and len(sent) == len(held):
        items = [lost_empties(*pair) for pair in zip(sent, held, strict=True)]
        found = items if any(items) else None
    return found or None


def empties(record: Record) -> Plain:
    """Return the places where a record was sent an empty list, with their parents."""
    found: Plain = {}
    for name, field in json_fields(type(record)).items():
        value = getattr(record, field.name)
        if isinstance(value, WrittenEmpty):
            found[name] = []
        elif isinstance(value, Record):
            below = empties(value)
            found |= {name: below} if below else {}
        elif isinstance(value, tuple):
            items = [empties(each) if isinstance(each, Record) else {} for each in value]
            found |= {name: items} if any(items) else {}
    return found
