"""Rules of kinds whose objects are JSON values: core/v1's, and those that definitions and other packages add.

With a structural schema, unknown members are dropped, defaults are filled in, and the rest is validated. Parts that the
schema leaves open are stored unchanged.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from controlplane.apiserver import protobuf
from controlplane.apiserver.definitions.embedded import check_embedded, coerce, has_embedded
from controlplane.apiserver.definitions.expressions import check_object, has_rules
from controlplane.apiserver.definitions.pruning import NEW, check_items, prune, with_defaults, without_nulls
from controlplane.apiserver.definitions.schema_validation import check
from controlplane.apiserver.explicit_empties import lost_empties, with_empties
from controlplane.apiserver.go_values import in_order, numbers_as_read
from controlplane.apiserver.kinds import Decoded, Plain, Rules, Schema, WriteContext
from controlplane.apiserver.status import added_warnings, go_name, invalid
from resourceapi.objects import DecodeError, ErrorList, ObjectMeta, from_dict, to_dict, without_unknown
from resourceapi.objects.codec import json_fields
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.metadata_rules import (
    finalizer_labels,
    finalizer_names,
    metadata_on_create,
    metadata_on_update,
)
from resourceapi.objects.strict import problems

_TYPE = ("apiVersion", "kind", "metadata")
_WITH_METADATA = ("", "apps", "autoscaling", "batch", "networking.k8s.io", "policy")
_WITHOUT_METADATA = (("networking.k8s.io", "ServiceCIDR"),)
_FREE_FINALIZERS = (("coordination.k8s.io", "Lease"), ("apiextensions.k8s.io", "CustomResourceDefinition"))
_COUNTED_LABELS = (("discovery.k8s.io", "EndpointSlice"),)  # changes of these labels increase the generation
_FIELD = re.compile(r"(Go struct field \w+\.)")
Check = Callable[[ErrorList, Plain, Plain | None], None]
"""Adds the errors of a new or changed object."""
Warn = Callable[[Plain, Plain | None], list[str]]
"""Returns the warnings for a new or changed object, which are no errors."""
Advance = Callable[[Plain, Plain | None], Plain]
"""Returns a new or changed object with the values that the server counts in it."""


class Part(NamedTuple):
    """A part of the spec with its own subresource: how a write changes the old object, and its rules.

    `takes_metadata`: such a write can change labels and other metadata.
    """

    take: Callable[[Plain, Plain], Plain]
    check: Check
    takes_metadata: bool = False


def as_written(new: Plain, old: Plain) -> Plain:
    """Return a part unchanged."""
    del old
    return new


class UnstructuredRules(Rules):
    """The rules of one kind whose objects are JSON values.

    `fill` fills in the kind's defaults. `drop` removes what the release does not have, once the client is known.
    `advance` updates what the server counts. `check` adds the kind's own rules, `warn` returns warnings, and
    `name_rule` returns the faults of a name. Members at the paths `kept` are stored although upstream's type lacks
    them.

    A create cannot set the status, except with `has_status_at_first`. `own_schemas` are a definition's schemas of the
    whole object, including its metadata.
    """

    def __init__(
        self,
        group: str,
        kind: str,
        storage: str,
        schemas: Mapping[str, Schema],
        *,
        namespaced: bool,
        status: bool = False,
        counts_generations: bool = False,
        is_validated: bool = False,
        has_status_at_first: bool = False,
        fill: Callable[[Plain], Plain] = lambda obj: obj,
        advance: Advance | None = None,
        check: Check | None = None,
        name_rule: Callable[[str], list[str]] | None = None,
        kept: frozenset[str] = frozenset(),
        own_schemas: Mapping[str, Schema] | None = None,
        warn: Warn | None = None,
        put_back: Callable[[Plain, Plain], None] | None = None,
        parts: Mapping[str, Part] | None = None,
        drop: Callable[[Plain], Plain] | None = None,
        status_part: Part | None = None,
    ) -> None:
        self._status_part = status_part
        self._drop = drop
        self._parts = parts or {}
        self.spec_parts = frozenset(self._parts)
        self._group, self._kind, self._storage = group, kind, storage
        self._schemas, self._own_schemas = schemas, own_schemas or schemas
        self._namespaced = namespaced
        self._status = status
        self._counts_generations = counts_generations
        self._is_validated = is_validated
        self._has_status_at_first = has_status_at_first
        self._fill, self._advance = fill, advance
        self._check, self._warn, self._name_rule = check, warn, name_rule
        self.kept = kept
        self._put_back = put_back
        self._has_rules = is_validated and has_rules(schemas[storage])
        self._has_embedded = is_validated and any(map(has_embedded, schemas.values()))
        # built-in kinds allow it: network plugins annotate nodes so
        self.takes_metadata_with_status = (
            group in _WITH_METADATA and (group, kind) not in _WITHOUT_METADATA and not is_validated
        )
        self._checks_finalizers = not is_validated and (group, kind) not in _FREE_FINALIZERS

    def decode(self, value: Plain, version: str) -> Decoded:
        return self._decode(value, version, takes_nulls=False)

    def decode_applied(self, value: Plain, version: str) -> Decoded:
        return self._decode(value, version, takes_nulls=True)

    def _decode(self, value: Plain, version: str, *, takes_nulls: bool) -> Decoded:
        """`takes_nulls`: a custom resource can have nulls that its schema forbids; these are reported later."""
        metadata = value.get("metadata")
        if not self._is_validated and metadata is not None and not isinstance(metadata, dict):
            why = f"json: cannot unmarshal {go_name(metadata)} into Go struct field {self._kind}.metadata"
            raise DecodeError(f"{why} of type v1.ObjectMeta")
        if self._is_validated:  # the reference has a map here, and writes its members in order
            metadata = in_order(metadata)
        try:
            record = from_dict(ObjectMeta, metadata if metadata is not None else {})
        except DecodeError as error:
            if self._is_validated:
                raise
            raise DecodeError(_FIELD.sub(r"\1metadata.", error.reason, count=1)) from None
        found = [_under_metadata(text) for text in problems(record, metadata)] if isinstance(metadata, dict) else []
        rest = {name: item for name, item in value.items() if name not in _TYPE}
        obj = self._named(self._storage)
        if self._is_validated:
            schema = self._schemas[version]
            pruned, unknown = prune(numbers_as_read(msgspec.to_builtins(rest)), schema)
            pruned = pruned if takes_nulls else without_nulls(pruned, schema)
            found += [f'unknown field "{path}"' for path in sorted(unknown)]
            if self._has_embedded:
                of_embedded: list[str] = []
                fault = coerce(pruned, schema, "", of_embedded)
                if fault is not None:
                    raise DecodeError(str(fault))
                found += [f'unknown field "{path}"' for path in sorted(of_embedded)]
            known, sent = with_defaults(pruned, schema), None
        else:
            read = protobuf.known_members(self._message, rest, found, self.kept)
            known = self._as_type(read)
            sent = lost_empties(read, known)
            if self._put_back is not None:
                self._put_back(known, read)
        obj |= {"metadata": to_dict(without_unknown(record))} | known
        return Decoded(self._fill(obj), tuple(found), sent)

    def encode(self, obj: Plain, version: str) -> Plain:
        if not self._is_validated:
            metadata = obj["metadata"]
            obj = {**obj, "metadata": {name: metadata[name] for name in json_fields(ObjectMeta) if name in metadata}}
        return obj if version == self._storage else {**obj, "apiVersion": self._api_version(version)}

    def in_order(self, obj: Plain) -> Plain:
        if self._is_validated:
            return obj
        ordered = self._as_type({name: item for name, item in obj.items() if name not in _TYPE})
        if "status" not in obj:  # older releases have kinds without the status of newer ones
            ordered.pop("status", None)
        typed: Plain = _with_types(ordered, obj)
        return {name: obj[name] for name in _TYPE if name in obj} | typed

    def empty(self, version: str) -> Plain:
        return self._named(version) | ({} if self._is_validated else self._as_type({}))

    def create(self, obj: Plain, context: WriteContext) -> Plain:
        if self._status and not self._has_status_at_first:
            blank = {name: item for name, item in self.empty(self._storage).items() if name == "status"}
            obj = self._fill({name: item for name, item in obj.items() if name != "status"} | blank)
        if self._drop is not None:
            obj = self._drop(obj)
        if self._counts_generations:
            obj = _with_generation(obj, 1)
        if self._advance is not None:
            obj = self._advance(obj, None)
        errors = ErrorList()
        metadata = from_dict(ObjectMeta, obj["metadata"])
        metadata_on_create(errors, metadata, context.release, namespaced=self._namespaced, name_rule=self._name_rule)
        if self._checks_finalizers:
            finalizer_names(errors, metadata)
        self._refuse(errors, obj, None, context)
        if self._warn is not None:
            context.warnings.extend(self._warn(obj, None))
        return self._as_stored(obj)

    def update(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        if self._status:
            new = {name: item for name, item in new.items() if name != "status"}
            if "status" in old:
                new["status"] = old["status"]
        if self._drop is not None:
            new = self._drop(new)
        if self._advance is not None:
            new = self._advance(new, old)
        if self._counts_generations:
            ours = {*new, *old} - {*_TYPE, "status"}
            stored = self._as_stored(new)
            changed = not all(json_equal(stored.get(name), old.get(name)) for name in ours)
            if (self._group, self._kind) in _COUNTED_LABELS:
                changed |= not json_equal(new["metadata"].get("labels"), old["metadata"].get("labels"))
            new = _with_generation(new, old["metadata"].get("generation", 0) + changed)
        return self._checked_update(new, old, context)

    def update_status(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        part = self._parts.get(context.subresource)
        takes_metadata = self.takes_metadata_with_status if part is None else part.takes_metadata
        metadata = {**(new if takes_metadata else old)["metadata"]}
        for name, source in (("managedFields", new), ("resourceVersion", new), ("ownerReferences", old)):
            metadata.pop(name, None)
            if name in source["metadata"]:
                metadata[name] = source["metadata"][name]
        result = {**old, "metadata": to_dict(from_dict(ObjectMeta, metadata))}
        if part is not None:
            result = {**part.take(self._drop(new) if self._drop else new, old), "metadata": result["metadata"]}
            if self._counts_generations:
                changed = not json_equal(self._as_stored(result).get("spec"), old.get("spec"))
                result = _with_generation(result, old["metadata"].get("generation", 0) + changed)
            return self._checked_update(result, old, context, check=part.check)
        result.pop("status", None)
        if "status" in new:
            result["status"] = new["status"]
        if self._status_part is None:
            return self._checked_update(result, old, context, is_status=True)
        result = self._status_part.take(result, old)
        return self._checked_update(result, old, context, is_status=True, check=self._status_part.check)

    def warnings(self, obj: Plain) -> list[str]:
        del obj
        return []

    def _checked_update(
        self, new: Plain, old: Plain, context: WriteContext, *, is_status: bool = False, check: Check | None = None
    ) -> Plain:
        errors = ErrorList()
        after, before = (from_dict(ObjectMeta, obj["metadata"]) for obj in (new, old))
        metadata_on_update(errors, after, before, context.release)
        finalizer_labels(errors, after)
        if self._checks_finalizers:
            finalizer_names(errors, after)
        self._refuse(errors, new, old, context, check=check, is_status=is_status)
        if self._warn is not None and not is_status:
            context.warnings.extend(self._warn(new, old))
        return self._as_stored(new)

    def _as_stored(self, obj: Plain) -> Plain:
        """The object without the empty members that were put back for the rules."""
        if self._put_back is None:
            return obj
        kept = {name: obj[name] for name in (*_TYPE, "metadata") if name in obj}
        return kept | self._as_type({name: item for name, item in obj.items() if name not in kept})

    @functools.cached_property
    def _message(self) -> str:
        message = protobuf.message_of(self._api_version(self._storage), self._kind)
        assert message is not None, "every built-in kind has one"
        return message

    def _as_type(self, known: Plain) -> Plain:
        """The members as upstream's type holds them. Raises DecodeError for values that it cannot hold."""
        held = protobuf.without_omitted_members(self._message, known)
        held.pop("metadata", None)
        for path in self.kept:
            _put_back(held, known, path.split("."))
        return held

    def _refuse(
        self,
        errors: ErrorList,
        new: Plain,
        old: Plain | None,
        context: WriteContext,
        *,
        check: Check | None = None,
        is_status: bool = False,
    ) -> None:
        """`check` replaces the kind's own rules."""
        if self._is_validated:
            self._check_schema(errors, new, old, is_status=is_status)
        check = check or self._check
        if check is not None:
            check(errors, with_empties(new, context.sent), old)
        if self._is_validated:
            self._check_contents(errors, new, old, context)
        if self._has_rules:
            check_object(errors, self._schemas[self._storage], new, old, context)
        if errors:
            with added_warnings(tuple(context.warnings)):
                raise invalid(self._group, self._kind, new["metadata"].get("name", ""), errors)

    def _check_schema(self, errors: ErrorList, new: Plain, old: Plain | None, *, is_status: bool) -> None:
        schema = self._own_schemas[self._storage]
        after, before = new, old or {}
        if not is_status:
            check(errors, after, schema, before=NEW if old is None else before)
        elif "status" in after:  # the status is validated by itself, so the paths of its errors need a prefix
            found, of_status = ErrorList(), schema.get("properties", {}).get("status", {})
            check(found, after["status"], of_status, before=before.get("status", NEW))
            for each in found:
                path = "status" if each.path in ("", "<nil>") else f"status.{each.path}"
                errors.append(each._replace(path=path))

    def _check_contents(self, errors: ErrorList, new: Plain, old: Plain | None, context: WriteContext) -> None:
        """Check what a schema requires beyond the form of values: embedded objects, and items that are unique."""
        schema = self._schemas[self._storage]
        after, before = ({name: x for name, x in (obj or {}).items() if name not in _TYPE} for obj in (new, old))
        if self._has_embedded:
            check_embedded(errors, after, schema, "", context.release)
        twice, known = ErrorList(), ErrorList()
        check_items(twice, after, schema)
        check_items(known, before, schema)
        if not known:  # existing duplicates can stay
            errors.extend(twice)

    def _api_version(self, version: str) -> str:
        return f"{self._group}/{version}" if self._group else version

    def _named(self, version: str) -> Plain:
        return {"apiVersion": self._api_version(version), "kind": self._kind}


