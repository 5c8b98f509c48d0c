"""Answered requests, as an observer of the server gets them: what a client wanted, and why it was refused."""

from collections.abc import Callable

from msgspec import Struct
from starlette.requests import Request

from controlplane.apiserver.access.authorization import attributes_of
from controlplane.apiserver.kinds import Registry
from controlplane.apiserver.status import ApiError, qualified


class AnsweredRequest(Struct, frozen=True):
    """One request and its answer.

    `verb` is that of RBAC, such as create or watch. `kind` is the kind of object. If the server does not have it, it is
    `resource.version.group`, as kubectl writes it; for a request that is not about objects, it is the path. `name` is
    empty if no object is named. `message` and `causes` (reason, field, message) are those of a refusal.
    """

    user_agent: str
    verb: str
    kind: str
    name: str
    code: int
    message: str = ""
    causes: tuple[str, ...] = ()


Observer = Callable[[AnsweredRequest], object]
"""Is called with each request before its answer is sent."""


def answered_request(request: Request, registry: Registry, code: int, refusal: Exception | None) -> AnsweredRequest:
    """Return a request with its answer. The name of an object that was not created is that of the refusal."""
    steps = [step for step in request.url.path.split("/") if step]
    wanted = attributes_of(request.method, steps, request.query_params)
    kind = wanted.path
    if wanted.resource:
        version = steps[1] if steps[0] == "api" else steps[2]
        found = registry.find(wanted.group, version, wanted.resource)
        kind = found.kind if found is not None else qualified(f"{wanted.resource}.{version}", wanted.group)
        kind += f"/{wanted.subresource}" if wanted.subresource else ""
    details = refusal.body.get("details") or {} if isinstance(refusal, ApiError) else {}
    causes = tuple(" ".join(map(str, cause.values())) for cause in details.get("causes") or ())
    return AnsweredRequest(
        user_agent=request.headers.get("User-Agent", ""),
        verb=wanted.verb,
        kind=kind,
        name=wanted.name or details.get("name") or "",
        code=code,
        message="" if refusal is None else str(refusal),
        causes=causes,
    )
