"""The errors of an expression and their texts.

Compile errors have issues with positions and are printed like those of cel-go (source line, dots, caret); run-time
errors have upstream's texts. Source: allocator specification 3.3 and 3.6.
"""

from __future__ import annotations

from msgspec import Struct

_NO_SUCH_KEY = "no such key:"
_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has()"
    " for optional fields"
)
_MAX_REPORTED = 100
_MAX_SNIPPET_BYTES = 16384
SYNTAX_ERROR = "Syntax error: "
"""The prefix of the message of a syntax error."""
NO_POSITION = -1  # the position of an issue that concerns the expression as a whole


class CelError(Exception):
    """Root of all errors that this package raises."""


class CelCompileError(CelError):
    """The expression was refused before it ran; `str()` is the full text for the user.

    `kind` is "invalid" if the expression's author can fix it, otherwise "internal". `output_type` is set if the
    expression is well typed and only its program could not be built.
    """

    def __init__(self, text: str, kind: str = "invalid", output_type: str | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.output_type = output_type


class CelEvalError(CelError):
    """The expression failed for this input; `cost` is the cost of the evaluation up to the failure."""

    cost: int = 0


class CostLimitExceeded(CelEvalError):
    """The evaluation consumed its cost limit; nothing in an expression can absorb this."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class CelInterrupted(CelEvalError):
    """The caller asked to stop; nothing in an expression can absorb this."""

    def __init__(self, cause: str = "") -> None:
        super().__init__(f"operation interrupted: {cause}" if cause else "operation interrupted")


class EnhancedEvalError(CelEvalError):
    """A "no such key" error with a hint how to avoid it; the original error is its cause."""


def enhance_runtime_error(error: CelEvalError) -> CelEvalError:
    """Add the hint about optional keys to a "no such key" error; every other error is returned as it is."""
    if isinstance(error, EnhancedEvalError) or _NO_SUCH_KEY not in str(error):
        return error
    enhanced = EnhancedEvalError(f"{error}{_HINT}")
    enhanced.cost = error.cost
    enhanced.__cause__ = error
    return enhanced


class Issue(Struct, frozen=True):
    """One problem at a position: an offset in code points from the start of the source."""

    position: int
    message: str


class Issues:
    """The problems of one expression in the order in which they were found."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._issues: list[Issue] = []

    def __bool__(self) -> bool:
        return bool(self._issues)

    def report(self, position: int, message: str) -> None:
        """Add a problem."""
        self._issues.append(Issue(position, message))

    def take_syntax_errors(self, other: Issues) -> None:
        """Add the syntax errors of another `Issues`."""
        self._issues += [issue for issue in other._issues if issue.message.startswith(SYNTAX_ERROR)]

    def text(self) -> str:
        """Return all problems, sorted by position, each with its source line and a caret."""
        found = sorted(self._issues[:_MAX_REPORTED], key=lambda issue: issue.position)
        texts = [_display(self._source, issue) for issue in found]
        if len(self._issues) > _MAX_REPORTED:
            texts.append(f"{len(self._issues) - _MAX_REPORTED} more errors were truncated")
        return "\n".join(texts)


def _display(source: str, issue: Issue) -> str:
    if issue.position == NO_POSITION:
        return f"ERROR: <input>:-1:0: {issue.message}"
    if not source:
        return f"ERROR: <input>:1:0: {issue.message}"
    before = source[: issue.position]
    line_start = before.rfind("\n") + 1
    column = issue.position - line_start
    line = source[line_start:].split("\n", 1)[0]
    head = f"ERROR: <input>:{before.count(chr(10)) + 1}:{column + 1}: {issue.message}"
    if len(line.encode("utf-8", "surrogatepass")) > _MAX_SNIPPET_BYTES:
        return head
    line = line.replace("\t", " ")
    dots = "".join("." if ord(char) < 0x80 else "．" for char in line[:column])
    wide = column < len(line) and ord(line[column]) >= 0x80
    return f"{head}\n | {line}\n | {dots}{'＾' if wide else '^'}"
