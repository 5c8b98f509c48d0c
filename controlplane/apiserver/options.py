"""The query parameters (and DeleteOptions) of requests, validated like the reference does it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.status import bad_request, go_name, invalid_options
from resourceapi.objects import ErrorList, ErrorType, FieldError, quoted_text
from resourceapi.objects.metadata_rules import MAX_MANAGER
from resourceapi.objects.selectors import (
    FieldSelector,
    LabelSelector,
    SelectorError,
    parse_field_selector,
    parse_label_selector,
)

_VALIDATIONS = ["", "Ignore", "Strict", "Warn"]
_POLICIES = ["Foreground", "Background", "Orphan", "nil"]
_NOT_OLDER = "NotOlderThan"
_DIGITS = 20  # digits of the largest 64-bit number


class WriteOptions(msgspec.Struct, frozen=True):
    """How an object is written."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    force: bool = False


class ListOptions(msgspec.Struct, frozen=True):
    """Which objects are listed or watched, and from which version on."""

    labels: LabelSelector = LabelSelector()
    fields: FieldSelector = FieldSelector()
    limit: int = 0
    token: str = ""
    resource_version: str = ""
    match: str = ""
    watch: bool = False
    timeout: int | None = None
    bookmarks: bool = False
    initial_events: bool | None = None


class DeleteOptions(msgspec.Struct, frozen=True):
    """How an object is deleted."""

    dry_run: bool = False
    uid: str = ""
    resource_version: str = ""
    policy: str = ""
    orphan: bool | None = None
    grace: int | None = None
    """The grace period of a pod in seconds; None: the pod's own."""


def write_options(query: Mapping[str, str], dry_runs: list[str], kind: str, *, is_apply: bool = False) -> WriteOptions:
    """Return the options of a create, update or patch. `kind` is the name of the options in refusals."""
    errors = ErrorList()
    manager, validation = query.get("fieldManager", ""), query.get("fieldValidation", "")
    force = flag(query.get("force"))
    if kind == "PatchOptions" and not is_apply and force is not None:
        errors.forbidden("force", "may not be specified for non-apply patch")
    if is_apply and not manager:
        errors.required("fieldManager", "is required for apply patch")
    _manager(errors, manager)
    _dry_run(errors, dry_runs)
    if validation not in _VALIDATIONS:
        errors.not_supported("fieldValidation", validation, _VALIDATIONS)
    if errors:
        raise invalid_options(kind, errors)
    return WriteOptions(bool(dry_runs), manager, validation or "Warn", bool(force))


def list_options(query: Mapping[str, str]) -> ListOptions:
    """Return the options of a list, watch or deletecollection."""
    limit, timeout = _number(query.get("limit")), _number(query.get("timeoutSeconds"))
    version, match, token = (
        query.get("resourceVersion", ""),
        query.get("resourceVersionMatch", ""),
        query.get("continue", ""),
    )
    watch, initial = bool(flag(query.get("watch"))), flag(query.get("sendInitialEvents"))
    try:
        labels = parse_label_selector(query.get("labelSelector", ""))
        fields = parse_field_selector(query.get("fieldSelector", ""))
    except SelectorError as error:
        raise bad_request(str(error)) from None
    errors = ErrorList()
    if watch:
        if initial is None and not match and version in ("", "0"):  # the reference treats both alike
            _check_watch(errors, _NOT_OLDER, token, True)
        else:
            _check_watch(errors, match, token, initial)
    else:
        _check_list(errors, version, match, token, initial)
    if errors:
        raise invalid_options("ListOptions", errors)
    return ListOptions(
        labels=labels,
        fields=fields,
        limit=limit or 0,
        token=token,
        resource_version=version,
        match=match,
        watch=watch,
        timeout=timeout,
        bookmarks=bool(flag(query.get("allowWatchBookmarks"))),
        initial_events=initial,
    )


