"""Events of core/v1. Each is a new object with a count of one; a caller that repeats an event must count it."""

import secrets
from collections.abc import Mapping
from typing import Any

from resourceapi.objects.meta import ObjectMeta

_MAX_MESSAGE = 1024  # characters; more is refused


def pod_event(
    pod: ObjectMeta, reason: str, message: str, *, type_: str, source: Mapping[str, str], at: str
) -> dict[str, Any]:
    """Return an event about a pod; `type_` is Normal or Warning, `source` names the component, `at` is the time."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name}.{secrets.token_hex(8)}", "namespace": pod.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
        },
        "type": type_,
        "reason": reason,
        "message": message[:_MAX_MESSAGE],
        "source": dict(source),
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
