"""Path globs: names below /dev as a configuration writes them.

They are translated to regular expressions without nested repetition, so that every pattern takes linear time.
"""

import re
from functools import lru_cache


def is_glob(part: str) -> bool:
    """Return whether a name contains wildcards."""
    return any(character in part for character in "*?[")


@lru_cache(maxsize=4096)
def path_pattern(glob: str) -> re.Pattern[str]:
    """Translate a path glob; the groups of a match are the texts that its wildcards match.

    `*` and `?` do not cross `/`, `[...]` is a set of characters, `**` as a whole component is any number of folders.
    """
    parts: list[str] = []
    position = 0
    while position < len(glob):
        character = glob[position]
        closing = glob.find("]", position + 2) if character == "[" else -1
        if glob.startswith("**/", position) and (position == 0 or glob[position - 1] == "/"):
            parts.append("((?:[^/]+/)*)")
            position += 2
        elif character == "*":
            parts.append("([^/]*)")
        elif character == "?":
            parts.append("([^/])")
        elif closing > 0:
            parts.append(f"((?!/){_character_set(glob[position + 1 : closing])})")
            position = closing
        else:
            parts.append(re.escape(character))
        position += 1
    return re.compile("".join(parts), re.DOTALL)


def _character_set(inside: str) -> str:
    negated = "^" if len(inside) > 1 and inside[0] in "!^" else ""
    inside = inside[len(negated) :]
    parts: list[str] = []
    position = 0
    while position < len(inside):
        if inside[position + 1 : position + 2] == "-" and position + 2 < len(inside):
            low, high = sorted((inside[position], inside[position + 2]))
            parts.append(f"{re.escape(low)}-{re.escape(high)}")
            position += 3
        else:
            parts.append(re.escape(inside[position]))
            position += 1
    return f"[{negated}{''.join(parts)}]"
