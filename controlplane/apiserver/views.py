"""Views of stored objects in answers: the object in a version, its metadata only, or a row of a table.

Source: k8s.io/apiserver pkg/endpoints/handlers/response.go.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime

from controlplane.apiserver import tables
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.negotiation import Form, written_event
from controlplane.apiserver.status import added_warnings
from controlplane.apiserver.target import Target
from controlplane.apiserver.watching import Change

_OF_LISTS = "PartialObjectMetadataList"


class View:
    """The view of a target's objects that a request asks for."""

    def __init__(self, form: Form, target: Target, include: str, clock: Callable[[], datetime]) -> None:
        """`include` is how much of an object a table's row has. Raises ApiError if it is invalid."""
        if form.view == "Table":
            tables.check_include(include)
        self._form = form
        self._target = target
        self._include = include
        self._clock = clock

    def one(self, obj: Plain, warnings: tuple[str, ...]) -> Plain:
        """Return an object in this view. Raises ApiError, with the warnings, for a view of lists."""
        kind, view = self._target.kind, self._form.view
        if view == "Table":
            metadata = {name: text for name, text in obj["metadata"].items() if name == "resourceVersion"}
            return self._table([obj], metadata)
        if view:
            with added_warnings(warnings):
                tables.check_view(kind, view, is_list=False)
            return tables.partial(obj, self._form.view_version)
        return kind.rules.encode(obj, self._target.version)

    def many(self, objects: list[Plain], metadata: Plain) -> Plain:
        """Return a list of objects in this view. Raises ApiError for a view of single objects."""
        kind, view = self._target.kind, self._form.view
        if view == "Table":
            return self._table(objects, metadata)
        if view:
            tables.check_view(kind, view, is_list=True)
            return tables.partial_list(objects, metadata, self._form.view_version)
        if kind.from_definition:
            metadata = {"continue": "", **metadata}
        items = [kind.rules.encode(obj, self._target.version) for obj in objects]
        if not kind.from_definition:
            items = [
                {name: item for name, item in each.items() if name not in ("kind", "apiVersion")} for each in items
            ]
        return {
            "kind": kind.list_kind_name,
            "apiVersion": self._target.api_version,
            "metadata": metadata,
            "items": items,
        }

    async def frames(self, changes: AsyncIterator[Change]) -> AsyncIterator[bytes]:
        """Yield the answer of a watch, a line or a frame for each event."""
        is_first = True
        async with contextlib.aclosing(changes) as stream:  # type: ignore[type-var]  # an async generator
            async for change in stream:
                if self._form.view == _OF_LISTS:  # an event is not a list: the reference server ends the stream too
                    return
                yield written_event({"type": change.type, "object": self._event(change, is_first)}, self._form)
                is_first = False

    def _event(self, change: Change, is_first: bool) -> Plain:
        kind, version, obj = self._target.kind, self._target.version, change.object
        if change.type == "ERROR":
            return obj
        if change.type == "BOOKMARK" and not self._form.view:
            return _typed_first(kind.rules.empty(version) | {"metadata": obj["metadata"]})
        if self._form.view == "Table":
            metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return self._table([] if change.type == "BOOKMARK" else [obj], metadata, with_columns=is_first)
        if self._form.view:
            return tables.partial(obj, self._form.view_version)
        return kind.rules.encode(obj, version)

    def _table(self, objects: list[Plain], metadata: Plain, *, with_columns: bool = True) -> Plain:
        form, target = self._form, self._target
        return tables.table(
            target.kind,
            objects,
            metadata,
            self._include,
            form.view_version,
            target.version,
            self._clock(),
            with_columns=with_columns,
        )


def _typed_first(obj: Plain) -> Plain:
    return {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": obj["metadata"]} | obj
