"""Errors of CDI specs that are read or written."""


class CdiError(Exception):
    """Root of this folder's errors."""


class InvalidSpec(CdiError):
    """The spec breaks rules of CDI or of nodeplug; `problems` has each of them in words."""

    def __init__(self, what: str, problems: list[str]) -> None:
        """State what is invalid, and all its problems."""
        super().__init__(f"{what}: {'; '.join(problems)}")
        self.problems = problems
