"""Refusals: the Status bodies of the API server (allocator.md 5.14).

Every refusal is an `ApiError`; only `app` turns it into a response.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from resourceapi.objects import ErrorList, quoted_text


class ApiError(Exception):
    """A refused request. `body` is the Status object, `code` the HTTP status.

    `warnings` are sent with it.
    """

    def __init__(self, code: int, message: str, reason: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.warnings: tuple[str, ...] = ()
        self.body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
        }
        if reason:
            self.body["reason"] = reason
        if details is not None:
            self.body["details"] = details
        self.body["code"] = code

    @property
    def retry_after(self) -> int | None:
        """Seconds after which the client can try again."""
        seconds: int | None = self.body.get("details", {}).get("retryAfterSeconds")
        return seconds


class UnroutedError(ApiError):
    """No verb was found for the request, so the answer has no deprecation warning for its version."""


@contextmanager
def added_warnings(warnings: tuple[str, ...]) -> Iterator[None]:
    """Add warnings to a refusal that is raised inside."""
    try:
        yield
    except ApiError as error:
        error.warnings = (*warnings, *error.warnings)
        raise


class PlainNotFound(Exception):
    """A path under which nothing is served; the answer is plain text."""

    def __init__(self) -> None:
        super().__init__("404 page not found")


def go_name(value: Any) -> str:
    """Return the type name that Go's JSON decoder has for a value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    names: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "null")


def qualified(resource: str, group: str) -> str:
    """Return a resource or kind with its group, as messages name it."""
    return f"{resource}.{group}" if group else resource


def bad_request(message: str) -> ApiError:
    """Return the error 400 with this message."""
    return ApiError(400, message, "BadRequest")


def unauthorized() -> ApiError:
    """Return the error 401, for a missing or wrong token."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, resource: str, name: str, why: str) -> ApiError:
    """Return the error 403 with the reason."""
    message = f"{qualified(resource, group)} {quoted_text(name)} is forbidden: {why}"
    return ApiError(403, message, "Forbidden", _details(name, group, resource))


def not_found(group: str, resource: str, name: str) -> ApiError:
    """Return the error 404 for an object."""
    message = f"{qualified(resource, group)} {quoted_text(name)} not found"
    return ApiError(404, message, "NotFound", _details(name, group, resource))


def no_such_resource() -> ApiError:
    """Return the error 404 for a path in a served group."""
    return UnroutedError(404, "the server could not find the requested resource", "NotFound", {})


def method_not_allowed() -> ApiError:
    """Return the error 405."""
    message = "the server does not allow this method on the requested resource"
    return UnroutedError(405, message, "MethodNotAllowed", {})


def not_supported(group: str, resource: str, method: str) -> ApiError:
    """Return the error 405 for a custom resource, which names the verb."""
    verb = {"POST": "create", "DELETE": "delete"}[method]
    message = f"{verb} is not supported on resources of kind {quoted_text(qualified(resource, group))}"
    return ApiError(405, message, "MethodNotAllowed", _details("", group, resource))


def not_acceptable(message: str) -> ApiError:
    """Return the error 406."""
    return ApiError(406, message, "NotAcceptable")


def already_exists(
    group: str, resource: str, name: str, *, deleting: bool = False, is_generated: bool = False
) -> ApiError:
    """Return the error 409 of a create. `deleting`: the object is being deleted. `is_generated`: a retry can help."""
    details = _details(name, group, resource)
    message = f"{qualified(resource, group)} {quoted_text(name)} already exists"
    if is_generated:
        message += ", the server was not able to generate a unique name for the object"
        details["retryAfterSeconds"] = 1
    if deleting:
        message = f"object is being deleted: {message}"
    return ApiError(409, message, "AlreadyExists", details)


def conflict(group: str, resource: str, name: str, why: str = "") -> ApiError:
    """Return the error 409 of an update or delete; without `why`, for a stale resourceVersion."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f"Operation cannot be fulfilled on {qualified(resource, group)} {quoted_text(name)}: {why}"
    return ApiError(409, message, "Conflict", _details(name, group, resource))


def expired(message: str) -> ApiError:
    """Return the error 410: the history is no longer kept."""
    return ApiError(410, message, "Expired")


def too_large(message: str) -> ApiError:
    """Return the error 413."""
    return ApiError(413, f"Request entity too large: {message}", "RequestEntityTooLarge")


def unsupported_media_type(accepted: str) -> ApiError:
    """Return the error 415 with the accepted media types."""
    text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return ApiError(415, text, "UnsupportedMediaType")


def invalid(group: str, kind: str, name: str, errors: ErrorList) -> ApiError:
    """Return the error 422 for an invalid object, or invalid options of a request."""
    distinct = list(dict.fromkeys(str(error) for error in errors))
    text = distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
    details = _details(name, group, kind)
    details["causes"] = [{"reason": x.type.reason, "message": x.message, "field": x.path} for x in errors]
    return ApiError(422, f"{qualified(kind, group)} {quoted_text(name)} is invalid: {text}", "Invalid", details)


def invalid_options(kind: str, errors: ErrorList) -> ApiError:
    """Return the error 422 for an invalid query, or invalid options in the body."""
    return invalid("meta.k8s.io", kind, "", errors)


def version_in_the_future(requested: int, current: int) -> ApiError:
    """Return the error 504 for a resourceVersion that this server has not reached."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return ApiError(504, message, "Timeout", {"causes": [cause], "retryAfterSeconds": 1})


def unavailable(message: str) -> ApiError:
    """Return the error 503."""
    return ApiError(503, message, "ServiceUnavailable")


def internal(message: str) -> ApiError:
    """Return the error 500 for a request that the reference refuses so; it has no reason."""
    return ApiError(500, message)


def success(details: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the body of a delete that returns no object."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = details
    return body


def _details(name: str, group: str, kind: str) -> dict[str, Any]:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}
