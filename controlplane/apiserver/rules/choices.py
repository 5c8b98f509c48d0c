"""Checks of enumerated values."""

from typing import Any

from resourceapi.objects import ErrorList


def check_choice(errors: ErrorList, path: str, value: Any, words: list[str]) -> None:
    """Check a required value, which must be one of the words. Errors show the words in this order."""
    if not value:
        errors.required(path)
    elif value not in words:
        errors.not_supported(path, value, words)


def check_optional_choice(errors: ErrorList, path: str, value: Any, words: list[str]) -> None:
    """Check an optional value, which must be one of the words. An empty text is a value too."""
    if value is not None and value not in words:
        errors.not_supported(path, value, words)
