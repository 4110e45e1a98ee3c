"""Lengths, repeated texts and values of columns, against plain Python."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.extensions.surveying.counts import MAX_VALUES, ColumnValues, Lengths, Repeats


@given(st.lists(st.integers(0, 9), min_size=1), st.floats(0.01, 1))
def test_lengths_have_the_mean_and_the_quantiles_of_plain_python(numbers: list[int], share: float) -> None:
    lengths = Lengths(numbers)
    assert lengths.mean == pytest.approx(statistics.fmean(numbers))
    assert lengths.quantile(0.5) == statistics.median_low(numbers)
    assert lengths.quantile(share) == sorted(numbers)[math.ceil(share * len(numbers)) - 1]
    assert (lengths.quantile(0), lengths.quantile(1)) == (min(numbers), max(numbers))
    assert len(lengths) == len(numbers)


def test_without_lengths_all_statistics_are_zero() -> None:
    assert (len(Lengths()), Lengths().mean, Lengths().quantile(0.5)) == (0, 0, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("XY"))))
def test_repeats_count_repeated_texts_and_other_labels(pairs: list[tuple[str, str]]) -> None:
    repeats = Repeats()
    for text, label in pairs:
        repeats.feed(text, label)
    first = dict(reversed(pairs))
    assert repeats.num_repeats == len(pairs) - len(first)
    assert repeats.with_other_labels.count == sum(first[text] != label for text, label in pairs)
    assert not repeats.is_partial


def test_values_of_a_column_are_counted_up_to_a_maximum() -> None:
    values = ColumnValues()
    for number in range(3 * MAX_VALUES):
        values.feed({"many": [str(number)], "few": ["x", "y"]}, ["many", "few"])
    assert len(values.counts["many"]) == MAX_VALUES + 1
    assert values.counts["few"] == {"x": 3 * MAX_VALUES, "y": 3 * MAX_VALUES}
