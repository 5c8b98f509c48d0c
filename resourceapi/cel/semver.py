"""Semantic versions: strict parsing and precedence, as github.com/blang/semver v4 does it.

Precedence ignores build metadata; a version with a prerelease is lower than the same version without.
"""

from __future__ import annotations

import re
from functools import total_ordering

from resourceapi.objects.errors import quoted_text

_DIGITS = frozenset("0123456789")
_ALPHANUM = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")
_MAX_UINT64 = 2**64 - 1


class SemverError(ValueError):
    """The text is not a semantic version; the message is upstream's."""


@total_ordering
class Semver:
    """An immutable version. Equality and order follow precedence, so `1.0.0+a == 1.0.0+b`."""

    __slots__ = ("_key", "build", "major", "minor", "patch", "prerelease")

    def __init__(
        self, major: int, minor: int, patch: int, prerelease: tuple[str, ...] = (), build: tuple[str, ...] = ()
    ) -> None:
        self.major = major
        self.minor = minor
        self.patch = patch
        self.prerelease = prerelease
        self.build = build
        # Numeric identifiers are lower than alphanumeric ones; the final flag puts a release above its prereleases.
        identifiers = tuple((0, int(each), "") if set(each) <= _DIGITS else (1, 0, each) for each in prerelease)
        self._key = (major, minor, patch, not prerelease, identifiers)

    @classmethod
    def parse(cls, text: str) -> Semver:
        """Parse MAJOR.MINOR.PATCH[-PRERELEASE][+BUILD]. Raises SemverError."""
        if not text:
            raise SemverError("Version string empty")
        parts = text.split(".", 2)
        if len(parts) != 3:
            raise SemverError("No Major.Minor.Patch elements found")
        major, minor = _number("Major", parts[0]), _number("Minor", parts[1])
        rest, plus, build_text = parts[2].partition("+")
        patch_text, dash, prerelease_text = rest.partition("-")
        patch = _number("Patch", patch_text)
        prerelease = tuple(_prerelease(each) for each in prerelease_text.split(".")) if dash else ()
        build = tuple(_build(each) for each in build_text.split(".")) if plus else ()
        return cls(major, minor, patch, prerelease, build)

    @classmethod
    def parse_tolerant(cls, text: str) -> Semver:
        """Parse after dropping one leading `v` and leading zeros, and adding missing parts. Raises SemverError."""
        parts = text.removeprefix("v").split(".", 2)
        for index, part in enumerate(parts):
            if len(part.encode()) > 1:
                stripped = part.lstrip("0")
                parts[index] = stripped if stripped and stripped[0] in _DIGITS else "0" + stripped
        if len(parts) < 3:
            if re.search("[+-]", parts[-1]):
                raise SemverError("short version cannot contain PreRelease/Build meta data")
            parts += ["0"] * (3 - len(parts))
        return cls.parse(".".join(parts))

    def compare(self, other: Semver) -> int:
        """Return -1, 0 or 1 by precedence."""
        return (self._key > other._key) - (self._key < other._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key == other._key

    def __lt__(self, other: Semver) -> bool:
        return self._key < other._key

    def __gt__(self, other: Semver) -> bool:
        return self._key > other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(self.prerelease)
        if self.build:
            text += "+" + ".".join(self.build)
        return text

    def __repr__(self) -> str:
        return f"Semver.parse({str(self)!r})"


def _number(name: str, text: str) -> int:
    if not set(text) <= _DIGITS:
        raise SemverError(f"Invalid character(s) found in {name.lower()} number {quoted_text(text)}")
    if len(text) > 1 and text.startswith("0"):
        raise SemverError(f"{name} number must not contain leading zeroes {quoted_text(text)}")
    if not text:
        raise SemverError('strconv.ParseUint: parsing "": invalid syntax')
    return _uint64(text)


def _uint64(text: str) -> int:
    if len(text) > 20 or int(text) > _MAX_UINT64:
        raise SemverError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _prerelease(text: str) -> str:
    if not text:
        raise SemverError("Prerelease is empty")
    if set(text) <= _DIGITS:
        if len(text) > 1 and text.startswith("0"):
            raise SemverError(f"Numeric PreRelease version must not contain leading zeroes {quoted_text(text)}")
        return str(_uint64(text))
    if not set(text) <= _ALPHANUM:
        raise SemverError(f"Invalid character(s) found in prerelease {quoted_text(text)}")
    return text


def _build(text: str) -> str:
    if not text:
        raise SemverError("Build meta data is empty")
    if not set(text) <= _ALPHANUM:
        raise SemverError(f"Invalid character(s) found in build meta data {quoted_text(text)}")
    return text
