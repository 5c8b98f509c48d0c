"""What can be wrong with a CDI spec that is read or written."""


class CdiError(Exception):
    """Root of this folder's errors."""


class InvalidSpec(CdiError):
    """The spec breaks rules of CDI or of ours; `problems` has each of them in words."""

    def __init__(self, what: str, problems: list[str]) -> None:
        """Say what is invalid, and all that is wrong with it."""
        super().__init__(f"{what}: {'; '.join(problems)}")
        self.problems = problems
