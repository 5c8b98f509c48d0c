"""The health endpoints. The server passes all checks while it answers at all.

Source: kubernetes.io "Kubernetes API health endpoints". Of a real server's checks, those exist that scripts wait for.
"""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from controlplane.apiserver.status import PlainNotFound
from resourceapi.objects import quoted_text

_HOOKS = tuple(
    f"poststarthook/{name}"
    for name in (
        *("start-apiextensions-controllers", "crd-informer-synced", "rbac/bootstrap-roles"),
        *("scheduling/bootstrap-system-priority-classes", "apiservice-registration-controller"),
    )
)
_ALIVE = ("ping", "log", "etcd", *_HOOKS)
_READY = ("ping", "log", "etcd", "etcd-readiness", "informer-sync", *_HOOKS, "shutdown")
_CHECKS = {"healthz": _ALIVE, "livez": _ALIVE, "readyz": _READY}
ENDPOINTS = tuple(_CHECKS)
"""The first steps of the paths that this module answers."""


def answer_health(request: Request, endpoint: str, steps: Sequence[str]) -> Response:
    """Answer that everything is healthy, or that one check passes. `steps` are the path's steps after the endpoint.

    Raises PlainNotFound for a check that does not exist.
    """
    checks, name = _CHECKS[endpoint], "/".join(steps)
    if request.url.path == f"/{endpoint}/" or (name and name not in checks):
        raise PlainNotFound
    if name or "verbose" not in request.query_params:
        return Response("ok", media_type="text/plain")
    left_out = request.query_params.getlist("exclude")
    lines = [f"[+]{each} excluded: ok" if each in left_out else f"[+]{each} ok" for each in checks]
    unknown = sorted(quoted_text(each) for each in {*left_out} if each and each not in checks)
    if unknown:
        lines.append(f"warn: some health checks cannot be excluded: no matches for {', '.join(unknown)}")
    return Response("\n".join([*lines, f"{endpoint} check passed", ""]), media_type="text/plain")
