"""What can go wrong between a client and its server. Nothing else leaves this folder but objects' DecodeError."""

from typing import Any

_LONGEST_MESSAGE = 4096  # characters; what a server says ends in logs and in events of pods


class ClientError(Exception):
    """Base of this folder's errors."""

    @property
    def is_transient(self) -> bool:
        """Whether the same request may well succeed later."""
        return False


class Unreachable(ClientError):
    """The server did not answer. Whether it did what was asked is not known."""

    @property
    def is_transient(self) -> bool:
        """Always: the server may answer the next time."""
        return True


class InvalidAnswer(Unreachable):
    """What the server answered cannot be the answer: no JSON, too large, another object than was asked for."""


class Refused(ClientError):
    """The server answered with a Status: `code` of HTTP, `reason` and `message` of the Status, its `details`.

    `retry_after` is what it asks for, in seconds.
    """

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any], retry_after: float | None):
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    @classmethod
    def of_status(cls, status: dict[str, Any], code: int, retry_after: float | None = None) -> "Refused":
        """Return what a Status says, as far as it is one; `code` is what the server said outside of it."""
        details = status.get("details")
        details = details if isinstance(details, dict) else {}
        return cls(
            code,
            _text(status.get("reason")),
            _text(status.get("message")),
            details,
            seconds(details.get("retryAfterSeconds")) if retry_after is None else retry_after,
        )

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later: the server is busy, broken, or its history has moved on."""
        return self.code >= 500 or self.code in (410, 429)

    @property
    def is_expired(self) -> bool:
        """The history that was asked for is gone: list again."""
        return self.code == 410

    @property
    def is_ahead(self) -> bool:
        """The history that was asked for has not happened there: a server that was restored, or lags. List again."""
        causes = self.details.get("causes")
        return self.code == 504 and any(
            isinstance(each, dict) and each.get("reason") == "ResourceVersionTooLarge"
            for each in (causes if isinstance(causes, list) else ())
        )

    @property
    def is_conflict(self) -> bool:
        """The object changed meanwhile: read it again."""
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def is_missing(self) -> bool:
        """The named object is not there. A 404 that names none means that the server does not know the path."""
        return self.code == 404 and bool(self.details.get("name"))


def seconds(value: object) -> float | None:
    """Return what a Retry-After header or a Status's retryAfterSeconds asks for; None for what is no whole number."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."
