"""How long a pod has to end once it is deleted: its kubelet ends it, and deletes it for good with no time left.

Source: k8s.io/kubernetes pkg/registry/core/pod/strategy.go, CheckGracefulDelete; kubernetes.io "Pod Lifecycle".
"""

from controlplane.apiserver.kinds import Key, Kind, Plain
from controlplane.apiserver.options import DeleteOptions
from controlplane.apiserver.store import Store

PODS, NODES = "pods", "nodes"
_ENDED = ("Succeeded", "Failed")
_DEFAULT = 30


def is_graceful(kind: Kind) -> bool:
    """Whether objects get time to end: such a one says in its last state when it was to go, even at once."""
    return kind.id == PODS


def seconds_to_end(store: Store, kind: Kind, obj: Plain, options: DeleteOptions) -> int:
    """The seconds that an object has until it is removed; 0 for all but pods that a kubelet runs.

    Nobody would end a pod on a node that is not there or that does not say it is ready: it is removed at once.
    """
    if not is_graceful(kind):
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    node = spec.get("nodeName")
    if not node or status.get("phase") in _ENDED or not _has_kubelet(store, ("", str(node))):
        return 0
    asked = options.grace if options.grace is not None else spec.get("terminationGracePeriodSeconds")
    if asked is None:
        asked = _DEFAULT
    return 1 if asked < 0 else int(asked)


def _has_kubelet(store: Store, node: Key) -> bool:
    found = store.get(NODES, node)
    conditions = ((found or {}).get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
