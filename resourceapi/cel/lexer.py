"""Splits a text into tokens.

The longest match wins, as in the reference grammar; white space and comments are dropped. Text that starts no token is
reported as a syntax error and skipped.
"""

import re

from msgspec import Struct

from resourceapi.cel.errors import SYNTAX_ERROR, Issues

_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_TOKEN = re.compile(
    r"(?P<skip>[\t \r\n\f]+|//[^\n]*)"
    r"|(?P<FLOAT>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<UINT>0x[0-9a-fA-F]+[uU]|\d+[uU])"
    r"|(?P<INT>0x[0-9a-fA-F]+|\d+)"
    r"|(?P<STRING>[bB]?(?:"
    r'[rR]"""(?:.|\n)*?"""'
    r"|[rR]'''(?:.|\n)*?'''"
    rf'|"""(?:{_ESCAPE}|[^\\])*?"""'
    rf"|'''(?:{_ESCAPE}|[^\\])*?'''"
    r'|[rR]"[^"\n\r]*"'
    r"|[rR]'[^'\n\r]*'"
    rf'|"(?:{_ESCAPE}|[^\\"\n\r])*"'
    rf"|'(?:{_ESCAPE}|[^\\'\n\r])*'"
    r"))"
    r"|(?P<IDENT>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<ESCAPED>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<op>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])",
    re.ASCII,
)
# An incomplete literal, name or operator, with the character that makes it invalid; it is skipped as a whole.
_UNFINISHED = re.compile(
    rf"[=&|].?|[rRbB]{{0,2}}(?:\"(?:{_ESCAPE}|[^\\\"\n\r])*|'(?:{_ESCAPE}|[^\\'\n\r])*).?|`[A-Za-z0-9_.\-/ ]*.?",
    re.ASCII | re.DOTALL,
)
_KEYWORDS = frozenset({"in", "true", "false", "null"})


class Token(Struct, frozen=True):
    """`kind` is IDENT, ESCAPED, INT, UINT, FLOAT, STRING, BYTES, EOF, or the text of an operator or keyword."""

    kind: str
    text: str
    position: int


def tokenize(source: str, issues: Issues) -> list[Token]:
    """Return all tokens and a last one of kind EOF; text that starts no token is reported and skipped."""
    tokens: list[Token] = []
    position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            unfinished = _UNFINISHED.match(source, position)
            text = unfinished.group() if unfinished else source[position]
            issues.report(position, f"{SYNTAX_ERROR}token recognition error at: '{text}'")
            position += len(text)
            continue
        kind, text = match.lastgroup, match.group()
        if kind == "op" or (kind == "IDENT" and text in _KEYWORDS):
            kind = text
        elif kind == "STRING" and text[0] in "bB":
            kind = "BYTES"
        if kind != "skip":
            assert kind is not None
            tokens.append(Token(kind, text, position))
        position = match.end()
    tokens.append(Token("EOF", "<EOF>", len(source)))
    return tokens
