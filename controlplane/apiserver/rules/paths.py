"""What a path in an object may be: one that leads down from where it begins.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateLocalDescendingPath,
ValidateLocalNonReservedPath).
"""

from resourceapi.objects import ErrorList

_UP = ".."


def check_no_steps_back(errors: ErrorList, path: str, text: str) -> None:
    """A path that never leads up."""
    if _UP in text.split("/"):
        errors.invalid(path, text, "must not contain '..'")


def check_descending(errors: ErrorList, path: str, text: str) -> None:
    """A path that leads down from where it begins."""
    if text.startswith("/"):
        errors.invalid(path, text, "must be a relative path")
    check_no_steps_back(errors, path, text)


def check_local(errors: ErrorList, path: str, text: str) -> None:
    """A path of a file in a volume, whose names with two dots are the kubelet's own."""
    check_descending(errors, path, text)
    if text.startswith(_UP) and not text.startswith(f"{_UP}/"):
        errors.invalid(path, text, "must not start with '..'")
