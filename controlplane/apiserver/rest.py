"""The verbs: create, update, patch and delete on the stored objects (allocator.md 5.5-5.10).

Pure except for the store, the clock and random names. Objects arrive as JSON values in the version of the request, and
are returned in the stored version. Every refusal is an ApiError.
"""

import json
import secrets
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from controlplane.apiserver.admission import Admission, Write
from controlplane.apiserver.apply import apply, untyped_error
from controlplane.apiserver.decoding import configuration, decode, decode_patched, in_namespace
from controlplane.apiserver.definitions.custom_kinds import KIND_ID as DEFINITIONS
from controlplane.apiserver.definitions.custom_kinds import Definitions
from controlplane.apiserver.explicit_empties import with_written_empties
from controlplane.apiserver.fieldsets import NotInSchema
from controlplane.apiserver.finalizers import finalizers_for, is_finished, with_finalizers
from controlplane.apiserver.go_values import go_text, in_order
from controlplane.apiserver.kinds import Decoded, Key, Kind, Plain, Registry, Schema, WriteContext
from controlplane.apiserver.limit_ranges import check_limits
from controlplane.apiserver.managed import (
    Manager,
    starting_managers,
    track_update,
    with_managed,
    with_managed_of,
    without_managed,
)
from controlplane.apiserver.options import DeleteOptions, WriteOptions, uint
from controlplane.apiserver.patch import (
    APPLY_PATCH,
    JSON_PATCH,
    STRATEGIC_MERGE_PATCH,
    Patch,
    checked_merge_patch,
    json_patch,
    merge_patch,
)
from controlplane.apiserver.pods.admission import admitted, check_admitted
from controlplane.apiserver.pods.grace import PODS, is_graceful, seconds_until_removal
from controlplane.apiserver.pods.profiles import with_armor
from controlplane.apiserver.preconditions import (
    NAMESPACES,
    check_kind,
    check_name,
    check_namespace,
    check_preconditions,
    check_uid,
    check_version,
    uid_conflict,
    without_version,
)
from controlplane.apiserver.quotas import QUOTAS, Charge, Quotas
from controlplane.apiserver.service_addresses import SERVICES, with_addresses
from controlplane.apiserver.status import (
    ApiError,
    added_warnings,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    internal,
    no_such_resource,
    not_found,
    version_in_the_future,
)
from controlplane.apiserver.store import Store
from controlplane.apiserver.stored_size import with_storable_size
from controlplane.apiserver.strategic import shown_patch, strategic_merge
from controlplane.apiserver.target import Target
from controlplane.apiserver.typed_values import check_types
from resourceapi.objects import format_time
from resourceapi.objects.errors import JSON_ESCAPES
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.release import Release

MANAGER = "kube-apiserver"
"""The field manager of the server's own writes."""
BINDINGS = "bindings"
"""The resource of Bindings; as a target's subresource, it stands for a Binding that was sent there."""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_MAX_PREFIX = 58
_TRIES = 8
_UNDELETABLE_NAMESPACES = ("default", "kube-system", "kube-public")
_JOBS = "jobs.batch"
_ORPHANED_PODS_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set"
    " propagationPolicy=Orphan to suppress this warning"
)


class Outcome(NamedTuple):
    """An object after a write, and the warnings for the client."""

    object: Plain
    warnings: tuple[str, ...] = ()
    is_new: bool = False
    is_gone: bool = True


