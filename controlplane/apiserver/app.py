"""The HTTP layer: maps paths to verbs, bodies to objects, and refusals to Status bodies.

It leaves every decision to the other modules where possible.
"""

import asyncio
import logging
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from controlplane.apiserver import discovery, health, listing
from controlplane.apiserver.access.authentication import Authenticator
from controlplane.apiserver.access.authorization import VERBS, Authorizer, attributes_of, refusal
from controlplane.apiserver.access.identity import Caller
from controlplane.apiserver.access.tokens import ACCOUNTS
from controlplane.apiserver.bodies import (
    LARGE_BODY,
    body_of,
    drain_body,
    kind_checked,
    run_off_loop_if_large,
)
from controlplane.apiserver.decoding import decode
from controlplane.apiserver.kinds import Decoded, Kind, Plain, ScalePaths
from controlplane.apiserver.managed import manager_name
from controlplane.apiserver.negotiation import (
    AGGREGATED,
    JSON,
    PROTOBUF,
    VIEWS,
    Form,
    aggregated_form,
    check_json,
    check_type,
    encode_answer,
    read_body,
    read_delete_options,
)
from controlplane.apiserver.observing import Observer, answered_request
from controlplane.apiserver.openapi import OpenApi
from controlplane.apiserver.optimistic_writes import write_off_loop
from controlplane.apiserver.options import WriteOptions, delete_options, flag, list_options, write_options
from controlplane.apiserver.patch import (
    APPLY_PATCH,
    Patch,
    is_parsed_after_lookup,
    parse_error,
    patch_type_of,
    read_patch,
)
from controlplane.apiserver.pods.streams import (
    PROXIED_KINDS,
    PROXY,
    STREAMS,
    proxied_address,
    refuse_proxy,
    refuse_stream,
)
from controlplane.apiserver.preconditions import NAMESPACES
from controlplane.apiserver.responses import answered, encode_off_loop, form_of, listed, refused, warn
from controlplane.apiserver.rest import Outcome, Rest
from controlplane.apiserver.scale import scale_of, unregistered_error
from controlplane.apiserver.scaling import patch_scale, put_scale, scale_target
from controlplane.apiserver.status import (
    ApiError,
    PlainNotFound,
    UnroutedError,
    bad_request,
    internal,
    method_not_allowed,
    no_such_resource,
    not_found,
    not_supported,
    success,
)
from controlplane.apiserver.stored_size import refuse_early
from controlplane.apiserver.target import Target
from controlplane.apiserver.unstored import PARTS, Unstored
from controlplane.apiserver.views import View
from controlplane.apiserver.watching import watch

_DISCOVERY = "".join(f";{name}={value}" for name, value in AGGREGATED.items())
_WITHOUT_TABLES = tuple(view for view in VIEWS if view != "Table")
_ANONYMOUS_PATHS = (*health.ENDPOINTS, "version")

log = logging.getLogger(__name__)


