"""The functions, types and syntax that an expression can use, by Kubernetes version.

Two kinds of environment exist for each version. New expressions can use what every component of that version supports,
so that a rollback is possible: libraries introduced up to the compatibility version, and gated ones only with their
gate. Stored expressions can use everything that the binary supports. Source: allocator specification 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from resourceapi.cel import macros
from resourceapi.cel.checker import Names
from resourceapi.cel.declarations import Function
from resourceapi.cel.library import (
    authorizer,
    comprehensions,
    conversions,
    formats,
    lists,
    networks,
    optionals,
    quantities,
    regex,
    sets,
    standard,
    strings,
    times,
    urls,
)
from resourceapi.cel.messages import MESSAGES, Message
from resourceapi.cel.parser import Macro, MacroKey
from resourceapi.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    IP,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
)

Version = tuple[int, int]

CURRENT: Version = (1, 37)
"""The Kubernetes release that this package implements."""

COMPATIBILITY: Version = (1, 36)
"""The version that new expressions are limited to by default: one before `CURRENT`."""


class Environment:
    """The declarations for one kind of expression. Immutable and shared; created by the functions of this package."""

    def __init__(
        self,
        names: Names,
        macros_: Mapping[MacroKey, Macro],
        optional_syntax: bool,
        literal_validators: bool,
        format_validator: bool,
    ) -> None:
        self.names = names
        self.macros = macros_
        self.optional_syntax = optional_syntax
        self.literal_validators = literal_validators
        self.format_validator = format_validator


def _types(available: Version) -> dict[str, Type]:
    found = [BOOL, BYTES, DOUBLE, DURATION, INT, NULL, STRING, TIMESTAMP, TYPE, UINT]
    found += [list_of(DYN), map_of(DYN, DYN)]
    if available >= (1, 28):
        found.append(optional_of(DYN))
    if available >= (1, 30):
        found += [IP, CIDR]
    return {each.name: each for each in found}


def _libraries(available: Version) -> Iterable[list[Function]]:
    yield standard.functions(mixed_numbers=available >= (1, 28))
    yield conversions.functions()
    yield times.functions()
    yield regex.standard()
    yield urls.functions()
    yield regex.kubernetes()
    yield lists.kubernetes()
    if available >= (1, 27):
        yield authorizer.functions()
    if available >= (1, 28):
        yield optionals.functions()
        yield quantities.quantities()
    yield strings.functions(2 if available >= (1, 29) else 0)
    if available >= (1, 29):
        yield sets.functions()
    if available >= (1, 30):
        yield networks.functions()
    if available >= (1, 31):
        yield formats.functions()
        yield authorizer.selectors()
    if available >= (1, 32):
        yield comprehensions.functions()
    if available >= (1, 33):
        yield quantities.versions(tolerant=True)
    if available >= (1, 34):
        yield lists.extension()
    if available >= (1, 37):
        yield lists.includes()


@lru_cache(maxsize=32)  # each policy has an environment of its own, with the same functions
def _functions(available: Version) -> Mapping[str, Function]:
    return _extended({}, _libraries(available))


def _extended(functions: Mapping[str, Function], libraries: Iterable[list[Function]]) -> dict[str, Function]:
    found = dict(functions)
    for library in libraries:
        for function in library:
            known = found.get(function.name)
            found[function.name] = function if known is None else known.extended(function)
    return found


def _macros(available: Version) -> dict[MacroKey, Macro]:
    found = dict(macros.STANDARD)
    if available >= (1, 28):
        found |= macros.OPTIONALS
    if available >= (1, 32):
        found |= macros.TWO_VARIABLES
    if available >= (1, 34):
        found |= macros.SORT_BY
    return found


def build_environment(
    available: Version,
    libraries: Iterable[list[Function]] = (),
    more_macros: Mapping[MacroKey, Macro] | None = None,
    variables: Mapping[str, Type] | None = None,
    fields: Mapping[str, Mapping[str, Type]] | None = None,
    opaque_types: Mapping[str, Type] | None = None,
    find_message: Callable[[str], Message | None] = MESSAGES.get,
) -> Environment:
    """Return the environment with everything up to a version, extended by these declarations.

    `find_message` returns the message of a literal's name.
    """
    opaque = opaque_types or {}
    functions = _extended(_functions(available), libraries)
    return Environment(
        names=Names(
            functions,
            variables or {},
            _types(available) | dict(opaque),
            fields or {},
            frozenset(opaque),
            find_message,
        ),
        macros_=_macros(available) | dict(more_macros or {}),
        optional_syntax=available >= (1, 28),
        literal_validators=available >= (1, 29),
        format_validator=available >= (1, 29),
    )


@lru_cache(maxsize=32)
def base_environment(version: Version = COMPATIBILITY, stored: bool = True) -> Environment:
    """Return Kubernetes' environment without variables, with cel.bind, for stored or for new expressions."""
    return build_environment(CURRENT if stored else version, more_macros=macros.BINDINGS)
