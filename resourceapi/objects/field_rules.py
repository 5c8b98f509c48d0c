"""Rules that several kinds share: names of the DRA API, limits of lists, free-form objects, node selectors, conditions.

Every rule adds the faults to a list of errors (see `errors`). `path` is the path of the checked field.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from resourceapi.objects import names
from resourceapi.objects.core import NodeSelector, NodeSelectorRequirement
from resourceapi.objects.errors import ErrorList, Token, quoted_text
from resourceapi.objects.meta import Condition
from resourceapi.objects.release import LATEST, Release
from resourceapi.objects.v1 import (
    ALL_NODE_OPERATIONS,
    NODE_PREPARE_RESOURCES,
    NODE_UNPREPARE_RESOURCES,
    OpaqueDeviceConfiguration,
)

T = TypeVar("T")

MAX_DRIVER_NAME = 63
MAX_IDENTIFIER = 32
MAX_RAW_OBJECT = 10 * 1024
MAX_CONFIGS = 32
MAX_BINDING_CONDITIONS = 4
MAX_CONDITION_REASON = 1024
MAX_CONDITION_MESSAGE = 32 * 1024
_MAX_KEY_SHOWN = MAX_DRIVER_NAME + 1 + MAX_IDENTIFIER

_HEX = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", re.ASCII)


def add_invalid(errors: ErrorList, path: str, value: str, reasons: Iterable[str]) -> None:
    """Add an error for each reason why a value is invalid."""
    for reason in reasons:
        errors.invalid(path, value, reason)


def driver_name(errors: ErrorList, path: str, name: str, release: Release = LATEST) -> None:
    """Check a DNS subdomain in any case, at most 63 bytes."""
    if not name:
        errors.required(path)
        if not release.explains_empty_driver_names:
            return
    if names.size(name) > MAX_DRIVER_NAME:
        errors.too_long(path, MAX_DRIVER_NAME)
    add_invalid(errors, path, name, names.dns_subdomain(name.lower()))


def pool_name(errors: ErrorList, path: str, name: str) -> None:
    """Check DNS subdomains separated by slashes."""
    if not name:
        errors.required(path)
        return
    if names.size(name) > names.MAX_SUBDOMAIN:
        errors.too_long(path, names.MAX_SUBDOMAIN)
    for part in name.split("/"):
        add_invalid(errors, path, part, names.dns_subdomain(part))


def dns_label(errors: ErrorList, path: str, name: str) -> None:
    """Check a DNS label: the name of a device, request or counter."""
    add_invalid(errors, path, name, names.dns_label(name))


def label_name(errors: ErrorList, path: str, name: str) -> None:
    """Check a label key: taint keys, binding conditions."""
    add_invalid(errors, path, name, names.label_key(name))


def qualified_name(errors: ErrorList, path: str, name: str) -> None:
    """Check `identifier` or `domain/identifier`: names of attributes and capacities."""
    # More than one slash is accepted: servers up to 1.36 accept it, and objects with such names exist.
    parts = name.split("/")
    if len(parts) == 1:
        _identifier(errors, path, name)
    elif len(parts) == 2:
        domain, identifier = parts
        if domain:
            driver_name(errors, path, domain)
        else:
            errors.invalid(path, "", "the domain must not be empty")
        if identifier:
            _identifier(errors, path, identifier)
        else:
            errors.invalid(path, "", "the name must not be empty")


def fully_qualified_name(errors: ErrorList, path: str, name: str) -> None:
    """Check `domain/identifier`: attributes in constraints."""
    qualified_name(errors, path, name)
    if "/" not in name:
        errors.invalid(path, Token(name), "a fully qualified name must be a domain and a name separated by a slash")


def _identifier(errors: ErrorList, path: str, name: str) -> None:
    if names.size(name) > MAX_IDENTIFIER:
        errors.too_long(path, MAX_IDENTIFIER)
    add_invalid(errors, path, name, names.c_identifier(name))


def share_id(errors: ErrorList, path: str, uid: str) -> None:
    """Check a UUID in lower case with dashes."""
    plain = uid
    problem = ""
    if len(uid) == 45:
        plain = uid[9:]
        if uid[:9].lower() != "urn:uuid:":
            problem = f"invalid urn prefix: {quoted_text(uid[:9])}"
    elif len(uid) == 38:
        plain = uid[1:-1]
        if uid[0] != "{" or uid[-1] != "}":
            problem = "invalid bracketed UUID format"
    elif len(uid) == 32:
        plain = "-".join((uid[:8], uid[8:12], uid[12:16], uid[16:20], uid[20:]))
    elif len(uid) != 36:
        problem = f"invalid UUID length: {names.size(uid)}"
    if not problem and not _HEX.fullmatch(plain):
        problem = "invalid UUID format"
    if problem:
        errors.invalid(path, uid, f"error validating uid: {problem}")
    elif len(uid) != 36 or uid != uid.lower():
        errors.invalid(
            path,
            uid,
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`"
            " with lowercase hexadecimal characters",
        )


def raw_object(errors: ErrorList, path: str, value: Any, *, stored: bool) -> None:
    """Check a free-form JSON object of at most 10 KiB; a stored one can be larger."""
    if value is None:
        errors.required(path)
    elif not stored and len(msgspec.json.encode(value)) > MAX_RAW_OBJECT:
        errors.too_long(path, MAX_RAW_OBJECT)
    elif not isinstance(value, Mapping):
        errors.invalid(path, "<value omitted>", "must be a valid JSON object")


def configuration(errors: ErrorList, path: str, opaque: OpaqueDeviceConfiguration | None, *, stored: bool) -> None:
    """Check the configuration entry at `path`: opaque parameters for one driver."""
    if opaque is None:
        errors.required(f"{path}.opaque")
        return
    driver_name(errors, f"{path}.opaque.driver", opaque.driver)
    raw_object(errors, f"{path}.opaque.parameters", opaque.parameters, stored=stored)


def check_items(
    errors: ErrorList,
    path: str,
    items: Sequence[T],
    limit: int | None,
    rule: Callable[[ErrorList, str, T], None],
    key: Callable[[T], Hashable] | None = None,
) -> None:
    """Apply the rule to every item, then check that keys are unique. A list that is too long gets only that error."""
    if limit is not None and len(items) > limit:
        errors.too_many(path, len(items), limit)
        return
    for index, item in enumerate(items):
        rule(errors, f"{path}[{index}]", item)
    if key is not None:
        unique(errors, path, [key(item) for item in items])


def unique(errors: ErrorList, path: str, keys: Sequence[Any]) -> None:
    """Check that no key occurs twice."""
    seen = set()
    for index, key in enumerate(keys):
        if key in seen:
            errors.duplicate(f"{path}[{index}]", key)
        seen.add(key)


def each_entry(
    errors: ErrorList,
    path: str,
    entries: Mapping[str, T],
    limit: int | None,
    key_rule: Callable[[ErrorList, str, str], None],
    rule: Callable[[ErrorList, str, T], None],
) -> None:
    """Apply the rules to every key and value of a map, in the order of the keys."""
    if limit is not None and len(entries) > limit:
        errors.too_many(path, len(entries), limit)
        return
    for key in sorted(entries):
        key_rule(errors, path, key)
        rule(errors, f"{path}[{_shortened(key)}]", entries[key])


def _shortened(key: str) -> str:
    """Return a key for a path; the middle of a key that is longer than any valid one is replaced by `...`."""
    if len(key) <= _MAX_KEY_SHOWN:
        return key
    kept = _MAX_KEY_SHOWN - len("...")
    return f"{key[: (kept + 1) // 2]}...{key[len(key) - kept // 2 :]}"


def skipped_operations(errors: ErrorList, path: str, operations: Sequence[str]) -> None:
    """Check the operations that the kubelet skips (alpha in 1.37): prepare only together with unprepare."""
    known = (ALL_NODE_OPERATIONS, NODE_PREPARE_RESOURCES, NODE_UNPREPARE_RESOURCES)
    for index, operation in enumerate(operations):
        if operation not in known:
            errors.not_supported(f"{path}[{index}]", operation, list(known))
    unique(errors, path, operations)
    if NODE_PREPARE_RESOURCES in operations and not {NODE_UNPREPARE_RESOURCES, ALL_NODE_OPERATIONS} & set(operations):
        text = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
        errors.invalid(path, list(operations), text)


def node_selector(errors: ErrorList, path: str, selector: NodeSelector) -> None:
    """Check a node selector: terms with requirements on labels and on the node's name."""
    terms_path = f"{path}.nodeSelectorTerms"
    if not selector.node_selector_terms:
        errors.required(terms_path, "must have at least one node selector term")
        return
    for index, term in enumerate(selector.node_selector_terms):
        for number, requirement in enumerate(term.match_expressions):
            _label_requirement(errors, f"{terms_path}[{index}].matchExpressions[{number}]", requirement)
        for number, requirement in enumerate(term.match_fields):
            _field_requirement(errors, f"{terms_path}[{index}].matchFields[{number}]", requirement)


