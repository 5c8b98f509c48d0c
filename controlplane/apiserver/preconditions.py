"""Preconditions of writes: the name, the namespace, and the version and uid that the client expects.

Each check raises ApiError if the precondition is not met.
"""

import contextlib

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.options import DeleteOptions, uint
from controlplane.apiserver.status import ApiError, bad_request, conflict, forbidden, internal, invalid, not_found
from controlplane.apiserver.store import Store
from controlplane.apiserver.target import Target
from resourceapi.objects import ErrorList

NAMESPACES = "namespaces"
_PLACES = {"nodes": "minions", "services": "services/specs"}  # resource -> its path in etcd


def check_name(target: Target, obj: Plain) -> None:
    """Check that a body has the name of the path."""
    name = (obj.get("metadata") or {}).get("name")
    if not name:
        raise bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    if name != target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")


def check_namespace(store: Store, target: Target, name: str) -> None:
    """Check that the namespace exists and takes new objects; `name` is the new object's name or generateName."""
    if not target.kind.namespaced:
        return
    namespace = store.get(NAMESPACES, ("", target.namespace))
    if namespace is None:
        raise not_found("", "namespaces", target.namespace)
    if namespace["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
        refusal = forbidden(target.kind.group, target.kind.plural, name, why)
        message = f"namespace {target.namespace} is being terminated"
        cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
        refusal.body["details"]["causes"] = [cause]
        raise refusal


def check_version(target: Target, wanted: str, current: str) -> None:
    """Check that an update's version, `wanted`, is the `current` one, if it names one."""
    kind = target.kind
    try:
        number = uint(wanted) if wanted else 0
    except ValueError as error:
        raise internal(str(error)) from None
    if not number:
        served = kind.served(target.version)
        if kind.from_definition or (served is not None and served.must_be_current):
            errors = ErrorList()
            errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(kind.group, kind.plural, target.name, errors)
    elif str(number) != current:
        raise conflict(kind.group, kind.plural, target.name)


def check_preconditions(target: Target, obj: Plain, options: DeleteOptions) -> None:
    """Check that a delete's preconditions match the object."""
    kind, metadata = target.kind, obj["metadata"]
    group = "" if kind.stored_as else kind.group  # as the reference's store names it
    if options.uid and options.uid != metadata["uid"]:
        text = f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']})."
        why = f"{text} The object might have been deleted and then recreated"
        raise conflict(group, kind.kind, target.name, why)
    wanted, found = options.resource_version, metadata["resourceVersion"]
    if wanted and wanted != found:
        text = f"the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record"
        raise conflict(group, kind.kind, target.name, f"{text} ({found}). The object might have been modified")


def check_uid(target: Target, obj: Plain, uid: str, *, is_dry_run: bool) -> None:
    """Check that an object has the uid that the client expects. Raises ApiError 409."""
    found = obj["metadata"]["uid"]
    if uid != found:
        raise uid_conflict(target, uid, found, is_dry_run=is_dry_run)


def uid_conflict(target: Target, uid: str, found: str, *, is_dry_run: bool) -> ApiError:
    """Return the error 409: the existing object, or its absence, does not match the uid that the client expects."""
    kind = target.kind
    place = f"{kind.group}/{kind.plural}" if kind.from_definition else _PLACES.get(kind.id, kind.plural)
    path = "/".join(("" if is_dry_run else "/registry", place, *filter(None, target.key)))
    text = f"StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: "
    text += f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
    return conflict(target.kind.group, target.kind.plural, target.name, text)


def check_kind(target: Target, name: str, object_name: str) -> None:
    """Check that a custom resource has the path's kind. Raises ApiError 422. Other kinds are checked while reading."""
    if name != target.kind.kind:
        errors = ErrorList()
        errors.invalid("kind", name, f"must be {target.kind.kind}")
        raise invalid(target.kind.group, name, object_name, errors)


def without_version(obj: Plain) -> Plain:
    """Return a new object without its resourceVersion. Raises ApiError 500 if that is a number other than zero."""
    version = obj["metadata"].get("resourceVersion") or "0"
    with contextlib.suppress(ValueError):
        if uint(version):
            raise internal("resourceVersion should not be set on objects to be created")
    return {**obj, "metadata": {name: item for name, item in obj["metadata"].items() if name != "resourceVersion"}}
