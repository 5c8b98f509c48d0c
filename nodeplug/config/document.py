"""The strict reader: it checks a tree against the types of schema.py and reports every deviation with its place.

A value must be written with its type. YAML reads 0403 as a number and `no` as false; as texts they must be in quotes,
whatever version of YAML another tool uses.
"""

import re
from collections.abc import Collection, Iterable
from collections.abc import Mapping as Keys
from typing import Any, TypeAlias

import msgspec.inspect as mi
import yaml

from nodeplug.config.errors import Finding
from nodeplug.config.tree import Mapping, Node, Scalar, Sequence

Path: TypeAlias = tuple[str | int, ...]
"""The place of a value: ("resources", 0, "name")."""
Hints: TypeAlias = Keys[type, Keys[str, str]]
"""Hints for unknown keys, by the Struct that does not have them."""

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+")  # as YAML 1.2 does
_NO_SPACE = re.compile(r"([A-Za-z]+:)(?=[^\s:])")  # a key whose value follows at once: YAML takes both for one text
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BOOLEANS = ("true", "false")
_TRUTHS = frozenset({*_BOOLEANS, "yes", "no", "on", "off", "y", "n"})
_TAGS = {"int": "a number", "float": "a number", "timestamp": "a date"}  # as YAML 1.1 does
_SEE = re.compile(r",? see \[[^]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_MISSING: Any = object()
_FORMS = {
    "^/": "an absolute path",
    "^(/.*)?$": "an absolute path",
    "^(/.{0,100})?$": "an absolute path of at most 100 characters",
    "^(/.*|unchecked)?$": "an absolute path, or `unchecked`",
    "^(.*:[0-9]{1,5})?$": "HOST:PORT or :PORT",
    "^0?[0-7]{3}$": "three octal digits",
    "^[rwm]{1,3}$": "made of the letters r, w and m",
}
"""The patterns of schema.py, as text."""


class Document:
    """The content of a file, as plain values; `findings` has every deviation from the types."""

    def __init__(self, root: Node, wanted: type, hints: Hints | None = None) -> None:
        """Read `root` as a `wanted`, which is a Struct; `hints` are for unknown keys of it, or of a Struct in it."""
        self._hints = hints or {}
        self.findings: list[Finding] = []
        self._marks: dict[Path, tuple[int, int]] = {}
        self._key_marks: dict[Path, tuple[int, int]] = {}
        self._wrong: list[Path] = []
        found = self._value(root, mi.type_info(wanted), (), "")
        self.value: dict[str, Any] = {} if found is _MISSING else found

    def at(self, path: Path, message: str, hint: str = "", *, key: bool = False) -> None:
        """Add a finding at the value at `path`, or at its key, or at the nearest written value around it."""
        marks = self._key_marks if key and path in self._key_marks else self._marks
        self._wrong.append(path)
        while path and path not in marks:
            path = path[:-1]
        self.findings.append(Finding(*marks.get(path, (1, 1)), message, hint))

    def is_wrong(self, path: Path) -> bool:
        """Return whether there is a finding at or below `path`."""
        return any(wrong[: len(path)] == path for wrong in self._wrong)

    def _value(self, node: Node, wanted: mi.Type, path: Path, help_text: str) -> Any:
        self._marks[path] = (node.line, node.column)
        options = list(options_of(wanted))
        if isinstance(node, Scalar):
            return self._scalar(node, options, path, help_text)
        if isinstance(node, Sequence):
            for option in options:
                if isinstance(option, mi.VarTupleType):
                    items = [self._value(x, option.item_type, (*path, i), help_text) for i, x in enumerate(node.items)]
                    return [None if item is _MISSING else item for item in items]  # keeps the indices of the others
        else:
            for option in options:
                if isinstance(option, mi.StructType):
                    return self._struct(node, option, path)
                if isinstance(option, mi.DictType):
                    return self._dict(node, option, path, help_text)
        found = "a list" if isinstance(node, Sequence) else "a mapping"
        return self._wrong_type(path, f"this must be {_wanted(options)}, not {found}", help_text)

    def _struct(self, node: Mapping, wanted: mi.StructType, path: Path) -> dict[str, Any]:
        fields = {field.encode_name: field for field in wanted.fields}
        values: dict[str, Any] = {}
        misspelt: set[str] = set()
        for key, value in node.entries:
            inner = (*path, key.text)
            self._key_marks[inner] = (key.line, key.column)
            field = fields.get(key.text)
            if field is None:
                hint = self._hints.get(wanted.cls, {}).get(key.text) or suggestion(key.text, fields)
                self.at(inner, f"unknown key {key.text}", hint, key=True)
                misspelt.add(similar_name(key.text, fields))
                continue
            found = self._value(value, field.type, inner, _description(field.type))
            if found is not _MISSING:
                values[key.text] = found
        written = {key.text for key, _ in node.entries}
        for name, field in fields.items():
            if field.required and name not in written | misspelt:
                self.at(path, f"the key {name} is missing", _description(field.type))
        return values

    def _dict(self, node: Mapping, wanted: mi.DictType, path: Path, help_text: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.entries:
            inner = (*path, key.text)
            self._key_marks[inner] = (key.line, key.column)
            found = self._value(value, wanted.value_type, inner, help_text)
            if found is not _MISSING:
                values[key.text] = found
        return values

    def _scalar(self, node: Scalar, options: list[mi.Type], path: Path, help_text: str) -> Any:
        text = node.text
        texts = [option for option in options if isinstance(option, mi.StrType | mi.LiteralType)]
        integer = next((option for option in options if isinstance(option, mi.IntType)), None)
        taken_for = _yaml_type(text) if node.plain else ""
        if taken_for == "nothing":
            return self._wrong_type(path, "this has no value", f"give {_wanted(options)} or leave the key out")
        if taken_for == "a truth value" and any(isinstance(option, mi.BoolType) for option in options):
            if text.lower() in _BOOLEANS:
                return text.lower() == "true"
            return self._wrong_type(path, f"{text} can mean true, false or a text", "write true or false")
        if taken_for == "a number" and integer and _INTEGER.fullmatch(text):
            return self._integer(int(text), integer, path, help_text)
        is_open = any(isinstance(option, mi.StrType) for option in texts)
        if taken_for == "a number" and integer and re.fullmatch(r"-?[0-9]{20,}", text):
            return self._wrong_type(path, f"{text} has more digits than any number here", help_text)
        if taken_for and is_open:
            return self._wrong_type(path, f"YAML takes {text} for {taken_for}", f'write it in quotes: "{text}"')
        is_quoted = not node.plain and text in _BOOLEANS and any(isinstance(option, mi.BoolType) for option in options)
        if not is_open and (taken_for or is_quoted or not texts):
            hint = "leave the quotes out" if not node.plain and _yaml_type(text) else help_text
            if node.plain and _NO_SPACE.match(text) and any(isinstance(option, mi.StructType) for option in options):
                hint = "write a space after the colon: " + _NO_SPACE.sub(r"\1 ", text.split()[0])
            unit = " of seconds" if path and str(path[-1]).endswith("Seconds") else ""
            return self._wrong_type(path, f"this must be {_wanted(options)}{unit}, not {_quoted(text)}", hint)
        return self._text(text, options, path, help_text)

    def _integer(self, number: int, wanted: mi.IntType, path: Path, help_text: str) -> Any:
        if wanted.ge is not None and number < wanted.ge:
            return self._wrong_type(path, f"{number} is less than {wanted.ge}", help_text)
        if wanted.le is not None and number > wanted.le:
            return self._wrong_type(path, f"{number} is more than {wanted.le}", help_text)
        return number

    def _text(self, text: str, wanted: list[mi.Type], path: Path, help_text: str) -> Any:
        if _CONTROL.search(text):
            return self._wrong_type(
                path, "this text has a control character", "line breaks are control characters, too"
            )
        choices: list[str] = []
        for option in wanted:
            if isinstance(option, mi.LiteralType):
                choices += [str(value) for value in option.values]
            elif isinstance(option, mi.StrType) and (option.pattern is None or re.search(option.pattern, text)):
                return text
        if text in choices:
            return text
        if choices:
            booleans = _BOOLEANS if any(isinstance(option, mi.BoolType) for option in wanted) else ()
            return self._wrong_type(path, f"unknown value {_quoted(text)}", suggestion(text, (*choices, *booleans)))
        pattern = next((x.pattern for x in wanted if isinstance(x, mi.StrType)), None)
        return self._wrong_type(path, f"{_quoted(text)} must be {_FORMS[pattern or '']}", help_text)

    def _wrong_type(self, path: Path, message: str, hint: str) -> Any:
        self.at(path, message, hint)
        return _MISSING


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the known name that was probably meant, as a question; else all of them if they are few."""
    names = sorted(known)
    if question := did_you_mean(name, names):
        return question
    return f"known are {', '.join(names)}" if 0 < len(names) <= 24 else ""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return the known name that was probably meant, as a question; empty if none is similar."""
    return f"did you mean {near}?" if (near := similar_name(name, known)) else ""


def similar_name(name: str, known: Collection[str]) -> str:
    """Return the known name that was probably meant; empty if none is similar.

    Names in one domain, such as resources, are compared by the part after it.
    """
    import difflib  # imported here: only mistakes need it

    domain = "".join(name.rpartition("/")[:2])
    if domain and (own := {each[len(domain) :] for each in known if each.startswith(domain)}):
        near = difflib.get_close_matches(name[len(domain) :], own, n=1, cutoff=0.6)
        return domain + near[0] if near else ""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return near[0] if near else {each.lower(): each for each in known}.get(name.lower(), "")


def options_of(wanted: mi.Type) -> Iterable[mi.Type]:
    """Yield the types that a value can have, without unions and metadata."""
    if isinstance(wanted, mi.Metadata):
        yield from options_of(wanted.type)
    elif isinstance(wanted, mi.UnionType):
        for option in wanted.types:
            yield from options_of(option)
    else:
        yield wanted


def _description(wanted: mi.Type) -> str:
    """Return the reference's description of a value, as the end of a message: its first sentence, or its choices.

    Links to other parts of the page are removed.
    """
    text: str = (wanted.extra_json_schema or {}).get("description", "") if isinstance(wanted, mi.Metadata) else ""
    text = _LINK.sub(r"\1", _SEE.sub("", text))
    if text.startswith("`"):
        return text
    first = text.partition(". ")[0].removesuffix(".")
    return first if first[1:2].isupper() else first[:1].lower() + first[1:]  # except for an abbreviation


def _wanted(options: Iterable[mi.Type]) -> str:
    words: dict[str, None] = {}
    for option in options:
        match option:
            case mi.StrType():
                words["a text"] = None
            case mi.LiteralType():
                one_of = "one of " if len(option.values) > 1 else ""
                words[one_of + ", ".join(str(value) for value in option.values)] = None
            case mi.IntType():
                words["a whole number"] = None
            case mi.BoolType():
                words["true or false"] = None
            case mi.VarTupleType():
                words["a list"] = None
            case mi.StructType() | mi.DictType():
                words["a mapping"] = None
    return " or ".join(words)


def _yaml_type(text: str) -> str:
    """Return the type that YAML 1.1 or 1.2 assigns to a plain text; empty if both take it for a text."""
    if text.lower() in ("", "~", "null"):
        return "nothing"
    if text.lower() in _TRUTHS:
        return "a truth value"
    if _NUMBER.fullmatch(text):
        return "a number"
    for tag, pattern in yaml.SafeLoader.yaml_implicit_resolvers.get(text[0], []):
        if pattern.match(text):
            return _TAGS.get(tag.rpartition(":")[2], "")
    return ""


def _quoted(text: str) -> str:
    return f'"{text[:60]}..."' if len(text) > 60 else f'"{text}"'
