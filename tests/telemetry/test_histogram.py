"""Histograms: cumulative counts, as Prometheus requires."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry import Histogram


@given(st.lists(st.floats(0, 100)))
def test_each_bucket_counts_values_up_to_its_bound(values: list[float]) -> None:
    histogram = Histogram((0.5, 1.0, 10.0))
    for value in values:
        histogram.observe(value)
    assert list(histogram.cumulative()) == [
        (bound, sum(value <= bound for value in values)) for bound in (0.5, 1.0, 10.0, float("inf"))
    ]
    assert histogram.sum == pytest.approx(sum(values))  # since 3.12 `sum` is more exact
