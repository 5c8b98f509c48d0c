"""Requests whose objects are not stored: reviews and tokens are answered, bindings and evictions change a pod."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from controlplane.apiserver.access.authentication import Authenticator
from controlplane.apiserver.access.authorization import Authorizer
from controlplane.apiserver.access.identity import User
from controlplane.apiserver.access.reviews import (
    access_review,
    kind_of_review,
    rules_review,
    subject_review,
    token_review,
)
from controlplane.apiserver.access.tokens import AUDIENCE
from controlplane.apiserver.bodies import read_unstored_body
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.negotiation import VIEWS, encode_answer
from controlplane.apiserver.optimistic_writes import write_off_loop
from controlplane.apiserver.options import WriteOptions, write_options
from controlplane.apiserver.pods.binding import bind
from controlplane.apiserver.pods.eviction import evict
from controlplane.apiserver.responses import answered, form_of
from controlplane.apiserver.rest import BINDINGS, Outcome, Rest
from controlplane.apiserver.status import bad_request, method_not_allowed, success
from controlplane.apiserver.target import Target

PARTS = ("binding", "eviction")
"""The subresources of a pod that are written and not stored."""


class Unstored:
    """Answers these requests."""

    def __init__(self, rest: Rest, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._rest, self._authenticator, self._authorizer = rest, authenticator, authorizer

    async def answer(self, request: Request, group: str, version: str, steps: list[str]) -> Response | None:
        """Answer a request to a collection; None if its objects are stored. Raises ApiError."""
        is_namespaced = len(steps) == 3 and steps[0] == "namespaces"
        if len(steps) != 1 and not is_namespaced:
            return None
        namespace, plural = (steps[1], steps[2]) if is_namespaced else ("", steps[0])
        if (group, version, plural) == ("", "v1", BINDINGS) and is_namespaced:
            return await self._bind(request, namespace)
        kind = kind_of_review(group, version, plural, is_namespaced=is_namespaced)
        return await self._review(request, kind, f"{group}/{version}", namespace) if kind else None

    async def write_part(self, request: Request, target: Target) -> Response:
        """Answer a write to a part of a pod. Raises ApiError."""
        if request.method != "POST":
            raise method_not_allowed()
        if target.subresource == "binding":
            body = await read_unstored_body(request, self._rest.registry, "Binding", "v1")
            return await self._write(request, target, bind, body)
        body = await read_unstored_body(request, self._rest.registry, "Eviction", "policy/v1", "policy/v1beta1")
        return await self._write(request, target, evict, body)

    async def issue_token(self, request: Request, target: Target) -> Response:
        """Answer a request for a token of a service account. Raises ApiError."""
        if request.method != "POST":
            raise method_not_allowed()
        asked = await read_unstored_body(request, self._rest.registry, "TokenRequest", "authentication.k8s.io/v1")
        return answered(request, self._authenticator.tokens.issue(target.namespace, target.name, asked), 201)

    async def _bind(self, request: Request, namespace: str) -> Response:
        """Bind the pod that the Binding names."""
        if request.method != "POST":
            raise method_not_allowed()
        body = await read_unstored_body(request, self._rest.registry, "Binding", "v1")
        name = (body.get("metadata") or {}).get("name") or ""
        if not name:
            raise bad_request("Name parameter required.")
        pods = self._rest.registry.find("", "v1", "pods")
        assert pods is not None, "it is built in"
        target = Target(pods, "v1", namespace, name, BINDINGS, request.state.caller)
        return await self._write(request, target, bind, body)

    async def _write(
        self,
        request: Request,
        target: Target,
        write: Callable[[Rest, Target, Plain, WriteOptions], Outcome],
        body: Plain,
    ) -> Response:
        options = write_options(request.query_params, request.query_params.getlist("dryRun"), "CreateOptions")
        form = form_of(request, VIEWS)

        def change(rest: Rest) -> Outcome:
            return write(rest, target, body, options)

        request.state.warnings = (await write_off_loop(self._rest, target, 0, change)).warnings
        await self._rest.store.commit()
        return Response(encode_answer({**success(), "code": 201}, form), 201, media_type=form.media_type)

    async def _review(self, request: Request, kind: str, api_version: str, namespace: str) -> Response:
        if request.method != "POST":
            raise method_not_allowed()
        user: User = request.state.caller.user
        question = await read_unstored_body(request, self._rest.registry, kind, api_version)
        if kind == "SelfSubjectReview":
            answer = subject_review(user, self._rest.clock())
        elif kind == "TokenReview":
            token = (question.get("spec") or {}).get("token")
            found = self._authenticator.of_token(token.encode()) if token else None
            answer = token_review(question, found, AUDIENCE)
        elif kind == "SelfSubjectRulesReview":
            answer = rules_review(question, user, self._authorizer)
        else:
            answer = access_review(kind, question, user, self._authorizer, namespace)
        return answered(request, answer, 201)