def delete_options(query: Mapping[str, str], dry_runs: list[str], body: Plain | None) -> DeleteOptions:
    """Return the options of a delete, from the body if there is one, otherwise from the query."""
    if body is not None:
        dry_runs = _member(body, "dryRun", "[]string") or []
        policy, orphan = _member(body, "propagationPolicy", "string"), _member(body, "orphanDependents", "bool")
        grace = _member(body, "gracePeriodSeconds", "int64")
        preconditions = _member(body, "preconditions", "v1.Preconditions") or {}
        for name in ("uid", "resourceVersion"):
            _member(preconditions, name, "string", "preconditions.")
    else:
        grace = _number(query.get("gracePeriodSeconds"))
        policy, orphan, preconditions = query.get("propagationPolicy"), flag(query.get("orphanDependents")), query
    errors = ErrorList()
    if policy is not None and orphan is not None:
        errors.invalid("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set")
    if policy is not None and policy not in _POLICIES[:3]:
        errors.not_supported("propagationPolicy", str(policy), _POLICIES)
    _dry_run(errors, dry_runs)
    if errors:
        raise invalid_options("DeleteOptions", errors)
    return DeleteOptions(
        dry_run=bool(dry_runs),
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        policy=policy or "",
        orphan=orphan,
        grace=grace,
    )


def uint(text: str) -> int:
    """Return a resourceVersion as a number. Raises ValueError with the reference's text."""
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"strconv.ParseUint: parsing {quoted_text(text)}: invalid syntax")
    number = _integer(text)
    if number >= 2**64:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return number


def _check_watch(errors: ErrorList, match: str, token: str, initial: bool | None) -> None:
    path = "resourceVersionMatch"
    if initial is not None and match != _NOT_OLDER:
        errors.forbidden(path, f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER}")
    if match and initial is None:
        errors.forbidden(path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    if match and match != _NOT_OLDER:
        errors.not_supported(path, match, [_NOT_OLDER])
    if match and token:
        errors.forbidden(path, "resourceVersionMatch is forbidden when continue is provided")


def _check_list(errors: ErrorList, version: str, match: str, token: str, initial: bool | None) -> None:
    if match:
        if not version:
            errors.forbidden(
                "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        if token:
            errors.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
        if match not in ("Exact", "NotOlderThan"):
            errors.not_supported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""])
        if match == "Exact" and version == "0":
            errors.forbidden(
                "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            )
    if initial is not None:
        errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _manager(errors: ErrorList, manager: str) -> None:
    if len(manager.encode()) > MAX_MANAGER:
        errors.too_long("fieldManager", MAX_MANAGER)
    position = 0
    for character in manager:
        if not (character == " " or character.isprintable()):
            errors.invalid(
                "fieldManager", manager, f"invalid character U+{ord(character):04X} (at position {position})"
            )
        position += len(character.encode())


def _dry_run(errors: ErrorList, dry_runs: list[str]) -> None:
    if dry_runs and dry_runs != ["All"]:
        shown = ",".join(f'"{each}"' for each in dry_runs)
        errors.append(_unsupported("dryRun", f"[{shown}]", '"All"'))


def _unsupported(path: str, shown: str, supported: str) -> FieldError:
    return FieldError(ErrorType.NOT_SUPPORTED, path, f"Unsupported value: {shown}: supported values: {supported}")


def _member(value: Plain, name: str, go_type: str, prefix: str = "") -> Any:
    """A member of DeleteOptions, or None. Raises ApiError 400 if it has another type."""
    found = value.get(name)
    match go_type:
        case "[]string":
            is_one = isinstance(found, list) and all(isinstance(each, str) for each in found)
        case "string":
            is_one = isinstance(found, str)
        case "bool":
            is_one = isinstance(found, bool)
        case "int64":
            is_one = type(found) is int and -(2**63) <= found < 2**63
        case _:
            is_one = isinstance(found, dict)
    if found is not None and not is_one:
        shown = go_name(found)
        text = f"json: cannot unmarshal {shown} into Go struct field DeleteOptions.{prefix}{name} of type {go_type}"
        raise bad_request(text)
    return found


def flag(text: str | None) -> bool | None:
    """Return a query flag as Go reads it: present and empty is true."""
    return None if text is None else text.lower() not in ("false", "0")


def _number(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    digits = text[1:] if text[0] in "+-" else text
    if not digits.isascii() or not digits.isdigit():
        raise bad_request(f"strconv.ParseInt: parsing {quoted_text(text)}: invalid syntax")
    number = _integer(digits) * (-1 if text[0] == "-" else 1)
    if not -(2**63) <= number < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def _integer(digits: str) -> int:
    """The number of some digits; 2**64 if it exceeds 64 bits."""
    significant = digits.lstrip("0") or "0"
    return int(significant) if len(significant) <= _DIGITS else 2**64
