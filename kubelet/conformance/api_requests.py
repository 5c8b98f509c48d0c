"""The requests of a driver to the API server: how many there were, and which were refused, for the report."""

from msgspec import Struct
from msgspec.structs import replace

MAX_SHOWN = 3
MAX_MESSAGE = 600  # characters; a slice of 128 devices can have an error for each

_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class _Refused(Struct, frozen=True):
    """A refused request; `count` is how often it was sent."""

    verb: str
    kind: str
    name: str
    code: int
    message: str
    count: int = 0

    def __str__(self) -> str:
        target = f"{self.kind} {self.name}".rstrip()
        message = self.message if len(self.message) <= MAX_MESSAGE else f"{self.message[:MAX_MESSAGE]} ..."
        times = f", {self.count} times" if self.count > 1 else ""
        return f"{self.verb} {target} ({self.code}{times}): {message}"


class ApiRequests:
    """Records the answered requests of one driver.

    A refusal that correct clients expect is not a fault: a conflict (409), a list that has expired (410), an object
    that was deleted before, a claim that no longer exists, and a path for which a client asks to learn what is served.
    """

    def __init__(self) -> None:
        self.count = 0
        self._refused: dict[tuple[object, ...], _Refused] = {}
        self._reported: set[tuple[object, ...]] = set()

    def record(self, verb: str, kind: str, name: str, code: int, message: str, causes: tuple[str, ...]) -> None:
        """Record a request and its answer. Repeated refusals are counted, also if the generated name differs."""
        self.count += 1
        if code < 400 or _is_expected(verb, kind, code):
            return
        key = (verb, kind, code, causes or message)
        first = self._refused.get(key, _Refused(verb, kind, name, code, message))
        self._refused[key] = replace(first, count=first.count + 1)

    def unreported(self) -> str:
        """Return the refused requests that were not returned before, writes first; empty if there are none."""
        return self._text([key for key in self._refused if key not in self._reported])

    def refused_writes(self) -> int:
        """Return how many writes were refused."""
        return sum(each.count for each in self._refused.values() if each.verb in _WRITES)

    def unreported_writes(self) -> str:
        """Return the refused writes that were not returned before; empty if there are none."""
        keys = [key for key, each in self._refused.items() if each.verb in _WRITES and key not in self._reported]
        return self._text(keys)

    def _text(self, keys: list[tuple[object, ...]]) -> str:
        self._reported.update(keys)
        found = sorted((self._refused[key] for key in keys), key=lambda each: each.verb not in _WRITES)
        more = [f"and {len(found) - MAX_SHOWN} more"] if len(found) > MAX_SHOWN else []
        return "; ".join([*map(str, found[:MAX_SHOWN]), *more])


def _is_expected(verb: str, kind: str, code: int) -> bool:
    if kind.startswith("/"):
        return code == 404
    if code == 404:
        return verb == "delete" or kind.partition("/")[0] == "ResourceClaim"
    return code in (409, 410)
