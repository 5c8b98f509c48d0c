"""Parses RE2 patterns to trees, with the error messages of Go's regexp/syntax.

RE2 has no back references and no look-around, so every pattern can be matched in time linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

_MAX_REPEAT = 1000
_MAX_DEPTH = 1000
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_MAX_CODE = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]


class RegexError(Exception):
    """The pattern is not RE2 syntax; the message is Go's."""

    def __init__(self, problem: str, where: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{where}`")


class Chars(NamedTuple):
    """Matches one character that is in one of the ranges or has one of the properties; `negated` inverts that.

    `fold` ignores case.
    """

    ranges: Ranges
    properties: tuple[tuple[str, bool], ...] = ()
    negated: bool = False
    fold: bool = False


class Assertion(NamedTuple):
    """`kind` is begin_text, end_text, begin_line, end_line, word or not_word."""

    kind: str


class Sequence(NamedTuple):
    """Matches the parts one after the other; without parts, the empty text."""

    parts: tuple[Regex, ...]


class Choice(NamedTuple):
    """Matches the first part that leads to a match."""

    parts: tuple[Regex, ...]


class Repeat(NamedTuple):
    """Matches `part` from `least` to `most` times (None: no limit); as often as possible, as rarely with `lazy`."""

    part: Regex
    least: int
    most: int | None
    lazy: bool


Regex = Chars | Assertion | Sequence | Choice | Repeat

_DIGIT: Ranges = ((48, 57),)
_SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_SIMPLE_ESCAPES = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ANY: Ranges = ((0, _MAX_CODE),)
_NOT_NEWLINE: Ranges = ((0, 9), (11, _MAX_CODE))
_CATEGORIES = frozenset(
    {
        *("C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No"),
        *("P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"),
    }
)
# A character's script is found from its name, because Python's standard library has no script property.
_SCRIPTS = frozenset(
    {
        *("Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati"),
        *("Gurmukhi", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer", "Lao", "Latin", "Malayalam"),
        *("Mongolian", "Myanmar", "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan"),
    }
)
_COUNT = r"0|[1-9]\d*"
_REPEAT = re.compile(rf"\{{({_COUNT})(,({_COUNT})?)?\}}", re.ASCII)  # {01} is text
_NAMED_GROUP = re.compile(r"\(\?P?<([^>]*)>")
_GROUP_NAME = re.compile(r"[A-Za-z0-9_]+", re.ASCII)


def has_property(char: str, name: str) -> bool:
    """Return whether a character belongs to a Unicode category or script."""
    if name in _CATEGORIES:
        return unicodedata.category(char).startswith(name)
    if name == "Han":
        return unicodedata.name(char, "").startswith("CJK ")
    return unicodedata.name(char, "").startswith(name.upper() + " ")


def parse_regex(pattern: str) -> Regex:
    """Parse a pattern. Raises RegexError."""
    return _Parser(pattern).parse()


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._flags = {"i": False, "m": False, "s": False, "U": False}
        self._depth = 0

    def parse(self) -> Regex:
        tree = self._choice()
        if self._at < len(self._pattern):
            raise RegexError("unexpected )", self._pattern)
        return tree

    def _rest(self) -> str:
        return self._pattern[self._at :]

    def _looking_at(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _choice(self) -> Regex:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise RegexError("expression nests too deeply", self._pattern)
        options = [self._sequence()]
        while self._looking_at("|"):
            self._at += 1
            options.append(self._sequence())
        self._depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Regex:
        parts: list[Regex] = []
        repeated_from: int | None = None  # start of the repetition operator that ends the last part
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            start = self._at
            if self._pattern[start] in "*+?" or (self._pattern[start] == "{" and self._repeat_bounds() is not None):
                self._repeat(parts, start, repeated_from)
                repeated_from = start if repeated_from is None else repeated_from
                continue
            repeated_from = None
            self._atom(parts)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeat_bounds(self) -> tuple[int, int | None, int] | None:
        match = _REPEAT.match(self._pattern, self._at)
        if match is None:
            return None
        least = int(match[1]) if len(match[1]) < 8 else 10**8
        if match[2] is None:
            most: int | None = least
        elif not match[3]:
            most = None
        else:
            most = int(match[3]) if len(match[3]) < 8 else 10**8
        return least, most, match.end()

    def _repeat(self, parts: list[Regex], start: int, repeated_from: int | None) -> None:
        operator = self._pattern[start]
        if operator == "{":
            bounds = self._repeat_bounds()
            assert bounds is not None
            least, most, self._at = bounds
            text = self._pattern[start : self._at]
            if max(least, most or 0) > _MAX_REPEAT or (most is not None and most < least):
                raise RegexError("invalid repeat count", text)
        else:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[operator]
            self._at += 1
        lazy = self._flags["U"]
        if self._looking_at("?"):
            self._at += 1
            lazy = not lazy
        if repeated_from is not None:
            raise RegexError("invalid nested repetition operator", self._pattern[repeated_from : self._at])
        if not parts:
            raise RegexError("missing argument to repetition operator", self._pattern[start : self._at])
        if operator == "{" and not _repeats_at_most(parts[-1], _MAX_REPEAT // max(least, most or 1, 1)):
            raise RegexError("invalid repeat count", self._pattern[start : self._at])
        parts[-1] = Repeat(parts[-1], least, most, lazy)

    def _atom(self, parts: list[Regex]) -> None:
        char = self._pattern[self._at]
        match char:
            case "(":
                self._group(parts)
            case "[":
                parts.append(self._class())
            case ".":
                self._at += 1
                parts.append(Chars(_ANY if self._flags["s"] else _NOT_NEWLINE))
            case "^":
                self._at += 1
                parts.append(Assertion("begin_line" if self._flags["m"] else "begin_text"))
            case "$":
                self._at += 1
                parts.append(Assertion("end_line" if self._flags["m"] else "end_text"))
            case "\\":
                self._escape(parts)
            case _:
                self._at += 1
                parts.append(self._literal(ord(char)))

    def _literal(self, code: int) -> Chars:
        return Chars(((code, code),), fold=self._flags["i"])

    def _group(self, parts: list[Regex]) -> None:
        before = dict(self._flags)
        if self._looking_at("(?"):
            if not self._open_special():
                return  # only flags for the following text, no group
        else:
            self._at += 1
        part = self._choice()
        if not self._looking_at(")"):
            raise RegexError("missing closing )", self._pattern)
        self._at += 1
        self._flags = before
        parts.append(part)

    def _open_special(self) -> bool:
        """Read the text after `(?`; return whether it opens a group."""
        named = _NAMED_GROUP.match(self._pattern, self._at)
        if self._looking_at("(?P<") or self._looking_at("(?<"):
            if named is None:
                raise RegexError("invalid named capture", self._rest())
            if not _GROUP_NAME.fullmatch(named[1]):
                raise RegexError("invalid named capture", named.group())
            self._at = named.end()
            return True
        start = self._at
        self._at += 2
        value, changed = True, False
        flags = dict(self._flags)
        while self._at < len(self._pattern):
            char = self._pattern[self._at]
            self._at += 1
            if char in flags:
                flags[char] = value
                changed = True
            elif char == "-" and value:
                value, changed = False, False
            elif char in ":)" and (value or changed):
                self._flags = flags
                return char == ":"
            else:
                raise RegexError("invalid or unsupported Perl syntax", self._pattern[start : self._at])
        raise RegexError("invalid or unsupported Perl syntax", self._pattern[start:])

    # --- escapes and classes

    def _escape(self, parts: list[Regex]) -> None:
        following = self._pattern[self._at + 1 : self._at + 2]
        if following in ("A", "z", "b", "B"):
            self._at += 2
            kinds = {"A": "begin_text", "z": "end_text", "b": "word", "B": "not_word"}
            parts.append(Assertion(kinds[following]))
            return
        if following == "Q":
            end = self._pattern.find("\\E", self._at + 2)
            quoted = self._pattern[self._at + 2 : end if end >= 0 else None]
            self._at = end + 2 if end >= 0 else len(self._pattern)
            parts.extend(self._literal(ord(char)) for char in quoted)
            return
        found = self._class_escape()
        if found is not None:
            parts.append(found)
            return
        parts.append(self._literal(self._escaped_code()))

    def _class_escape(self) -> Chars | None:
        """Read a class escape such as \\d or \\pL; None if there is none."""
        letter = self._pattern[self._at + 1 : self._at + 2]
        if letter and letter.lower() in _PERL:
            self._at += 2
            return Chars(_PERL[letter.lower()], negated=letter.isupper(), fold=self._flags["i"])
        if letter in ("p", "P"):
            return self._property(letter == "P")
        return None

    def _property(self, negated: bool) -> Chars:
        start = self._at
        if self._pattern[start + 2 : start + 3] == "{":
            end = self._pattern.find("}", start)
            if end < 0:
                raise RegexError("invalid character class range", self._pattern[start:])
            name = self._pattern[start + 3 : end]
            self._at = end + 1
        else:
            name = self._pattern[start + 2 : start + 3]
            self._at = start + 3
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        if name == "Any":
            return Chars(_ANY, negated=negated)
        if name not in _CATEGORIES and name not in _SCRIPTS and name != "Han":
            raise RegexError("invalid character class range", self._pattern[start : self._at])
        return Chars((), ((name, True),), negated, self._flags["i"])

    def _escaped_code(self) -> int:
        start = self._at
        self._at += 2
        char = self._pattern[start + 1 : self._at]
        if not char:
            raise RegexError("trailing backslash at end of expression", "")
        rest = self._rest()
        if (char in "1234567" and rest[:1] and rest[0] in "01234567") or char == "0":
            digits = re.match(r"[0-7]{0,2}", rest)
            assert digits is not None
            self._at += digits.end()
            return int(char + digits.group(), 8)
        if char == "x":
            return self._hex_code(start)
        if char in _SIMPLE_ESCAPES:
            return _SIMPLE_ESCAPES[char]
        if char.isascii() and not char.isalnum():
            return ord(char)
        raise RegexError("invalid escape sequence", "\\" + char)

    def _hex_code(self, start: int) -> int:
        """Read the code after `\\x`: two digits, or any number in braces. Errors show the text read so far."""
        if not self._looking_at("{"):
            digits = self._rest()[:2]
            self._at += len(digits)
            if len(digits) == 2 and set(digits) <= _HEX_DIGITS:
                return int(digits, 16)
            raise RegexError("invalid escape sequence", self._pattern[start : self._at])
        self._at += 1
        code = digit_count = 0
        while (digit := self._pattern[self._at : self._at + 1]) and code <= _MAX_CODE:
            self._at += 1
            if digit == "}" and digit_count:
                return code
            if digit not in _HEX_DIGITS:
                break
            code, digit_count = code * 16 + int(digit, 16), digit_count + 1
        raise RegexError("invalid escape sequence", self._pattern[start : self._at])

    def _class(self) -> Chars:
        start = self._at
        self._at += 1
        negated = self._looking_at("^")
        self._at += negated
        ranges: list[tuple[int, int]] = []
        properties: list[tuple[str, bool]] = []
        first = True
        while first or not self._looking_at("]"):
            if self._at >= len(self._pattern):
                raise RegexError("missing closing ]", self._pattern[start:])
            first = False
            if not self._class_item(ranges, properties):
                self._class_range(start, ranges)
        self._at += 1
        return Chars(tuple(ranges), tuple(properties), negated, self._flags["i"])

    def _class_item(self, ranges: list[tuple[int, int]], properties: list[tuple[str, bool]]) -> bool:
        if self._looking_at("[:"):
            end = self._pattern.find(":]", self._at + 2)
            if end >= 0:
                name = self._pattern[self._at + 2 : end]
                bare = name.removeprefix("^")
                if bare not in _POSIX:
                    raise RegexError("invalid character class range", self._pattern[self._at : end + 2])
                self._at = end + 2
                ranges.extend(_complement(_POSIX[bare]) if name.startswith("^") else _POSIX[bare])
                return True
        if self._looking_at("\\"):
            found = self._class_escape()
            if found is not None:
                if found.properties:
                    properties.append((found.properties[0][0], not found.negated))
                else:
                    ranges.extend(_complement(found.ranges) if found.negated else found.ranges)
                return True
        return False

    def _class_range(self, start: int, ranges: list[tuple[int, int]]) -> None:
        begin = self._at
        low = high = self._class_code(start)
        if self._looking_at("-") and not self._pattern.startswith("-]", self._at):
            self._at += 1
            if self._at >= len(self._pattern):
                raise RegexError("missing closing ]", self._pattern[start:])
            high = self._class_code(start)
            if high < low:
                raise RegexError("invalid character class range", self._pattern[begin : self._at])
        ranges.append((low, high))

    def _class_code(self, start: int) -> int:
        if self._at >= len(self._pattern):
            raise RegexError("missing closing ]", self._pattern[start:])
        if self._looking_at("\\"):
            return self._escaped_code()
        self._at += 1
        return ord(self._pattern[self._at - 1])


def _complement(ranges: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    at = 0
    for low, high in sorted(ranges):
        if low > at:
            found.append((at, low - 1))
        at = max(at, high + 1)
    if at <= _MAX_CODE:
        found.append((at, _MAX_CODE))
    return tuple(found)


def _repeats_at_most(tree: Regex, budget: int) -> bool:
    """Return whether the product of nested repetition counts is within the budget."""
    if budget < 1:
        return False
    match tree:
        case Repeat():
            times = max(tree.least, tree.most or 1, 1)
            return times <= budget and _repeats_at_most(tree.part, budget // times)
        case Sequence() | Choice():
            return all(_repeats_at_most(part, budget) for part in tree.parts)
        case _:
            return True


Predicate = Callable[[str], bool]


def predicate(chars: Chars) -> Predicate:
    """Return a function that tests one character."""
    ranges, properties, negated = chars.ranges, chars.properties, chars.negated

    def plain(char: str) -> bool:
        code = ord(char)
        return any(low <= code <= high for low, high in ranges) or any(
            has_property(char, name) is wanted for name, wanted in properties
        )

    def test(char: str) -> bool:
        return plain(char) is not negated

    def folded(char: str) -> bool:
        return any(map(plain, variants(char))) is not negated

    return folded if chars.fold else test


def variants(char: str) -> set[str]:
    """Return the character and those that differ from it only in case."""
    found = {char, char.lower(), char.upper()}
    found |= {each.lower() for each in found} | {each.upper() for each in found}
    if "k" in found:
        found.add("\u212a")
    if "s" in found:
        found.add("\u017f")
    if "\u212a" in found or "\u017f" in found:
        found |= {each.lower() for each in found} | {each.upper() for each in found}
    return {each for each in found if len(each) == 1}
