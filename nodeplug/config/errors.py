"""Errors of a configuration: every finding has its place, and is printed like a compiler error."""

from msgspec import Struct


class Finding(Struct, frozen=True, order=True):
    """One mistake; line and column count from 1. `hint` is the way to correct it."""

    line: int
    column: int
    message: str
    hint: str = ""


class ConfigError(Exception):
    """A configuration cannot be used; `findings` has all its mistakes, in the order of the file."""

    def __init__(self, source: str, findings: list[Finding]) -> None:
        """Keep the findings about the file `source`."""
        self.source = source
        self.findings = tuple(sorted(set(findings)))
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Return `file:line:column: message; hint` for each finding, without control characters."""
        texts = (f"{x.message}; {x.hint}" if x.hint else x.message for x in self.findings)
        places = (f"{self.source}:{x.line}:{x.column}: " for x in self.findings)
        return ["".join(map(_visible, place + text)) for place, text in zip(places, texts, strict=True)]


class ConfigUnreadable(ConfigError):
    """The file exists and cannot be read now: the disk fails, or too many files are open.

    A later attempt can succeed.
    """


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
