"""The rules of relative paths in objects, which must not lead out of their folder.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateLocalDescendingPath,
ValidateLocalNonReservedPath).
"""

from resourceapi.objects import ErrorList

_UP = ".."


def check_no_parent_steps(errors: ErrorList, path: str, text: str) -> None:
    """Check that a path does not contain `..`."""
    if _UP in text.split("/"):
        errors.invalid(path, text, "must not contain '..'")


def check_relative_path(errors: ErrorList, path: str, text: str) -> None:
    """Check that a path is relative and does not contain `..`."""
    if text.startswith("/"):
        errors.invalid(path, text, "must be a relative path")
    check_no_parent_steps(errors, path, text)


def check_local(errors: ErrorList, path: str, text: str) -> None:
    """Check the path of a file in a volume. Names that begin with two dots are reserved for the kubelet."""
    check_relative_path(errors, path, text)
    if text.startswith(_UP) and not text.startswith(f"{_UP}/"):
        errors.invalid(path, text, "must not start with '..'")
