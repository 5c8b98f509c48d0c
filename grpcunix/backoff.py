"""The delay before the next attempt."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class Backoff:
    """Delays in seconds between attempts: none, then 10 ms and doubling up to `longest`, with jitter.

    The first delays are short because a kubelet that has just bound its socket might not listen yet.
    """

    FIRST = 0.01

    def __init__(self, longest: float = 30.0, random_source: "Random | None" = None) -> None:
        """Start without a delay; the random source is for tests."""
        self._longest = longest
        self._random = random_source
        self._tries = 0

    def next(self) -> float:
        """Return the delay before the next attempt."""
        tries, self._tries = self._tries, self._tries + 1
        if tries == 0:
            return 0.0
        if self._random is None:
            from random import Random  # on first use: if the kubelet is there at the start, no second attempt is needed

            self._random = Random()  # noqa: S311 - jitter, no secret
        delay = min(self.FIRST * 2.0 ** min(tries - 1, 16), self._longest)
        return delay * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start again without a delay, because something has changed."""
        self._tries = 0