def _put_back(held: Any, known: Any, steps: list[str]) -> None:
    if isinstance(known, list):
        for each in zip(held or (), known, strict=True):  # Go can hold an empty list as none
            _put_back(*each, steps)
    elif isinstance(known, dict) and known.get(steps[0]) is not None:
        if not steps[1:]:
            held[steps[0]] = msgspec.to_builtins(known[steps[0]])
        elif steps[0] in held:
            _put_back(held[steps[0]], known[steps[0]], steps[1:])


def _under_metadata(text: str) -> str:
    return text.replace('field "', 'field "metadata.', 1)


def _with_generation(obj: Plain, generation: int) -> Plain:
    metadata: dict[str, Any] = to_dict(from_dict(ObjectMeta, {**obj["metadata"], "generation": generation}))
    return {**obj, "metadata": metadata}


def _with_types(ordered: Any, obj: Any) -> Any:
    """A value whose embedded objects have the apiVersion and kind of `obj`; protobuf messages do not contain them."""
    if isinstance(ordered, dict) and isinstance(obj, dict):
        types = {name: item for name, item in obj.items() if name in _TYPE[:2] and name not in ordered}
        return types | {name: _with_types(item, obj.get(name)) for name, item in ordered.items()}
    if isinstance(ordered, list) and isinstance(obj, list) and len(ordered) == len(obj):
        return [_with_types(*pair) for pair in zip(ordered, obj, strict=True)]
    return ordered
