"""Events of events.k8s.io: those of core/v1 with other field names. Each group also serves the events of the other.

Source: k8s.io/kubernetes, pkg/apis/events/v1/conversion.go.
"""

import re

from controlplane.apiserver import columns, protobuf
from controlplane.apiserver.kinds import Column, Decoded, Kind, Plain, Served
from controlplane.apiserver.message_schemas import kind_schema
from controlplane.apiserver.rules.event_rules import check_strict_event
from controlplane.apiserver.unstructured_rules import UnstructuredRules

GROUP = "events.k8s.io"
_API_VERSION = f"{GROUP}/v1"
_IN_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_IN_EVENTS = {core: name for name, core in _IN_CORE.items()}
_LEFT_OUT = ("reportingController", "reportingInstance")
"""Fields that core/v1 also shows when they are empty."""
_TYPE = ("apiVersion", "kind", "metadata")
_NAMED_IN_CORE = re.compile(rf'(?<=field ")({"|".join(_IN_EVENTS)})\b')
_ABOUT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class EventRules(UnstructuredRules):
    """The rules of core/v1's events, in whose form these events are stored."""

    def decode(self, value: Plain, version: str) -> Decoded:
        protobuf.encode(value | {"apiVersion": _API_VERSION, "kind": "Event"})
        decoded = super().decode(_renamed(value, _IN_CORE, "v1"), version)
        return decoded._replace(
            problems=tuple(_NAMED_IN_CORE.sub(_name_in_events_v1, text) for text in decoded.problems)
        )

    def decode_applied(self, value: Plain, version: str) -> Decoded:
        return self.decode(value, version)

    def encode(self, obj: Plain, version: str) -> Plain:
        return _as_events_v1(super().encode(obj, version))

    def in_order(self, obj: Plain) -> Plain:
        held = {name: item for name, item in obj.items() if name not in _TYPE}
        ordered = protobuf.without_omitted_members(protobuf.message_of(_API_VERSION, "Event") or "", held)
        return {name: obj[name] for name in ("apiVersion", "kind")} | ordered | {"metadata": obj["metadata"]}

    def empty(self, version: str) -> Plain:
        return _as_events_v1(super().empty(version))


def events_kind(shown: tuple[Column, ...]) -> Kind:
    """Return the kind. `shown` are core/v1's columns."""
    core, own = (kind_schema(version, "Event", "What happened to an object.") for version in ("v1", _API_VERSION))
    fields = {f"regarding.{name}": columns.at("involvedObject", name) for name in _ABOUT}
    return Kind(
        group=GROUP,
        plural="events",
        kind="Event",
        namespaced=True,
        versions=(Served("v1", own),),
        storage="v1",
        rules=EventRules("", "Event", "v1", {"v1": core}, namespaced=True, check=check_strict_event),
        short_names=("ev",),
        columns=shown,
        fields=fields
        | {"reason": columns.at("reason"), "type": columns.at("type")}
        | {"reportingController": columns.at("reportingComponent")},
        hides_name=True,
        stored_as="events",
        hashed_as="/v1",
        creates_on_update=True,
    )


def _as_events_v1(obj: Plain) -> Plain:
    """A core/v1 event in the form of this group."""
    renamed = _renamed(obj, _IN_EVENTS, _API_VERSION)
    return {name: item for name, item in renamed.items() if name not in _LEFT_OUT or item != ""}


def _name_in_events_v1(found: re.Match[str]) -> str:
    return _IN_EVENTS[found[1]]


def _renamed(obj: Plain, names: dict[str, str], api_version: str) -> Plain:
    return {names.get(name, name): item for name, item in obj.items()} | {"apiVersion": api_version}
