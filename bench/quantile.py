"""Quantiles that were measured: no value in between is made up."""

from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all values are below; the longest for 1."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
