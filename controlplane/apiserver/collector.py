"""The controllers that handle deleted objects: with an owner, its dependents are deleted (allocator.md 5.10).

Dependents of which all owners are missing, or are being deleted in the foreground, are deleted; of others, references
to such owners are removed. An owner whose kind is not served might exist: its dependents stay. `foregroundDeletion` and
`orphan` are executed. A namespace that is being deleted is emptied first.
Source: k8s.io/kubernetes pkg/controller/garbagecollector.
"""

from collections.abc import Iterator
from functools import partial

from controlplane.apiserver.finalizers import FOREGROUND, NAMESPACE_FINALIZER, ORPHAN
from controlplane.apiserver.kinds import Kind, Plain
from controlplane.apiserver.optimistic_writes import write_off_loop
from controlplane.apiserver.options import DeleteOptions
from controlplane.apiserver.preconditions import NAMESPACES
from controlplane.apiserver.rest import Rest
from controlplane.apiserver.status import ApiError
from controlplane.apiserver.target import Target

# states of an owner
_EXISTS = "it exists"
_WAITING = "it waits until its dependents are deleted"
_MISSING = "it does not exist"
_UNKNOWN = "it might exist"


class Collector:
    """The garbage collector."""

    def __init__(self, rest: Rest) -> None:
        self._rest, self._store, self._registry = rest, rest.store, rest.registry
        self._seen = 0
        self._live: dict[str, tuple[Kind, Plain]] = {}  # uid -> the object, at the last pass
        self._gone: set[str] = set()  # uids of objects that were removed with their kind

    async def collect(self) -> bool:
        """Make one pass over all objects. Return whether the pass, or another write meanwhile, changed anything."""
        version = self._store.version
        if version == self._seen:
            return False
        objects = list(self._objects())
        before, self._live = self._live, {obj["metadata"]["uid"]: (kind, obj) for kind, obj in objects}
        self._gone |= {uid for uid, (kind, _) in before.items() if uid not in self._live and kind not in self._registry}
        dependents: dict[str, list[tuple[Kind, Plain]]] = {}
        for kind, obj in objects:
            for reference in obj["metadata"].get("ownerReferences") or ():
                dependents.setdefault(reference["uid"], []).append((kind, obj))
        for kind, seen in objects:
            current = self._current(kind, seen)
            if current is None:
                continue
            metadata = current["metadata"]
            if metadata.get("deletionTimestamp"):
                await self._finish(kind, current, dependents.get(metadata["uid"], []))
                continue
            references = metadata.get("ownerReferences") or ()
            known = {each["uid"] for each in seen["metadata"].get("ownerReferences") or ()}
            if not references or not known >= {each["uid"] for each in references}:  # new owners: next pass
                continue
            states = {each["uid"]: self._state(each, metadata) for each in references}
            if _UNKNOWN in states.values():
                continue
            if _EXISTS in states.values():
                self._remove_owners(kind, current, {uid for uid, state in states.items() if state != _EXISTS})
            elif _WAITING in states.values() and (below := dependents.get(metadata["uid"])):
                if not self._unblock_circle(kind, current, below):
                    await self._delete(kind, current, policy="Foreground")
            else:
                await self._delete(kind, current, policy=_policy(metadata))
        self._seen = version
        return self._store.version != version

    async def _finish(self, kind: Kind, obj: Plain, dependents: list[tuple[Kind, Plain]]) -> None:
        finalizers = obj["metadata"].get("finalizers") or ()
        if ORPHAN in finalizers:
            for each_kind, seen in dependents:
                self._remove_owners(each_kind, seen, {obj["metadata"]["uid"]})
            self._release(kind, obj, ORPHAN)
        elif FOREGROUND in finalizers:
            current = (self._current(each_kind, seen) for each_kind, seen in dependents)
            references = (one for each in current if each for one in _references(each, obj["metadata"]["uid"]))
            if not any(one.get("blockOwnerDeletion") for one in references):
                self._release(kind, obj, FOREGROUND)
        if kind.id == NAMESPACES:
            await self._empty_namespace(kind, obj)

    async def _empty_namespace(self, kind: Kind, namespace: Plain) -> None:
        name, is_empty = namespace["metadata"]["name"], True
        for each_kind in self._registry:
            if each_kind.namespaced:
                for obj in list(self._store.objects(each_kind.id, name)):
                    is_empty = False
                    await self._delete(each_kind, obj, policy="Background")
        if not is_empty:
            return
        before = (namespace.get("spec") or {}).get("finalizers") or []
        kept = [each for each in before if each != NAMESPACE_FINALIZER]
        if not kept and not namespace["metadata"].get("finalizers"):
            self._rest.remove(kind, ("", name))
        elif kept != before:  # those of others keep it
            self._rest.put(kind, ("", name), {**namespace, "spec": {"finalizers": kept} if kept else {}})

    async def _delete(self, kind: Kind, obj: Plain, *, policy: str) -> None:
        metadata = obj["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        target = Target(kind, kind.storage, metadata.get("namespace", ""), metadata["name"])
        version = metadata["resourceVersion"]  # with other owners it might stay
        options = DeleteOptions(uid=metadata["uid"], resource_version=version, policy=policy)
        try:
            await write_off_loop(self._rest, target, 0, partial(Rest.delete, target=target, options=options))
        except ApiError:
            return  # deleted or changed meanwhile: the next pass handles it

    def _state(self, reference: Plain, metadata: Plain) -> str:
        """Return the state of an owner of an object with the `metadata`."""
        kind, namespace = self._registry.by_kind(reference["apiVersion"], reference["kind"]), metadata.get("namespace")
        if kind is None and reference["uid"] in self._gone:
            return _MISSING
        if kind is None or (kind.namespaced and not namespace):
            return _UNKNOWN
        found_kind, found = self._live.get(reference["uid"], (None, {}))
        if found_kind is None or found_kind.id != kind.id or found["metadata"]["name"] != reference["name"]:
            return _MISSING
        if kind.namespaced and found["metadata"]["namespace"] != namespace:
            return _MISSING
        return _WAITING if _deletes_dependents(found) else _EXISTS

    def _unblock_circle(self, kind: Kind, obj: Plain, dependents: list[tuple[Kind, Plain]]) -> bool:
        """Unblock the owners of an object if a dependent waits for it, because they can be the same."""
        references = obj["metadata"]["ownerReferences"]
        is_blocking = any(each.get("blockOwnerDeletion") for each in references)
        if not is_blocking or not any(_deletes_dependents(each) for _, each in dependents):
            return False
        references = [{**each, "blockOwnerDeletion": False} for each in references]
        self._rest.replace(kind, {**obj, "metadata": {**obj["metadata"], "ownerReferences": references}})
        return True

    def _remove_owners(self, kind: Kind, seen: Plain, uids: set[str]) -> None:
        obj = self._current(kind, seen)
        if obj is None:
            return
        metadata = {**obj["metadata"]}
        references = metadata.pop("ownerReferences", None) or []
        kept = [each for each in references if each["uid"] not in uids]
        if len(kept) == len(references):
            return
        if kept:
            metadata["ownerReferences"] = kept
        self._rest.replace(kind, {**obj, "metadata": metadata})

    def _release(self, kind: Kind, seen: Plain, finalizer: str) -> None:
        obj = self._current(kind, seen)
        if obj is None:
            return
        metadata = {**obj["metadata"]}
        kept = [each for each in metadata.pop("finalizers", ()) if each != finalizer]
        if kept:
            metadata["finalizers"] = kept
        self._rest.replace(kind, {**obj, "metadata": metadata})

    def _current(self, kind: Kind, seen: Plain) -> Plain | None:
        """Return the current version of an object; None if it was deleted, even if its name is used again."""
        metadata = seen["metadata"]
        found = self._store.get(kind.table, (metadata.get("namespace", ""), metadata["name"]))
        return found if found is not None and found["metadata"]["uid"] == metadata["uid"] else None

    def _objects(self) -> Iterator[tuple[Kind, Plain]]:
        for kind in self._registry:
            if self._store.count(kind.id):  # most kinds have no objects, and a pass follows each write
                for obj in self._store.objects(kind.id):
                    yield kind, obj


def _references(obj: Plain, uid: str) -> list[Plain]:
    """Return the references of an object to one owner."""
    return [each for each in obj["metadata"].get("ownerReferences") or () if each["uid"] == uid]


def _deletes_dependents(obj: Plain) -> bool:
    """Return whether an object is being deleted in the foreground."""
    metadata = obj["metadata"]
    return bool(metadata.get("deletionTimestamp")) and FOREGROUND in (metadata.get("finalizers") or ())


def _policy(metadata: Plain) -> str:
    """Return the policy with which an object without owners is deleted: that of its finalizers."""
    finalizers = metadata.get("finalizers") or ()
    return "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