class Rest:
    """Creates, reads, changes and deletes objects."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Callable[[], datetime],
        definitions: Definitions,
        release: Release,
        admission: Admission,
        quotas: Quotas,
    ) -> None:
        self.store, self.registry, self.clock = store, registry, clock
        self._definitions = definitions
        self.release, self._admission, self.quotas = release, admission, quotas

    def get(self, target: Target, resource_version: str = "") -> Plain:
        """Return an object. `resource_version` is a version that the server must have reached."""
        if resource_version:
            try:
                wanted = uint(resource_version)
            except ValueError as error:
                text = f'resourceVersion: Invalid value: "{resource_version}": {error}'
                raise internal(text) from None
            if wanted > self.store.version:
                raise version_in_the_future(wanted, self.store.version)
        found = self.find(target.kind, target.key)
        if found is None:
            raise not_found(target.kind.group, target.kind.plural, target.name)
        return found

    def find(self, kind: Kind, key: Key) -> Plain | None:
        """Return the stored object, or None. Writes read objects with this method."""
        return self.store.get(kind.table, key)

    def may_match_policy(self, kind: Kind) -> bool:
        """Return whether a policy might apply to writes of this kind."""
        return self._admission.may_match_policy(kind)

    def create(
        self, target: Target, value: Plain, options: WriteOptions, manager: str, decoded: Decoded | None = None
    ) -> Outcome:
        """Create an object. `decoded` is the decoded value, if it was decoded already."""
        decoded = decoded or decode(target, value, options)
        with added_warnings(decoded.problems):
            obj = self._with_managed_fields(target, in_namespace(target, decoded.object), None, manager, decoded.sent)
            name = _requested_name(obj)
            check_namespace(self.store, target, name)
            check_kind(target, value["kind"], name)
            return self._create(target, obj, options, decoded)

    def update(
        self, target: Target, value: Plain, options: WriteOptions, manager: str, decoded: Decoded | None = None
    ) -> Outcome:
        """Replace an object or its status. `decoded` is the decoded value, if it was decoded already."""
        decoded = decoded or decode(target, value, options)
        with added_warnings(decoded.problems):
            check_name(target, decoded.object)
            new = in_namespace(target, decoded.object)
            may_create = target.kind.creates_on_update and not target.subresource
            if may_create and self.find(target.kind, target.key) is None:
                return self._create_by_update(target, new, options, manager, decoded)
            return self._update(target, new, options, manager, decoded, sent_kind=value["kind"])

    def _create_by_update(
        self, target: Target, new: Plain, options: WriteOptions, manager: str, decoded: Decoded
    ) -> Outcome:
        """Create an object by a PUT, if its kind allows that. A uid names a missing object; a version is ignored."""
        metadata = {name: item for name, item in new["metadata"].items() if name != "resourceVersion"}
        new = {**new, "metadata": metadata}
        check_namespace(self.store, target, target.name)
        if metadata.get("uid"):
            raise uid_conflict(target, metadata["uid"], "", is_dry_run=options.dry_run)
        return self._create(
            target, self._with_managed_fields(target, new, None, manager, decoded.sent), options, decoded
        )

    def patch(self, target: Target, patch: Patch, options: WriteOptions, manager: str) -> Outcome:
        """Patch an object or its status. An apply can create the object."""
        if patch.type == APPLY_PATCH:
            return self._apply(target, patch.value, options, manager)
        old = self.get(target)
        served = target.kind.rules.encode(old, target.version)
        if target.kind.from_definition:  # the reference has a map here, and writes its members in order
            served = in_order(served)
        is_checked = options.field_validation != "Ignore"

        def shown() -> str:
            """The text in a refusal: the result of the patch, with the members in the order of their type."""
            if patch.type == STRATEGIC_MERGE_PATCH:
                return shown_patch(patch.value, served)
            return _text(work(target.kind.rules.in_order(served)))

        def work(obj: Plain) -> Plain:
            if patch.type == JSON_PATCH:
                return dict(sorted(json_patch(obj, patch.value, is_checked=is_checked).items()))
            merged: Plain = merge_patch(obj, checked_merge_patch(patch.value))
            return merged

        if patch.type == STRATEGIC_MERGE_PATCH:
            value = strategic_merge(served, patch.value, self._schema(target))
        else:
            value = work(served)
        decoded = decode_patched(target, value, options, shown, patch)
        with added_warnings(decoded.problems):
            check_name(target, decoded.object)
            return self._update(target, in_namespace(target, decoded.object), options, manager, decoded)

    def admit_sent(self, target: Target, sent: Plain, *, is_dry_run: bool) -> tuple[str, ...]:
        """Return the warnings of policies for a body that is not stored, such as an Eviction. Raises ApiError."""
        obj = {**sent, "metadata": {**sent["metadata"], "namespace": target.namespace}}
        is_collection = target.subresource == BINDINGS  # a resource of its own, beside the pods' subresource
        where = (target.namespace, target.name, "" if is_collection else target.subresource)
        about = (target.kind, target.version, *where, target.caller.user, obj, None, is_dry_run)
        return self._admission.check(Write("CREATE", *about, is_sent=True, sent_to=BINDINGS if is_collection else ""))

    def delete(
        self, target: Target, options: DeleteOptions, *, is_admitted: bool = False, is_named: bool = True
    ) -> Outcome:
        """Delete an object, or mark it as deleted if finalizers delay its removal.

        `is_admitted`: policies have been applied to the request already, which was not a DELETE. `is_named`: the
        request names the object; that of a collection does not, also for policies.
        """
        old = self.get(target)
        if target.kind.id == NAMESPACES and target.name in _UNDELETABLE_NAMESPACES:
            raise forbidden("", NAMESPACES, target.name, "this namespace may not be deleted")
        check_preconditions(target, old, options)
        asked = target if is_named else target._replace(name="")
        warnings = () if is_admitted else self._admit(asked, None, old, is_dry_run=options.dry_run)
        if target.kind.id == _JOBS and not options.policy and options.orphan is None:
            warnings += (_ORPHANED_PODS_WARNING,)
        finalizers = finalizers_for(target.kind, old, options)
        is_namespace = target.kind.id == NAMESPACES  # the collector empties it first
        grace = seconds_until_removal(self.store, target.kind, old, options)
        is_gone = not finalizers and not is_namespace and not grace
        if is_gone and not is_graceful(target.kind):
            return Outcome(old if options.dry_run else self.remove(target.kind, target.key), warnings)
        metadata = {**old["metadata"]}
        before = metadata.get("deletionGracePeriodSeconds")
        if not metadata.get("deletionTimestamp") or (before is not None and grace < before):  # never later than it was
            metadata["deletionTimestamp"] = format_time(self.clock() + timedelta(seconds=grace))
            if not is_namespace:
                metadata["deletionGracePeriodSeconds"] = grace
            if metadata.get("generation") and "deletionTimestamp" not in old["metadata"]:
                metadata["generation"] += 1
        marked = {**old, "metadata": with_finalizers(metadata, finalizers)}
        if is_namespace:
            marked["status"] = {**(marked.get("status") or {}), "phase": "Terminating"}
        if not json_equal(marked, old) and not options.dry_run:
            marked = self.put(target.kind, target.key, marked)
        if is_gone and not options.dry_run:  # watchers receive both changes
            marked = self.remove(target.kind, target.key)
        return Outcome(marked, warnings, is_gone=is_gone)

    def _apply(self, target: Target, config: Any, options: WriteOptions, name: str) -> Outcome:
        old = self.find(target.kind, target.key)
        if old is None and target.subresource:  # an update there: checked before the configuration
            raise not_found(target.kind.group, target.kind.plural, target.name)
        config = configuration(target, config, self.release)
        metadata = config.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise untyped_error(config, f".metadata: expected map, got &{{{go_text(metadata)}}}")
        if metadata.get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        rules = target.kind.rules
        empty = rules.empty(target.version)
        empty.setdefault("metadata", {})
        live = rules.encode(old, target.version) if old is not None else empty
        manager = Manager(name, "Apply", "", target.subresource)
        merged = apply(
            live,
            empty,
            config,
            self._schema(target),
            starting_managers(old or empty, old, target.subresource),
            manager,
            target.api_version,
            self.clock(),
            force=options.force,
            ignored=self._unowned_fields(target),
        )
        check_name(target, merged)
        managed = merged["metadata"].get("managedFields")
        decoded = decode_patched(target, without_managed(merged), options, lambda: go_text(config), None, config)
        obj = in_namespace(target, decoded.object)
        obj = {**obj, "metadata": {**obj["metadata"], **({"managedFields": managed} if managed else {})}}
        if old is not None:
            return self.save(target, obj, old, options, decoded)
        if metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
            raise conflict(target.kind.group, target.kind.plural, target.name, why)
        check_namespace(self.store, target, target.name)
        obj["metadata"].pop("resourceVersion", None)
        return self._create(target, obj, options, decoded)

    def _create(self, target: Target, obj: Plain, options: WriteOptions, decoded: Decoded) -> Outcome:
        kind = target.kind
        metadata = {**obj["metadata"]}
        for name in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": format_time(self.clock())}
        if metadata.get("generateName") and not metadata.get("name"):
            metadata["name"] = self._generated(kind, target.namespace, metadata["generateName"])
        obj = {**obj, "metadata": metadata}
        context = self._context(target, decoded.sent)
        if kind.id == PODS:
            pod = admitted(self.store, obj, metadata["creationTimestamp"], release=self.release)
            obj, profile_warnings = with_armor(pod)
            context.warnings.extend(profile_warnings)
        if kind.id == SERVICES:
            obj = with_addresses(self.store, obj, None, is_dry_run=options.dry_run)
        new = kind.rules.create(obj, context)
        name = new["metadata"]["name"]
        if not options.dry_run:
            new = without_version(new)
        key = (target.namespace, name)
        warnings = (*decoded.problems, *context.warnings, *kind.rules.warnings(new))
        warnings += self._admit(target, new, None, is_dry_run=options.dry_run)
        charged = self.updated_quotas(Charge(kind, target.namespace, "", new, None))
        there = self.find(kind, key)
        if there is not None:
            is_generated, is_deleted = bool(metadata.get("generateName")), "deletionTimestamp" in there["metadata"]
            raise already_exists(kind.group, kind.plural, name, deleting=is_deleted, is_generated=is_generated)
        if options.dry_run:
            return Outcome(new, warnings, is_new=True)
        return Outcome(self.put(kind, key, with_storable_size(new), charged), warnings, is_new=True)

    def _update(
        self,
        target: Target,
        new: Plain,
        options: WriteOptions,
        manager: str,
        decoded: Decoded,
        *,
        sent_kind: str | None = None,
    ) -> Outcome:
        """Store a changed object. `sent_kind` is the kind in the body if the whole object was sent."""
        old = self.get(target)
        uid = new["metadata"].get("uid")
        if sent_kind is not None and uid:
            check_uid(target, old, uid, is_dry_run=options.dry_run)
        if sent_kind is not None and not target.subresource:  # there, everything but the status stays
            check_version(target, new["metadata"].get("resourceVersion") or "", old["metadata"]["resourceVersion"])
            check_kind(target, sent_kind, target.name)
        return self.save(
            target, self._with_managed_fields(target, new, old, manager, decoded.sent), old, options, decoded
        )

    def save(self, target: Target, new: Plain, old: Plain, options: WriteOptions, decoded: Decoded) -> Outcome:
        """Store a changed object if its rules and the policies accept it. Immutable members keep their values."""
        kind, current = target.kind, old["metadata"]["resourceVersion"]
        check_version(target, new["metadata"].get("resourceVersion") or "", current)
        new = _with_unchangeable_fields(new, old)
        change = kind.rules.update_status if target.subresource else kind.rules.update
        context = self._context(target, decoded.sent)
        if kind.id == SERVICES and not target.subresource:
            new = with_addresses(self.store, new, old, is_dry_run=options.dry_run)
        saved = change(new, old, context)
        warnings = (*decoded.problems, *context.warnings, *kind.rules.warnings(saved))
        warnings += self._admit(target, saved, old, is_dry_run=options.dry_run)
        charged = self.updated_quotas(Charge(kind, target.namespace, target.subresource, saved, old))
        if _is_unchanged(saved, old):
            return Outcome(old, warnings)
        if options.dry_run:
            return Outcome(saved, warnings)
        if is_finished(saved) and (kind.id != NAMESPACES or not saved["spec"].get("finalizers")):
            self.remove(kind, target.key)
            return Outcome(saved, warnings)
        return Outcome(self.put(kind, target.key, with_storable_size(saved), charged), warnings)

    def replace(self, kind: Kind, obj: Plain) -> None:
        """Store an object that a controller changed. If only finalizers kept it and they are gone, it is removed.

        A namespace is never removed here: it stays until it has been emptied.
        """
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if is_finished(obj) and kind.id != NAMESPACES:
            self.remove(kind, key)
        else:
            self.put(kind, key, obj)

    def updated_quotas(self, charge: Charge) -> list[Plain]:
        """Return the quotas that a write changes, with their new usage. Raises ApiError if one is exceeded."""
        return self.quotas.updated_quotas(charge)

    def publish_usage(self, quota: Plain, manager: str) -> None:
        """Write the usage to a quota's status."""
        kind = self.registry.find("", "v1", QUOTAS)
        assert kind is not None, "it is built in"
        target = Target(kind, "v1", quota["metadata"]["namespace"], quota["metadata"]["name"], "status")
        self.update(target, {"apiVersion": "v1", "kind": kind.kind, **quota}, WriteOptions(), manager)

    def put(self, kind: Kind, key: Key, obj: Plain, charged: Sequence[Plain] = ()) -> Plain:
        """Store an object, and the charged quotas; return the object with its new version.

        Raises ApiError if the kind was removed meanwhile.
        """
        if kind not in self.registry:  # its objects would reappear if the kind is added again
            raise no_such_resource()
        for quota in charged:
            self.publish_usage(quota, MANAGER)
        stored = self.store.put(kind.table, key, obj)
        if kind.id == DEFINITIONS:
            self._definitions.changed(stored)
        return stored

    def remove(self, kind: Kind, key: Key) -> Plain:
        """Remove an object, whatever its finalizers. Return its last state, which watches show too."""
        gone = self.store.remove(kind.table, key)
        if kind.id == DEFINITIONS:
            self._definitions.removed(gone)
        return gone

    def _with_managed_fields(
        self, target: Target, new: Plain, old: Plain | None, manager: str, sent: Plain | None
    ) -> Plain:
        """The object with managedFields after this write. `sent` has the places where empty values were sent."""
        kind = target.kind

        def in_version(api_version: str) -> tuple[Plain, Plain, Schema] | None:
            version = api_version.rpartition("/")[2]
            served = kind.served(version)
            before = kind.rules.encode(old, version) if old is not None else kind.rules.empty(version)
            return (before, kind.rules.encode(new, version), served.schema) if served is not None else None

        served = kind.served(kind.storage) or kind.versions[0]
        before, after, schema = old if old is not None else kind.rules.empty(kind.storage), new, served.schema
        if kind.stored_as or kind.converts:  # with other fields
            before, after, schema = in_version(target.api_version) or (before, after, schema)
        try:
            if kind.from_definition and target.subresource:  # the other parts of the body are ignored later
                check_types(without_managed(after), schema)
            managers = track_update(
                before,
                with_written_empties(after, sent),
                schema,
                starting_managers(new, old, target.subresource),
                Manager(manager, "Update", target.api_version, target.subresource),
                self.clock(),
                is_new=old is None,
                ignored=self._unowned_fields(target),
                in_version=in_version if kind.converts else None,
            )
        except NotInSchema:
            return with_managed_of(new, old if self.release.keeps_owners_of_untyped else None)
        return with_managed(new, managers)

    def _context(self, target: Target, sent: Plain | None) -> WriteContext:
        return WriteContext(target.version, self.release, [], target.caller, target.subresource, sent)

    def _admit(self, target: Target, new: Plain | None, old: Plain | None, *, is_dry_run: bool) -> tuple[str, ...]:
        """The warnings of policies. Raises ApiError if a policy, or another admission check, refuses the write."""
        operation = "DELETE" if new is None else "UPDATE" if old is not None else "CREATE"
        name = target.name or ((new or {}).get("metadata") or {}).get("name", "")
        if new is not None:
            check_limits(self.store, target.kind, target.subresource, new, old)
        if new is not None and not target.subresource:
            check_admitted(self.store, target.kind.id, new, old)
        where, user = (target.namespace, name, target.subresource), target.caller.user
        return self._admission.check(
            Write(operation, target.kind, target.version, *where, user, new, old, is_dry_run=is_dry_run)
        )

    def _schema(self, target: Target) -> Any:
        served = target.kind.served(target.version)
        assert served is not None, "the path was found by it"
        return served.schema

    def _unowned_fields(self, target: Target) -> tuple[str, ...]:
        """The top-level fields that a write cannot change, and therefore does not own."""
        if target.subresource in target.kind.rules.spec_parts:
            return ("status",)
        if target.subresource:
            release, is_custom = self.release, target.kind.from_definition
            is_owned = release.owns_custom_metadata_by_status if is_custom else release.owns_metadata_by_status
            return ("spec",) if is_owned or target.kind.rules.takes_metadata_with_status else ("metadata", "spec")
        return ("status",) if target.kind.status else ()

    def _generated(self, kind: Kind, namespace: str, prefix: str) -> str:
        for _ in range(_TRIES):
            name = prefix[:_MAX_PREFIX] + "".join(secrets.choice(_ALPHABET) for _ in range(5))
            if self.find(kind, (namespace, name)) is None:
                return name
        raise ApiError(409, "the server was not able to generate a unique name for the object", "AlreadyExists")


