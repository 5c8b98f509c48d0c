"""The check of device selectors for validation: connects the rules in `objects` with the compiler in `cel`.

validate_create(claim, check_selector=check_device_selector)
"""

import functools

from resourceapi.cel import CelCompileError, Environment, compile_selector, device_environment
from resourceapi.objects.class_rules import SelectorCheck


def check_device_selector(expression: str, stored: bool) -> SelectorCheck:
    """Compile a selector in the environment for new or for stored expressions."""
    try:
        return SelectorCheck(cost=compile_selector(expression, _environment(stored)).max_cost)
    except CelCompileError as error:
        return SelectorCheck(error=str(error), is_internal=error.kind == "internal")


@functools.cache
def _environment(stored: bool) -> Environment:
    return device_environment(stored=stored)
