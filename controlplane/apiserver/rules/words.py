"""A field that knows some words: it must have one of them."""

from typing import Any

from resourceapi.objects import ErrorList


def check_known(errors: ErrorList, path: str, value: Any, words: list[str]) -> None:
    """One of the words, which are shown in their order."""
    if not value:
        errors.required(path)
    elif value not in words:
        errors.not_supported(path, value, words)


def check_optional(errors: ErrorList, path: str, value: Any, words: list[str]) -> None:
    """One of the words, or none at all; an empty one is another one."""
    if value is not None and value not in words:
        errors.not_supported(path, value, words)
