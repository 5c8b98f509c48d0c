"""Examples at the end of a command's help."""


def examples(*lines: str) -> str:
    """Return what click shows below the options: the lines as they are, for they are there to be copied."""
    return "\b\n" + "\n".join(("Examples:", *(f"  {line}" for line in lines)))