class Application:
    """The ASGI application."""

    def __init__(
        self, rest: Rest, authenticator: Authenticator, authorizer: Authorizer, observe: Observer | None = None
    ) -> None:
        self._rest, self._observe = rest, observe
        self._registry, self._store = rest.registry, rest.store
        self._authenticator, self._authorizer = authenticator, authorizer
        self._unstored = Unstored(rest, authenticator, authorizer)
        self._openapi = OpenApi(rest.registry, rest.release)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        scope = self._authenticator.move_token_to_header(scope)
        request = Request(scope, receive)
        request.state.deprecation, request.state.warnings = "", ()
        refusal: Exception | None = None
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except PlainNotFound as error:
            response, refusal = Response(f"{error}\n", 404, media_type="text/plain"), error
        except ApiError as error:
            response, request.state.warnings, refusal = refused(request, error), error.warnings, error
            if isinstance(error, UnroutedError):
                request.state.deprecation = ""
        except Exception:  # a bug: answered as a real server answers its own
            log.exception("%s %s", request.method, request.url.path)
            refusal = internal("Internal error occurred: see the log of the server")
            response = refused(request, refusal)
        if self._observe is not None:
            self._observe(answered_request(request, self._registry, response.status_code, refusal))
        await drain_body(request)
        warn(response, (request.state.deprecation, *request.state.warnings))
        response.headers["Cache-Control"] = response.headers.get("Cache-Control", "no-cache, private")
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        steps = [step for step in request.url.path.split("/") if step]
        first = steps[0] if steps else ""
        if self._authenticator.has_anonymous or first not in _ANONYMOUS_PATHS:
            self._authorize(request, steps)
        if first in health.ENDPOINTS:
            return health.answer_health(request, first, steps[1:])
        if steps == ["version"]:
            if request.method != "GET":
                raise method_not_allowed()
            check_json(request.headers.get("Accept", ""))
            return Response(
                encode_answer(discovery.version_info(self._rest.release), Form(pretty=True)), media_type=JSON
            )
        if not steps:
            paths = {"paths": discovery.paths(self._registry)}
            return Response(encode_answer(paths, Form(pretty=True)), media_type=JSON)
        if first == "openapi":
            return self._openapi.answer(request, steps[1:])
        if first == "api":
            group, rest = "", steps[1:]
        elif first == "apis":
            group, rest = (steps[1] if len(steps) > 1 else ""), steps[2:]
        else:
            raise PlainNotFound
        if (first == "apis" and len(steps) == 1) or (first == "api" and not rest):
            return self._discover_groups(request, core=first == "api")
        if not discovery.is_served(self._registry, group):
            raise PlainNotFound
        if len(rest) <= 1:
            return self._discover(request, group, rest)
        return await self._resource(request, group, rest[0], rest[1:])

    def _authorize(self, request: Request, steps: list[str]) -> None:
        """Record the client and what it wants to do. Raises ApiError if it is not allowed."""
        user = self._authenticator.user(request)
        wanted = attributes_of(request.method, steps, request.query_params)
        decision = self._authorizer.decide(user, wanted)
        if not decision.is_allowed:
            raise refusal(user, wanted, decision.reason)
        request.state.caller = Caller(user, wanted.verb)

    def _discover_groups(self, request: Request, *, core: bool) -> Response:
        if core and request.method != "GET":
            raise method_not_allowed()
        form = aggregated_form(request.headers.get("Accept", ""))
        if form is not None:
            document = discovery.aggregated(self._registry, core=core)
            headers = {"ETag": discovery.etag(document), "Vary": "Accept", "Cache-Control": "public"}
            if request.headers.get("If-None-Match") == headers["ETag"]:
                return Response(status_code=304, headers=headers)
            return Response(encode_answer(document, form), headers=headers, media_type=form.media_type + _DISCOVERY)
        if core:
            return answered(request, discovery.api_versions(request.headers.get("Host") or ""))
        return answered(request, discovery.group_list(self._registry), is_aggregated=True)

    def _discover(self, request: Request, group: str, rest: list[str]) -> Response:
        if rest:
            document = discovery.resource_list(self._registry, group, rest[0])
        else:
            document = discovery.group(self._registry, group)
        if document is None:
            if self._is_custom(group):
                raise PlainNotFound
            raise no_such_resource()
        if rest and request.method != "GET":
            raise method_not_allowed()
        return answered(request, document, is_aggregated=bool(group) and not rest)

    async def _resource(self, request: Request, group: str, version: str, steps: list[str]) -> Response:
        response = await self._unstored.answer(request, group, version, steps)
        if response is not None:
            return response
        is_watch, namespace = False, ""
        if steps[0] == "watch" and len(steps) > 1:
            is_watch, steps = True, steps[1:]
        if steps[0] == "namespaces" and len(steps) > 2 and self._registry.find(group, version, steps[2]):
            namespace, steps = steps[1], steps[2:]
        kind = self._registry.find(group, version, steps[0])
        is_proxied = kind is not None and kind.id in PROXIED_KINDS and steps[2:3] == [PROXY]  # with a path of its own
        steps = steps[:3] if is_proxied else steps
        if kind is None or len(steps) > (2 if is_watch else 3) or bool(namespace) > kind.namespaced:
            if self._is_custom(group):
                raise PlainNotFound
            raise no_such_resource()
        name, subresource = (*steps[1:], "", "")[:2]
        target = Target(kind, version, namespace, name, subresource, request.state.caller)
        served = kind.served(version)
        request.state.deprecation = served.deprecation if served else ""
        if target.name and kind.namespaced and not namespace:
            raise no_such_resource()
        if is_watch and request.method != "GET":
            raise method_not_allowed()
        if is_watch:
            return await self._list(request, target, is_watch=True)
        if target.subresource:
            return await self._subresource(request, target)
        if target.name:
            return await self._object(request, target)
        return await self._collection(request, target)

    def _is_custom(self, group: str) -> bool:
        """Return whether all kinds of a group come from definitions."""
        kinds = [each for each in self._registry if each.group == group]
        return bool(group and kinds) and all(each.from_definition for each in kinds)

    async def _collection(self, request: Request, target: Target) -> Response:
        everywhere = target.kind.namespaced and not target.namespace
        match request.method:
            case "GET":
                return await self._list(request, target)
            case "POST" if not everywhere:
                form = self._form(request, target.kind)
                check_type(request.headers.get("Content-Type", ""))
                options = write_options(request.query_params, _dry_runs(request), "CreateOptions")
                manager = self._manager(request)
                body, decoded, size = await self._body(request, target, options)
                create = partial(
                    Rest.create, target=target, value=body, options=options, manager=manager, decoded=decoded
                )
                outcome = await write_off_loop(self._rest, target, size, create)
                return await self._written(form, request, target, outcome, 201)
            case "DELETE" if not everywhere and target.kind.id != NAMESPACES:
                return await self._delete_collection(request, target)
        if target.kind.from_definition:
            raise _no_collection(request, everywhere=everywhere)
        raise method_not_allowed()

    async def _object(self, request: Request, target: Target) -> Response:
        is_custom, patch_type = target.kind.from_definition, ""
        if request.method == "PATCH":  # the patch's media type is checked before that of the answer
            patch_type = patch_type_of(request.headers.get("Content-Type", ""), is_custom=is_custom)
        if request.method == "POST":
            if not is_custom:
                raise method_not_allowed()
            return await self._collection(request, target._replace(name=""))
        views = VIEWS if target.kind.has_status_table or not target.subresource else _WITHOUT_TABLES
        form = form_of(request, views, is_custom=is_custom)
        match request.method:
            case "GET":
                found = self._rest.get(target, request.query_params.get("resourceVersion", ""))
                return await self._written(form, request, target, Outcome(found), 200)
            case "PUT":
                check_type(request.headers.get("Content-Type", ""))
                options = write_options(request.query_params, _dry_runs(request), "UpdateOptions")
                body, decoded, size = await self._body(request, target, options)
                manager = self._manager(request)
                update = partial(
                    Rest.update, target=target, value=body, options=options, manager=manager, decoded=decoded
                )
                outcome = await write_off_loop(self._rest, target, size, update)
                return await self._written(form, request, target, outcome, 201 if outcome.is_new else 200)
            case "PATCH":
                return await self._patch(form, request, target, patch_type)
            case "DELETE":
                return await self._delete(form, request, target)
        raise method_not_allowed()

    async def _subresource(self, request: Request, target: Target) -> Response:
        if target.kind.id == "pods" and target.subresource in PARTS:
            return await self._unstored.write_part(request, target)
        if target.subresource == PROXY and target.kind.id in PROXIED_KINDS:
            kind_id, (name, port) = target.kind.id, proxied_address(target.kind.id, target.name)
            find = partial(self._rest.get, target._replace(name=name, subresource=""))
            refuse_proxy(kind_id, name, port, request.method, find)
        if target.kind.id == "pods" and target.subresource in STREAMS:
            pod = self._rest.get(target._replace(subresource=""))
            refuse_stream(pod, target.subresource, request.method, request.query_params.get("container", ""))
            return Response(status_code=204)
        if target.kind.id == ACCOUNTS and target.subresource == "token":
            return await self._unstored.issue_token(request, target)
        served, version = target.kind, target.kind.served(target.version)
        if target.subresource == "scale" and version is not None and version.scale is not None:
            return await self._scale(request, target._replace(subresource=""), version.scale)
        verbs = discovery.PART_VERBS.get(target.subresource, discovery.STATUS_VERBS)
        if target.subresource not in served.parts:
            raise not_found(served.group, served.plural, target.name) if served.from_definition else no_such_resource()
        if VERBS.get(request.method) not in verbs:
            if served.from_definition:
                raise not_supported(served.group, served.plural, request.method)
            raise method_not_allowed()
        return await self._object(request, target)

    async def _scale(self, request: Request, target: Target, paths: ScalePaths) -> Response:
        """Answer a request for an object's Scale: the number of replicas, which a write changes in the object."""
        if request.method not in ("GET", "PUT", "PATCH"):
            raise not_supported(target.kind.group, target.kind.plural, request.method)
        patch_type = ""
        if request.method == "PATCH":
            content_type = request.headers.get("Content-Type", "")
            patch_type = patch_type_of(content_type, is_custom=target.kind.from_definition)
        form, manager = self._form(request, target.kind), self._manager(request)
        if request.method == "GET":
            outcome = Outcome(self._rest.get(target))
        elif request.method == "PUT":
            options = write_options(request.query_params, _dry_runs(request), "UpdateOptions")
            read = await self._scale_body(request, target, options)
            outcome = await write_off_loop(
                self._rest, target, 0, lambda rest: put_scale(rest, target, paths, read, options, manager)
            )
        else:
            is_apply = patch_type == APPLY_PATCH
            options = write_options(request.query_params, _dry_runs(request), "PatchOptions", is_apply=is_apply)
            patch, _ = await self._read_patch(request, target, patch_type, is_part=True)
            outcome = await write_off_loop(
                self._rest, target, 0, lambda rest: patch_scale(rest, target, paths, patch, options, manager)
            )
        scale = scale_of(target.kind.rules.encode(outcome.object, target.version), paths)
        return await self._written(form, request, scale_target(target), outcome._replace(object=scale), 200)

    async def _scale_body(self, request: Request, target: Target, options: WriteOptions) -> Decoded:
        of_scale = scale_target(target)
        try:
            return (await self._body(request, of_scale, options))[1]
        except ApiError as error:
            raise unregistered_error() if error.code == 400 and target.kind.from_definition else error from None

    async def _list(self, request: Request, target: Target, *, is_watch: bool = False) -> Response:
        query = dict(request.query_params)
        if is_watch:
            query["watch"] = "true"
        if target.name:
            query["fieldSelector"] = f"metadata.name={target.name}"
        # Options are checked after the media types that are possible at all, before those of the kind and of watches.
        is_custom = target.kind.from_definition
        if not is_custom or self._rest.release.negotiates_custom_lists_first or flag(query.get("watch")):
            form_of(request, VIEWS, is_custom=is_custom, is_list=True)
        options = list_options(query)
        form = self._form(request, target.kind, is_list=True)
        view = self._view(form, request, target)
        if options.watch:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                # fabric8 watches over HTTP after a 200 that ends; after a 503 it would try again
                return Response(media_type=JSON)
            await self._store.commit()
            changes = await watch(self._store, target, options)  # checks its options before the media type
            form = self._form(request, target.kind, is_list=True, is_watch=True)
            body = self._view(form, request, target).frames(changes)
            media_type = f"{PROTOBUF};stream=watch" if form.media_type == PROTOBUF else form.media_type
            return StreamingResponse(body, media_type=media_type)
        page = listing.list_page(self._store, target, options)
        await self._store.commit()
        many = partial(view.many, page.objects, page.metadata)
        is_slow = is_custom and form.view == "Table"  # evaluates the definition's paths for each object
        return await listed(await asyncio.to_thread(many) if is_slow else many(), form)

    async def _patch(self, form: Form, request: Request, target: Target, patch_type: str) -> Response:
        is_apply = patch_type == APPLY_PATCH
        options = write_options(request.query_params, _dry_runs(request), "PatchOptions", is_apply=is_apply)
        patch, size = await self._read_patch(request, target, patch_type, is_part=bool(target.subresource))
        change = partial(Rest.patch, target=target, patch=patch, options=options, manager=self._manager(request))
        outcome = await write_off_loop(self._rest, target, size, change)
        return await self._written(form, request, target, outcome, 201 if outcome.is_new else 200)

    async def _read_patch(
        self, request: Request, target: Target, patch_type: str, *, is_part: bool
    ) -> tuple[Patch, int]:
        """A patch, and the size of its text in bytes."""
        data = await body_of(request)
        try:
            return await run_off_loop_if_large(len(data), read_patch, data, patch_type), len(data)
        except ValueError as error:
            is_late = is_parsed_after_lookup(data, patch_type, self._rest.release)
            if is_late and (is_part or patch_type != APPLY_PATCH):  # apply creates a missing object
                self._rest.get(target)
            raise parse_error(error, patch_type, self._rest.release, is_late=is_late) from None

    async def _delete(self, form: Form, request: Request, target: Target) -> Response:
        options = delete_options(request.query_params, _dry_runs(request), await self._delete_body(request))
        outcome = await write_off_loop(self._rest, target, 0, partial(Rest.delete, target=target, options=options))
        code = 202 if options.orphan is False and not outcome.is_gone else 200
        if target.kind.shows_deleted(target.version) or not outcome.is_gone:
            return await self._written(form, request, target, outcome, code)
        await self._store.commit()
        details = {"name": target.name, "group": target.kind.group, "kind": target.kind.plural}
        details = {key: value for key, value in details.items() if value} | {"uid": outcome.object["metadata"]["uid"]}
        return Response(encode_answer(success(details), form), code, media_type=form.media_type)

    async def _delete_collection(self, request: Request, target: Target) -> Response:
        form = self._form(request, target.kind)
        page = listing.list_page(self._store, target, list_options(request.query_params))
        options = delete_options(request.query_params, _dry_runs(request), await self._delete_body(request))
        try:
            for obj in page.objects:
                metadata = obj["metadata"]
                one = target._replace(namespace=metadata.get("namespace", ""), name=metadata["name"])
                try:
                    delete = partial(Rest.delete, target=one, options=options, is_named=False)
                    await write_off_loop(self._rest, one, 0, delete)
                except ApiError as error:
                    if error.code != 404:  # 404: deleted meanwhile
                        raise
        finally:  # also for the objects deleted before one that a policy keeps
            await self._store.commit()
        value = View(form, target, "", self._rest.clock).many(page.objects, page.metadata)
        return Response(await encode_off_loop(value, form), media_type=form.media_type)

    async def _written(self, form: Form, request: Request, target: Target, outcome: Outcome, code: int) -> Response:
        """The answer with one object, once everything that it shows is durable."""
        await self._store.commit()
        value = self._view(form, request, target).one(outcome.object, outcome.warnings)
        request.state.warnings = outcome.warnings
        return Response(await encode_off_loop(value, form), code, media_type=form.media_type)

    def _form(self, request: Request, kind: Kind, *, is_list: bool = False, is_watch: bool = False) -> Form:
        return form_of(request, VIEWS, is_custom=kind.from_definition, is_list=is_list, is_watch=is_watch)

    def _view(self, form: Form, request: Request, target: Target) -> View:
        return View(form, target, request.query_params.get("includeObject", ""), self._rest.clock)

    def _manager(self, request: Request) -> str:
        return manager_name(request.query_params.get("fieldManager", ""), request.headers.get("User-Agent", ""))

    async def _body(self, request: Request, target: Target, options: WriteOptions) -> tuple[Plain, Decoded, int]:
        """A body, its decoded object, and its size. A body that cannot be stored is refused before further work."""
        data, kind = await body_of(request), target.kind
        content_type = request.headers.get("Content-Type", "")
        read = partial(read_body, data, content_type, kind.kind, target.api_version, is_custom=kind.from_definition)
        is_checked = options.field_validation != "Ignore"
        value = kind_checked(
            await run_off_loop_if_large(len(data), read), data, target, self._registry, is_checked=is_checked
        )
        decoded = await run_off_loop_if_large(len(data), decode, target, value, options)
        if len(data) >= LARGE_BODY and not options.dry_run:
            await run_off_loop_if_large(len(data), refuse_early, {**value, **decoded.object})
        return value, decoded, len(data)

    async def _delete_body(self, request: Request) -> Plain | None:
        data = await body_of(request)
        content_type = request.headers.get("Content-Type", "")
        try:
            return await run_off_loop_if_large(len(data), read_delete_options, data, content_type) if data else None
        except ApiError as error:
            is_fault = error.code == 400 and self._rest.release.fails_on_delete_options
            raise internal(str(error)) if is_fault else error from None


def _no_collection(request: Request, *, everywhere: bool) -> Exception:
    """Why a collection of custom resources does not have the request's verb."""
    if everywhere:
        return PlainNotFound()
    if request.method == "PATCH":
        patch_type_of(request.headers.get("Content-Type", ""), is_custom=True)
    return bad_request("name must be provided") if request.method in ("PUT", "PATCH") else method_not_allowed()


def _dry_runs(request: Request) -> list[str]:
    return request.query_params.getlist("dryRun")
