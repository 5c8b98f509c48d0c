"""Examples at the end of a command's help."""


def examples(*lines: str) -> str:
    """Return the text that click shows below the options, with unwrapped lines, so that they can be copied."""
    return "\b\n" + "\n".join(("Examples:", *(f"  {line}" for line in lines)))
