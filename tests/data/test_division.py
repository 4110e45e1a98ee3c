"""Division into training and validation without common groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.division import divided


@pytest.mark.parametrize("size", [1, 2, 10, 57])
def test_without_repeats_rows_are_drawn_by_one_permutation(size: int) -> None:
    """The division that older runs and published figures have."""
    for kept in range(1, size):
        order = np.random.default_rng(0).permutation(size)
        result = divided([f"text {n}" for n in range(size)], kept, drawn=True)
        assert result.train.tolist() == sorted(order[:kept].tolist())
        assert result.valid.tolist() == sorted(order[kept:].tolist())
        assert not result.has_repeats
        end = divided(range(size), kept, drawn=False)
        assert (end.train.tolist(), end.valid.tolist()) == ([*range(kept)], [*range(kept, size)])


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 40), st.booleans())
def test_no_source_is_in_both_parts(sources: list[int], kept: int, drawn: bool) -> None:
    kept = min(kept, len(sources))
    result = divided(sources, kept, drawn=drawn)
    train, valid = ({sources[row] for row in rows.tolist()} for rows in (result.train, result.valid))
    assert not train & valid
    assert sorted([*result.train.tolist(), *result.valid.tolist()]) == [*range(len(sources))]
    assert train
    assert bool(valid) == (kept < len(sources) and len(set(sources)) > 1)
    assert (result.num_sources, result.num_held_out) == (len(train | valid), len(valid))
    smallest = min(sources.count(source) for source in sources)
    assert len(result.valid) <= max(len(sources) - kept, smallest)


def test_the_end_is_held_out_by_groups() -> None:
    result = divided("aaabbccccd", 7, drawn=False)
    assert result.valid.tolist() == [3, 4, 9]  # d, then b, as c has too many rows
    assert divided("aaaab", 9, drawn=False).valid.tolist() == [4]
    assert divided("aabb", 3, drawn=False).valid.tolist() == [2, 3]
