"""The delay before the next attempt."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class Backoff:
    """Delays in seconds between tries: none, then 10 ms and doubling up to `longest`, with jitter.

    The first tries are that quick because a kubelet that just made its socket may not listen yet: bind comes first.
    """

    FIRST = 0.01

    def __init__(self, longest: float = 30.0, random_source: "Random | None" = None) -> None:
        """Start fresh; the random source is for tests."""
        self._longest = longest
        self._random = random_source
        self._tries = 0

    def next(self) -> float:
        """Return the delay before the next try."""
        tries, self._tries = self._tries, self._tries + 1
        if tries == 0:
            return 0.0
        if self._random is None:
            from random import Random  # here, for a kubelet that is there when we start needs no second try

            self._random = Random()  # noqa: S311 - jitter, no secret
        delay = min(self.FIRST * 2.0 ** min(tries - 1, 16), self._longest)
        return delay * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin again with no delay: something new has happened."""
        self._tries = 0
