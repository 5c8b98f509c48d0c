"""What delays the removal of a deleted object: its own finalizers, and those that the delete request adds.

Source: k8s.io/apiserver pkg/registry/generic/registry/store.go (deletionFinalizersForGarbageCollection).
"""

from controlplane.apiserver.kinds import Kind, Plain
from controlplane.apiserver.options import DeleteOptions
from resourceapi.objects import ObjectMeta, from_dict, to_dict

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
NAMESPACE_FINALIZER = "kubernetes"
"""The finalizer of a namespace, in its spec, until it is empty."""
_OF_POLICIES = {"Orphan": ORPHAN, "Foreground": FOREGROUND}
_EVENTS = "events"  # the dependents of events are ignored


def is_finished(obj: Plain) -> bool:
    """Return whether an object is being deleted and nothing delays it, neither finalizers nor a kubelet."""
    metadata = obj["metadata"]
    is_held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and not is_held


def finalizers_for(kind: Kind, obj: Plain, options: DeleteOptions) -> list[str]:
    """Return the finalizers of an object after a delete request."""
    found = list(obj["metadata"].get("finalizers") or ())
    if kind.table == _EVENTS:
        return [each for each in found if each not in (ORPHAN, FOREGROUND)]
    wanted = _OF_POLICIES.get(options.policy)
    if options.orphan:
        wanted = ORPHAN
    if options.policy or options.orphan is not None:
        found = [each for each in found if each not in (ORPHAN, FOREGROUND)]
    elif kind.orphans and not {ORPHAN, FOREGROUND} & {*found}:
        wanted = ORPHAN
    if wanted:
        found.append(wanted)
    return found


def with_finalizers(metadata: Plain, finalizers: list[str]) -> Plain:
    """Return the metadata with finalizers, at the position that they have in the API's type."""
    if not finalizers:
        return metadata
    result: Plain = to_dict(from_dict(ObjectMeta, {**metadata, "finalizers": finalizers}))
    return result