def _requested_name(obj: Plain) -> str:
    """The name of a new object, or the prefix from which the server generates one."""
    metadata = obj["metadata"]
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _with_unchangeable_fields(new: Plain, old: Plain) -> Plain:
    """The new object with the old values of members that a client cannot change, or can leave out."""
    before, metadata = old["metadata"], {**new["metadata"]}
    metadata.pop("selfLink", None)
    metadata["resourceVersion"] = before["resourceVersion"]
    for name in ("creationTimestamp", "generation"):
        metadata.pop(name, None)
        if name in before:
            metadata[name] = before[name]
    metadata.setdefault("uid", before["uid"])
    if before.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = before["deletionTimestamp"]
        if metadata.get("deletionGracePeriodSeconds") is None:
            metadata["deletionGracePeriodSeconds"] = before.get("deletionGracePeriodSeconds")
    return {**new, "metadata": metadata}


def _is_unchanged(new: Plain, old: Plain) -> bool:
    """Return whether nothing changed except the times of managers."""
    if not json_equal(without_managed(new), without_managed(old)):
        return False
    after, before = (
        [{**entry, "time": ""} for entry in obj["metadata"].get("managedFields") or ()] for obj in (new, old)
    )
    return after == before


def _text(value: Any) -> str:
    """A value as Go writes it in JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(JSON_ESCAPES)
