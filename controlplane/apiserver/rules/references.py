"""References to objects of any kind, by kind and name.

Source: k8s.io/kubernetes pkg/apis/autoscaling/validation, pkg/apis/networking/validation.
"""

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.names import path_segment


def check_reference(errors: ErrorList, reference: Plain, path: str) -> None:
    """Check that kind and name exist, and are valid as a part of a path."""
    for member in ("kind", "name"):
        if reference.get(member):
            add_invalid(errors, f"{path}.{member}", reference[member], path_segment(reference[member]))
        else:
            errors.required(f"{path}.{member}")
