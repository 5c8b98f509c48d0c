"""Matching of LabelSelector objects."""

from collections.abc import Mapping

from controlplane.apiserver.kinds import Plain
from resourceapi.objects.selectors import LabelSelector, Requirement

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def is_selected(selector: Plain, labels: Mapping[str, str] | None) -> bool:
    """Return whether labels match a LabelSelector object."""
    compiled = compile_selector(selector)
    return compiled is not None and compiled.matches(labels or {})


def compile_selector(selector: Plain) -> LabelSelector | None:
    """Return the selector of a LabelSelector object; None for one with an unknown operator, which matches nothing."""
    wanted = [Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        if each.get("operator") not in _OPERATORS:
            return None
        wanted.append(Requirement(str(each.get("key")), each["operator"], tuple(each.get("values") or ())))
    return LabelSelector(tuple(wanted))
