"""Errors of YAML syntax in plain words, without the parser's names of tokens."""

import re

import yaml

_KEY_ALONE = re.compile(r"\s*([-A-Za-z0-9_.]+)")
_COLON = "a colon in a value; put a text with `: ` in quotes, and a key of its own on a line of its own"
_CLOSES = {"[": "]", "{": "}"}


def plain_message(error: yaml.MarkedYAMLError, text: str) -> str:
    """Return the meaning of `error` from the parser of `text`, and the correction if it is known."""
    problem, context = error.problem or error.context or "", error.context or ""
    begun = f"line {error.context_mark.line + 1}" if error.context_mark else "before"
    mark = error.problem_mark
    if "'\\t'" in problem:
        return "a tab; write spaces"
    if context in ("while scanning an alias", "while scanning an anchor") and error.context_mark:
        return _needs_quotes(text[error.context_mark.index])
    if "cannot start any token" in problem and mark:
        return _needs_quotes(text[mark.index])
    if context == "while scanning a quoted scalar" and problem.startswith("found unexpected"):
        return f"the quote in {begun} is not closed"
    if "<block end>" in problem:
        return f"the indentation does not fit what began in {begun}"
    if "<stream end>" in problem or problem.startswith("expected ',' or "):
        return _in_brackets(problem, text, mark)
    if problem.startswith("expected the node content, but found "):
        found = problem.rpartition(" ")[2].strip("'")
        return f"a value is missing before {found}; put a text with brackets, such as an address, in quotes"
    if "mapping values" in problem:
        if (key := _key_before(text, mark)) and key.start(1):
            return f"{key[1]} is indented further than the line before it; line it up with the keys that it belongs to"
        return _COLON
    return problem


def _needs_quotes(character: str) -> str:
    return f"put a text that begins with {character} in quotes"


def _key_before(text: str, mark: yaml.Mark | None) -> re.Match[str] | None:
    """Return the key that stands alone before a colon, if there is one."""
    return _KEY_ALONE.fullmatch(text.splitlines()[mark.line][: mark.column]) if mark else None


def _in_brackets(problem: str, text: str, mark: yaml.Mark | None) -> str:
    opened = _open_brackets(text, mark.index if mark else len(text))
    if not opened:
        return problem  # for a file that ends after its directives
    bracket, line = opened[-1]
    missing = f"or a {_CLOSES[bracket]} for the {bracket} in line {line}"
    if problem.endswith("got ':'"):
        key = _key_before(text, mark)
        is_below = mark is not None and mark.line >= line  # marks count from 0
        return f"a comma is missing before {key[1]}, {missing}" if key and is_below else _COLON
    if problem.endswith(("got '<scalar>'", "got '['", "got '{'")):
        return f"a comma is missing before this, {missing}"
    return f"the {bracket} in line {line} is not closed"


def _open_brackets(text: str, end: int) -> list[tuple[str, int]]:
    """Return the unclosed brackets before `end`, each with its line."""
    opened: list[tuple[str, int]] = []
    for token in yaml.scan(text, Loader=yaml.BaseLoader):
        if token.start_mark.index >= end:
            break
        if isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken):
            opened.append((text[token.start_mark.index], token.start_mark.line + 1))
        elif isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken):
            opened.pop()
    return opened
