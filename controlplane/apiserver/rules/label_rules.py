"""The rules of labels and label selectors. Source: k8s.io/apimachinery pkg/apis/meta/v1/validation."""

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import Token
from resourceapi.objects.field_rules import add_invalid, label_name
from resourceapi.objects.names import label_key, label_value


def check_labels(errors: ErrorList, path: str, labels: Plain | None) -> None:
    """Check labels."""
    for name, value in (labels or {}).items():
        label_name(errors, path, name)
        add_invalid(errors, path, value, label_value(value))


def check_annotation_keys(errors: ErrorList, path: str, annotations: Plain | None) -> None:
    """Check the keys of annotations."""
    for key in annotations or ():
        add_invalid(errors, path, key, label_key(key.lower()))


def check_selector(errors: ErrorList, path: str, selector: Plain | None) -> None:
    """Check a label selector."""
    check_labels(errors, f"{path}.matchLabels", (selector or {}).get("matchLabels"))
    for index, each in enumerate((selector or {}).get("matchExpressions") or ()):
        here, values, operator = f"{path}.matchExpressions[{index}]", each.get("values") or [], each.get("operator")
        if operator in ("In", "NotIn"):
            if not values:
                errors.required(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.forbidden(f"{here}.values", why)
        else:
            errors.invalid(f"{here}.operator", Token(operator or ""), "not a valid selector operator")
        label_name(errors, f"{here}.key", each.get("key") or "")
        for number, value in enumerate(values):
            add_invalid(errors, f"{here}.values[{number}]", value, label_value(value))
