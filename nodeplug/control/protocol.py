"""What goes over the control socket: one question and one answer on each connection, each of them a line of JSON.

    {"question": "status"}                               ->  {"answer": {"daemon": ..., "resources": ...}}
    {"question": "release", "resource": "a/b", ...}      ->  {"error": "... is held: ...", "findings": []}

A question is a module of this folder by its name: `Question` with what can be asked, `Answer`, and `answer`, which is
called on the daemon's loop. It is imported with the first such question, so that a daemon that nobody asks carries none
of it. What one side does not know of the other's fields it passes over: command and daemon can be of two versions.
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
MOST_BYTES: Final = 1 << 20
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
