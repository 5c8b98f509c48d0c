"""What names an object of any kind, by its kind and its name.

Source: k8s.io/kubernetes pkg/apis/autoscaling/validation, pkg/apis/networking/validation.
"""

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import complaints
from resourceapi.objects.names import path_segment


def check_reference(errors: ErrorList, reference: Plain, path: str) -> None:
    """Both must be there, and be a step of a path."""
    for member in ("kind", "name"):
        if reference.get(member):
            complaints(errors, f"{path}.{member}", reference[member], path_segment(reference[member]))
        else:
            errors.required(f"{path}.{member}")
