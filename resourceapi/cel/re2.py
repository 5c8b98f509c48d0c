"""Matching with RE2's guarantees: the same matches as Go, in time linear in the text.

Python's `re`, which is faster, handles simple patterns on short texts. Its pattern is generated from the tree, so that
both engines match the same. All other cases run on an automaton that follows all alternatives in parallel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from resourceapi.cel.re2_syntax import (
    Assertion,
    Chars,
    Choice,
    Predicate,
    Regex,
    RegexError,
    Repeat,
    Sequence,
    parse_regex,
    predicate,
    variants,
)
from resourceapi.cel.stack import headroom

__all__ = ["Matcher", "RegexError", "RegexTooExpensive", "compile_regex"]

_MAX_INSTRUCTIONS = 20_000
_MAX_STEPS = 1_000_000  # about half a second
_MAX_REMEMBERED = 20_000
_FRAMES_PER_LEVEL = 8
_MAX_TRIES = 1_000_000  # the most attempts of Python's engine for one match: a few milliseconds
_MAX_CHOICES = 64
_MAX_COUNTED = 50
_MAX_NATIVE_GROUPS = 50  # limits the recursion of Python's own pattern compiler


class RegexTooExpensive(Exception):
    """The automaton has taken more steps than any reasonable selector needs."""


class Budget:
    """The number of steps that the automaton can still take."""

    def __init__(self) -> None:
        self._left = _MAX_STEPS

    def spend(self, steps: int) -> None:
        """Subtract steps; raises RegexTooExpensive when none are left."""
        self._left -= steps
        if self._left < 0:
            raise RegexTooExpensive


class Matcher(Protocol):
    """A compiled pattern."""

    def find(self, text: str, start: int = 0, budget: Budget | None = None) -> tuple[int, int] | None:
        """Return start and end of the leftmost match at or after `start`, or None. Raises RegexTooExpensive.

        A `budget` limits several searches together.
        """

    def is_match(self, text: str) -> bool:
        """Return whether there is a match anywhere. Raises RegexTooExpensive."""


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Matcher:
    """Compile a pattern. Raises RegexError."""
    with headroom(pattern.count("(") * _FRAMES_PER_LEVEL):
        tree = parse_regex(pattern)
        ways = _ways(tree)
        is_simple = ways.loops <= 1 and ways.choices <= _MAX_CHOICES and pattern.count("(") < _MAX_NATIVE_GROUPS
        if is_simple and not _has_properties(tree):
            return _Native(tree, pattern, ways)
        return _Machine(_program(tree, pattern))


def find_all(matcher: Matcher, text: str) -> Iterator[tuple[int, int]]:
    """Yield all non-overlapping matches; an empty match directly after another match does not count."""
    position, last_end, budget = 0, -1, Budget()
    while position <= len(text):
        found = matcher.find(text, position, budget)
        if found is None:
            return
        start, end = found
        if start != end or start != last_end:
            yield found
        last_end = end
        position = end + 1 if start == end else end


class _Native:
    """Uses Python's engine for short texts and the automaton for others, where Python's engine can be quadratic."""

    def __init__(self, tree: Regex, pattern: str, ways: _Ways) -> None:
        self._tree, self._text = tree, pattern
        self._pattern = re.compile(_to_python(tree))
        self._longest = math.isqrt(_MAX_TRIES // ways.choices)
        self._machine: _Machine | None = None

    def find(self, text: str, start: int = 0, budget: Budget | None = None) -> tuple[int, int] | None:
        if len(text) > self._longest:
            return self._slow().find(text, start, budget)
        found = self._pattern.search(text, start)
        return None if found is None else found.span()

    def is_match(self, text: str) -> bool:
        if len(text) > self._longest:
            return self._slow().is_match(text)
        return self._pattern.search(text) is not None

    def _slow(self) -> _Machine:
        if self._machine is None:
            self._machine = _Machine(_program(self._tree, self._text))
        return self._machine


class _Ways(NamedTuple):
    """How often a backtracking engine can have to try: the number of loops, and of paths through everything else."""

    loops: int
    choices: int


def _ways(tree: Regex) -> _Ways:
    """Count the paths through a pattern from one position of a text, at most `_MAX_CHOICES` + 1."""
    match tree:
        case Repeat():
            inner = _ways(tree.part)
            if tree.most is not None and tree.most <= 1:
                return _Ways(inner.loops, min(inner.choices + 1, _MAX_CHOICES + 1))
            if inner.loops or inner.choices > 1 or max(tree.least, tree.most or 0) > _MAX_COUNTED:
                return _Ways(1, _MAX_CHOICES + 1)
            return _Ways(1, 1)
        case Sequence():
            parts = [_ways(each) for each in tree.parts]
            choices = 1
            for each in parts:
                choices = min(choices * each.choices, _MAX_CHOICES + 1)
            return _Ways(sum(each.loops for each in parts), choices)
        case Choice():
            parts = [_ways(each) for each in tree.parts]
            return _Ways(sum(each.loops for each in parts), min(sum(each.choices for each in parts), _MAX_CHOICES + 1))
        case _:
            return _Ways(0, 1)


def _has_properties(tree: Regex) -> bool:
    match tree:
        case Chars():
            return bool(tree.properties)
        case Repeat():
            return _has_properties(tree.part)
        case Sequence() | Choice():
            return any(map(_has_properties, tree.parts))
        case _:
            return False


_PYTHON_ASSERTIONS = {
    "begin_text": r"\A",
    "end_text": r"\Z",
    "begin_line": "(?m:^)",
    "end_line": "(?m:$)",
    "word": r"(?a:\b)",
    "not_word": r"(?a:(?!\b))",
}


def _to_python(tree: Regex) -> str:
    match tree:
        case Chars():
            return _class_to_python(tree)
        case Assertion():
            return _PYTHON_ASSERTIONS[tree.kind]
        case Sequence():
            return "".join(map(_to_python, tree.parts))
        case Choice():
            return f"(?:{'|'.join(map(_to_python, tree.parts))})"
        case Repeat():
            bounds = f"{{{tree.least},{'' if tree.most is None else tree.most}}}"
            return f"(?:{_to_python(tree.part)}){bounds}{'?' if tree.lazy else ''}"


def _class_to_python(chars: Chars) -> str:
    parts: list[str] = []
    for low, high in chars.ranges:
        parts.append(_range_to_python(low, high))
        if chars.fold and high - low < 256:
            others = {each for code in range(low, high + 1) for each in variants(chr(code))}
            parts += [_range_to_python(ord(each), ord(each)) for each in sorted(others)]
    if not parts:
        return r"[^\S\s]" if not chars.negated else r"[\S\s]"
    return f"[{'^' if chars.negated else ''}{''.join(parts)}]"


def _range_to_python(low: int, high: int) -> str:
    return f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}"


# --- the automaton


class _Instruction(NamedTuple):
    """`test` consumes a character; `kind` is an assertion; otherwise the thread forks to `next`, then to `other`."""

    next: int
    other: int = -1
    test: Predicate | None = None
    kind: str = ""


_MATCH = _Instruction(-1)
_State: TypeAlias = frozenset[int]


def _program(tree: Regex, pattern: str) -> list[_Instruction]:
    """Return the instructions of a pattern; the last one is the match."""
    code: list[_Instruction] = []

    def emit(instruction: _Instruction) -> int:
        if len(code) >= _MAX_INSTRUCTIONS:
            raise RegexError("expression too large", pattern)
        code.append(instruction)
        return len(code) - 1

    def build(part: Regex) -> None:
        match part:
            case Chars():
                emit(_Instruction(len(code) + 1, test=predicate(part)))
            case Assertion():
                emit(_Instruction(len(code) + 1, kind=part.kind))
            case Sequence():
                for each in part.parts:
                    build(each)
            case Choice():
                build_choice(part.parts)
            case Repeat():
                build_repeat(part)

    def build_choice(parts: tuple[Regex, ...]) -> None:
        exits: list[int] = []
        for each in parts[:-1]:
            split = emit(_MATCH)
            build(each)
            exits.append(emit(_MATCH))
            code[split] = _Instruction(split + 1, len(code))
        build(parts[-1])
        for exit_ in exits:
            code[exit_] = _Instruction(len(code))

    def branch(at: int, into: int, past: int, lazy: bool) -> None:
        code[at] = _Instruction(past, into) if lazy else _Instruction(into, past)

    def build_repeat(part: Repeat) -> None:
        if part.most is None and part.least == 0 and not _is_nullable(part.part):
            split = emit(_MATCH)
            build(part.part)
            emit(_Instruction(split))
            branch(split, split + 1, len(code), part.lazy)
            return
        if part.most is None:  # if `x` can be empty, `x*` is built as `(x+)?`, which keeps the order of preference
            for _ in range(part.least - 1):
                build(part.part)
            skip = emit(_MATCH) if part.least == 0 else -1
            first = len(code)
            build(part.part)
            again = emit(_MATCH)
            branch(again, first, len(code), part.lazy)
            if part.least == 0:
                branch(skip, skip + 1, len(code), part.lazy)
            return
        for _ in range(part.least):
            build(part.part)
        splits: list[int] = []
        for _ in range(part.most - part.least):
            splits.append(emit(_MATCH))
            build(part.part)
        for split in splits:
            branch(split, split + 1, len(code), part.lazy)

    build(tree)
    emit(_MATCH)
    return code


def _is_nullable(tree: Regex) -> bool:
    """Return whether a pattern can match the empty text."""
    match tree:
        case Chars():
            return False
        case Assertion():
            return True
        case Sequence():
            return all(map(_is_nullable, tree.parts))
        case Choice():
            return any(map(_is_nullable, tree.parts))
        case Repeat():
            return tree.least == 0 or _is_nullable(tree.part)


class _Machine:
    def __init__(self, code: list[_Instruction]) -> None:
        self._code = code
        self._accept = len(code) - 1
        self._is_plain = all(each.kind in ("", "begin_text", "end_text") for each in code)
        budget = Budget()
        self._first = self._closure([0], budget, at_start=True, at_end=False)
        self._later = self._closure([0], budget, at_start=False, at_end=False)
        self._moves: dict[tuple[_State, str], _State] = {}

    def is_match(self, text: str) -> bool:
        """Return whether there is a match; caches the transitions between sets of threads (a lazy DFA)."""
        if not self._is_plain:
            return self.find(text) is not None
        state, moves, budget = self._first, self._moves, Budget()
        for char in text:
            if self._accept in state:
                return True
            following = moves.get((state, char))
            if following is None:
                budget.spend(len(state))
                following = self._move(state, char, budget)
                if len(moves) >= _MAX_REMEMBERED:
                    moves.clear()
                moves[state, char] = following
            state = following
        return self._accept in self._closure(list(state), budget, at_start=not text, at_end=True)

    def _move(self, state: _State, char: str, budget: Budget) -> _State:
        entered = [self._code[at].next for at in state if self._consumes(at, char)]
        return self._closure(entered, budget, at_start=False, at_end=False) | self._later

    def _consumes(self, at: int, char: str) -> bool:
        test = self._code[at].test
        return test is not None and test(char)

    def _closure(self, entered: list[int], budget: Budget, *, at_start: bool, at_end: bool) -> _State:
        """Return the reachable instructions that wait for a character or the end of the text, or are the match."""
        pending, seen = entered, set[int]()
        waiting: set[int] = set()
        while pending:
            here = pending.pop()
            if here in seen:
                continue
            seen.add(here)
            instruction = self._code[here]
            if instruction.test is not None or here == self._accept or (instruction.kind == "end_text" and not at_end):
                waiting.add(here)
            elif instruction.kind != "begin_text" or at_start:
                if instruction.other >= 0:
                    pending.append(instruction.other)
                pending.append(instruction.next)
        budget.spend(len(seen))
        return frozenset(waiting)

    def find(self, text: str, start: int = 0, budget: Budget | None = None) -> tuple[int, int] | None:
        """Follow all threads in order of preference; a thread is an instruction and the position where it started."""
        found: tuple[int, int] | None = None
        threads: dict[int, int] = {}
        budget = budget or Budget()
        for position in range(start, len(text) + 1):
            if found is None:
                self._add(threads, 0, position, text, position, budget)
            if not threads:
                if found is not None:
                    break
                continue
            following: dict[int, int] = {}
            budget.spend(len(threads))
            char = text[position] if position < len(text) else ""
            for at, began in threads.items():
                if at == self._accept:
                    found = (began, position)
                    break  # later threads are less preferred
                test = self._code[at].test
                if test is not None and char and test(char):
                    self._add(following, self._code[at].next, began, text, position + 1, budget)
            threads = following
        return found

    def _add(self, threads: dict[int, int], at: int, began: int, text: str, position: int, budget: Budget) -> None:
        pending = [at]
        seen: set[int] = set()
        while pending:
            here = pending.pop()
            if here in threads or here in seen:
                continue
            seen.add(here)
            instruction = self._code[here]
            if instruction.test is not None or here == self._accept:
                threads[here] = began
            elif not instruction.kind or _holds(instruction.kind, text, position):
                if instruction.other >= 0:
                    pending.append(instruction.other)
                pending.append(instruction.next)
        budget.spend(len(seen))


def _is_word(text: str, index: int) -> bool:
    return 0 <= index < len(text) and (text[index] == "_" or (text[index].isascii() and text[index].isalnum()))


def _holds(kind: str, text: str, position: int) -> bool:
    match kind:
        case "begin_text":
            return position == 0
        case "end_text":
            return position == len(text)
        case "begin_line":
            return position == 0 or text[position - 1] == "\n"
        case "end_line":
            return position == len(text) or text[position] == "\n"
        case _:
            boundary = _is_word(text, position - 1) != _is_word(text, position)
            return boundary is (kind == "word")
