"""The errors between a client and its server. This folder raises only these and the objects' DecodeError."""

from typing import Any

_MAX_MESSAGE = 4096  # characters; a server's message is copied into logs and into events of pods


class ClientError(Exception):
    """Base of this folder's errors."""

    @property
    def is_transient(self) -> bool:
        """Whether the same request can succeed later."""
        return False


class Unreachable(ClientError):
    """The server did not answer. It is not known whether it carried out the request."""

    @property
    def is_transient(self) -> bool:
        """Always true: the server can be reachable the next time."""
        return True


class InvalidAnswer(Unreachable):
    """The answer is not valid for the request: not JSON, too large, or about another object."""


class Refused(ClientError):
    """The server answered with a Status: the HTTP `code`, and the Status's `reason`, `message` and `details`.

    `retry_after` is the delay that the server requests, in seconds.
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
        """Return the error for a Status; parts that are not valid are ignored. `code` is the HTTP status."""
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
        """Whether the same request can succeed later: the server is busy or failing, or the history has expired."""
        return self.code >= 500 or self.code in (410, 429)

    @property
    def is_expired(self) -> bool:
        """Whether the requested history has expired, so that the caller must list again."""
        return self.code == 410

    @property
    def is_version_too_large(self) -> bool:
        """Whether the requested version is newer than the server's, which was restored or lags. List again."""
        causes = self.details.get("causes")
        return self.code == 504 and any(
            isinstance(each, dict) and each.get("reason") == "ResourceVersionTooLarge"
            for each in (causes if isinstance(causes, list) else ())
        )

    @property
    def is_conflict(self) -> bool:
        """Whether the object has changed since it was read, so that the caller must read it again."""
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def is_missing(self) -> bool:
        """Whether the named object does not exist. A 404 without a name means that the server lacks the path."""
        return self.code == 404 and bool(self.details.get("name"))


def seconds(value: object) -> float | None:
    """Return the seconds of a Retry-After header or a Status's retryAfterSeconds; None if not a whole number."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."
