"""Who holds an object that is to be deleted: finalizers that it has, and those that the deletion itself asks for.

Source: k8s.io/apiserver pkg/registry/generic/registry/store.go (deletionFinalizersForGarbageCollection).
"""

from controlplane.apiserver.kinds import Kind, Plain
from controlplane.apiserver.options import DeleteOptions
from resourceapi.objects import ObjectMeta, from_dict, to_dict

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_OF_POLICIES = {"Orphan": ORPHAN, "Foreground": FOREGROUND}
_EVENTS = "events"  # what they own is nobody's concern


def is_finished(obj: Plain) -> bool:
    """Whether an object is to be deleted and nobody holds it any more, neither finalizers nor a kubelet."""
    metadata = obj["metadata"]
    is_held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and not is_held


def finalizers_for(kind: Kind, obj: Plain, options: DeleteOptions) -> list[str]:
    """Those of an object that is deleted."""
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
    """The metadata with finalizers, where the API's types have them."""
    if not finalizers:
        return metadata
    result: Plain = to_dict(from_dict(ObjectMeta, {**metadata, "finalizers": finalizers}))
    return result
