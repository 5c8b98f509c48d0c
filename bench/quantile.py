"""Quantiles without interpolation: each is a measured value."""

from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of all values lie; the largest for 1."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
