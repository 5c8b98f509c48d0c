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
MOST_BYTES: Final = 1 << 20
"""Of a question; a configuration has half as many at the most."""


class Head(Struct, frozen=True):
    """What every question begins with."""

    question: str


class Reply(Struct, frozen=True, omit_defaults=True):
    """The answer, or why there is none: `findings` has each thing that is wrong with a configuration."""

    answer: Any = None
    error: str = ""
    findings: tuple[str, ...] = ()


class Refusal(Exception):
    """The daemon does not do what it is asked for; says why, and what to do."""

    def __init__(self, message: str, findings: tuple[str, ...] = ()) -> None:
        """Keep what is wrong with a configuration, if that is it."""
        super().__init__(message)
        self.findings = findings
