"""Rules for device classes, and for device selectors wherever they appear (allocator.md 4.5).

This package does not compile expressions: the rules receive a function that does.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from resourceapi.objects import names, v1
from resourceapi.objects.errors import ErrorList
from resourceapi.objects.field_rules import MAX_CONFIGS, check_items, configuration, node_selector
from resourceapi.objects.release import LATEST, Release

MAX_SELECTORS = 32
MAX_EXPRESSION = 10 * 1024
MAX_COST = 1_000_000


class SelectorCheck(NamedTuple):
    """The result of compiling an expression: the error if it does not compile, otherwise its worst-case cost."""

    error: str = ""
    cost: int = 0
    is_internal: bool = False  # the error is not the expression author's fault


CheckSelector = Callable[[str, bool], SelectorCheck]
"""Compiles an expression. The second argument: whether it is stored already, so that newer features are allowed."""


def accept_selector(expression: str, stored: bool) -> SelectorCheck:  # noqa: ARG001 - it is a CheckSelector
    """Accept any expression: for callers that do not check expressions."""
    return SelectorCheck()


def class_spec(
    errors: ErrorList,
    path: str,
    spec: v1.DeviceClassSpec,
    old: v1.DeviceClassSpec | None,
    check: CheckSelector,
    release: Release = LATEST,
) -> None:
    """Check a class; unchanged selectors and configuration count as stored."""
    selectors_stored = old is not None and spec.selectors == old.selectors
    if selectors_stored and release.skips_unchanged_values:
        check = accept_selector
    selectors(errors, f"{path}.selectors", spec.selectors, check, stored=selectors_stored)
    config_stored = old is not None and spec.config == old.config

    def entry(errors: ErrorList, path: str, config: v1.DeviceClassConfiguration) -> None:
        configuration(errors, path, config.opaque, stored=config_stored)

    check_items(errors, f"{path}.config", spec.config, MAX_CONFIGS, entry)
    if spec.extended_resource_name is not None and not names.is_extended_resource(spec.extended_resource_name):
        text = "must be a valid extended resource name"
        errors.invalid(f"{path}.extendedResourceName", spec.extended_resource_name, text)
    if spec.suitable_nodes is not None:
        node_selector(errors, "suitableNodes", spec.suitable_nodes)  # 1.31's paths had no `spec`


def selectors(
    errors: ErrorList, path: str, items: Sequence[v1.DeviceSelector], check: CheckSelector, *, stored: bool = False
) -> None:
    """Check that selectors compile to a bool and that their cost is within the limit."""

    def rule(errors: ErrorList, path: str, selector: v1.DeviceSelector) -> None:
        if selector.cel is None:
            errors.required(f"{path}.cel")
            return
        expression = selector.cel.expression
        here = f"{path}.cel.expression"
        if names.size(expression) > MAX_EXPRESSION:
            errors.too_long(here, MAX_EXPRESSION)
            return
        verdict = check(expression, stored)
        if verdict.error and verdict.is_internal:
            errors.internal(here, verdict.error)
        elif verdict.error:
            errors.invalid(here, expression, verdict.error)
        elif verdict.cost > MAX_COST:
            errors.forbidden(here, "too complex, exceeds cost limit")

    check_items(errors, path, items, MAX_SELECTORS, rule)