def _label_requirement(errors: ErrorList, path: str, requirement: NodeSelectorRequirement) -> None:
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            if not values:
                errors.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.forbidden(f"{path}.values", text)
        case "Gt" | "Lt":
            if len(values) != 1:
                errors.required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        case other:
            errors.invalid(f"{path}.operator", Token(other), "not a valid selector operator")
    label_name(errors, f"{path}.key", requirement.key)
    for index, value in enumerate(values):
        add_invalid(errors, f"{path}.values[{index}]", value, names.label_value(value))


def _field_requirement(errors: ErrorList, path: str, requirement: NodeSelectorRequirement) -> None:
    if requirement.operator not in ("In", "NotIn"):
        errors.invalid(f"{path}.operator", Token(requirement.operator), "not a valid selector operator")
    elif len(requirement.values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.required(f"{path}.values", text)
    if requirement.key != "metadata.name":
        errors.invalid(f"{path}.key", requirement.key, "not a valid field selector key")
        return
    for index, value in enumerate(requirement.values):
        add_invalid(errors, f"{path}.values[{index}]", value, names.dns_subdomain(value))


def binding_conditions(
    errors: ErrorList, path: str, conditions: Sequence[str], failure_conditions: Sequence[str]
) -> None:
    """Check the conditions to wait for before binding, and those that end the wait: both or neither, all distinct."""
    check_items(errors, f"{path}.bindingConditions", conditions, MAX_BINDING_CONDITIONS, label_name)
    check_items(errors, f"{path}.bindingFailureConditions", failure_conditions, MAX_BINDING_CONDITIONS, label_name)
    unique(errors, f"{path}.bindingConditions", conditions)
    awaited, seen = set(conditions), set()
    for index, condition in enumerate(failure_conditions):
        here = f"{path}.bindingFailureConditions[{index}]"
        if condition in seen:
            errors.duplicate(here, condition)
        seen.add(condition)
        if condition in awaited:
            errors.invalid(here, condition, "bindingFailureConditions must not overlap with bindingConditions")
    if failure_conditions and not conditions:
        text = "bindingConditions are required to use bindingFailureConditions"
        errors.invalid(f"{path}.bindingConditions", conditions, text)
    if conditions and not failure_conditions:
        text = "bindingFailureConditions are required to use bindingConditions"
        errors.invalid(f"{path}.bindingFailureConditions", failure_conditions, text)


def conditions(errors: ErrorList, path: str, items: Sequence[Condition], release: Release) -> None:
    """Check that conditions have distinct types and that each is complete."""
    newer = release.has_newer_metadata_rules
    types = set()
    for index, condition in enumerate(items):
        here = f"{path}[{index}]"
        if condition.type in types:
            errors.duplicate(here if newer else f"{here}.type", condition.type)
        types.add(condition.type)
        if newer and not condition.type:
            errors.required(f"{here}.type", "is required")
        else:
            label_name(errors, f"{here}.type", condition.type)
        if newer and not condition.status:
            errors.required(f"{here}.status")
        elif condition.status not in ("True", "False", "Unknown"):
            errors.not_supported(f"{here}.status", condition.status, ["False", "True", "Unknown"])
        if condition.observed_generation < 0:
            errors.invalid(
                f"{here}.observedGeneration", condition.observed_generation, "must be greater than or equal to zero"
            )
        if condition.last_transition_time is None:
            errors.required(f"{here}.lastTransitionTime")
        if not condition.reason:
            errors.required(f"{here}.reason")
        else:
            add_invalid(errors, f"{here}.reason", condition.reason, names.condition_reason(condition.reason))
            if names.size(condition.reason) > MAX_CONDITION_REASON:
                errors.too_long(f"{here}.reason", MAX_CONDITION_REASON)
        if names.size(condition.message) > MAX_CONDITION_MESSAGE:
            errors.too_long(f"{here}.message", MAX_CONDITION_MESSAGE)
