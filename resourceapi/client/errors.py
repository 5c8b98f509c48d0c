"""What can go wrong between a client and its server."""

from typing import Any


class ClientError(Exception):
    """Base of this folder's errors."""


class Unreachable(ClientError):
    """The server did not answer. Whether it did what was asked is not known."""


class Refused(ClientError):
    """The server answered with a Status: `code` of HTTP, `reason` and `message` of the Status, its `details`."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any], retry_after: float | None
    ) -> None:
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    @property
    def is_expired(self) -> bool:
        """The history that was asked for is gone: list anew."""
        return self.code == 410

    @property
    def is_ahead(self) -> bool:
        """The history that was asked for has not happened there: a server that was restored, or lags. List anew."""
        causes = self.details.get("causes") or ()
        return self.code == 504 and any(each.get("reason") == "ResourceVersionTooLarge" for each in causes)

    @property
    def is_conflict(self) -> bool:
        """The object changed meanwhile: read it again."""
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def is_missing(self) -> bool:
        """The named object is not there. A 404 that names none means that the server does not know the path."""
        return self.code == 404 and bool(self.details.get("name"))
