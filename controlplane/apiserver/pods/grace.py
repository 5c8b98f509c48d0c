"""The grace period of a deleted pod: its kubelet stops it, and then deletes it with a grace period of 0.

Source: k8s.io/kubernetes pkg/registry/core/pod/strategy.go, CheckGracefulDelete; kubernetes.io "Pod Lifecycle".
"""

from controlplane.apiserver.kinds import Key, Kind, Plain
from controlplane.apiserver.options import DeleteOptions
from controlplane.apiserver.store import Store

PODS, NODES = "pods", "nodes"
_ENDED = ("Succeeded", "Failed")
_DEFAULT = 30


def is_graceful(kind: Kind) -> bool:
    """Return whether objects have a grace period. Their last state has a deletion time, even if the period is 0."""
    return kind.id == PODS


def seconds_until_removal(store: Store, kind: Kind, obj: Plain, options: DeleteOptions) -> int:
    """Return the seconds until an object is removed; 0 for all objects except pods that a kubelet runs.

    If a pod's node does not exist or is not ready, no kubelet would stop the pod, so it is removed at once.
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
