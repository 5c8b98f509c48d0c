"""The protocol of the control socket: one request and one answer on each connection, each of them a line of JSON.

    {"question": "status"}                               ->  {"answer": {"daemon": ..., "resources": ...}}
    {"question": "release", "resource": "a/b", ...}      ->  {"error": "... is held: ...", "findings": []}

Each request is a module of this folder with the same name: `Question` with its fields, `Answer`, and `answer`, which is
called on the daemon's loop. The module is imported with the first such request, to save memory. Both sides ignore
unknown fields, because command and daemon can have different versions.
"""

from typing import Any, Final

from msgspec import Struct

QUESTIONS: Final = (
    "dry_run",
    "events",
    "explain",
    "leases",
    "metrics",
    "picture",
    "preview",
    "readmit",
    "release",
    "reload",
    "status",
    "withhold",
    "witnesses",
)
MAX_BYTES: Final = 1 << 20
"""The most bytes of a question; a configuration has at most half as many."""


class Head(Struct, frozen=True):
    """The part that every question begins with."""

    question: str


class Reply(Struct, frozen=True, omit_defaults=True):
    """The answer, or the reason why there is none: `findings` are the mistakes of a configuration."""

    answer: Any = None
    error: str = ""
    findings: tuple[str, ...] = ()


class Refusal(Exception):
    """The daemon refuses a request; the message is the reason and what to do."""

    def __init__(self, message: str, findings: tuple[str, ...] = ()) -> None:
        """Keep the findings about a configuration, if there are any."""
        super().__init__(message)
        self.findings = findings
