"""Division into training and validation without common groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.division import split_rows


@pytest.mark.parametrize("size", [1, 2, 10, 57])
def test_without_repeats_the_division_is_a_permutation(size: int) -> None:
    """Older runs and published figures have this division."""
    for num_train in range(1, size):
        order = np.random.default_rng(0).permutation(size)
        result = split_rows([f"text {n}" for n in range(size)], num_train, is_random=True)
        assert result.train.tolist() == sorted(order[:num_train].tolist())
        assert result.valid.tolist() == sorted(order[num_train:].tolist())
        assert not result.has_repeats
        end = split_rows(range(size), num_train, is_random=False)
        assert (end.train.tolist(), end.valid.tolist()) == ([*range(num_train)], [*range(num_train, size)])


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 40), st.booleans())
def test_each_source_is_in_one_part(sources: list[int], num_train: int, drawn: bool) -> None:
    num_train = min(num_train, len(sources))
    result = split_rows(sources, num_train, is_random=drawn)
    train, valid = ({sources[row] for row in rows.tolist()} for rows in (result.train, result.valid))
    assert not train & valid
    assert sorted([*result.train.tolist(), *result.valid.tolist()]) == [*range(len(sources))]
    assert train
    assert bool(valid) == (num_train < len(sources) and len(set(sources)) > 1)
    assert (result.num_groups, result.num_valid_groups) == (len(train | valid), len(valid))
    smallest = min(sources.count(source) for source in sources)
    assert len(result.valid) <= max(len(sources) - num_train, smallest)


def test_the_last_groups_are_held_out() -> None:
    result = split_rows("aaabbccccd", 7, is_random=False)
    assert result.valid.tolist() == [3, 4, 9]  # d, then b, as c has too many rows
    assert split_rows("aaaab", 9, is_random=False).valid.tolist() == [4]
    assert split_rows("aabb", 3, is_random=False).valid.tolist() == [2, 3]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.sets(st.integers(0, 6))), min_size=2, max_size=40), st.floats(0.5, 0.95)
)
def test_each_label_of_several_groups_is_in_both_parts(rows: list[tuple[int, set[int]]], share: float) -> None:
    """A label of one group is in training. The group of another label may prevent an exchange."""
    groups = [group for group, _ in rows]
    pairs = np.array([(row, label) for row, (_, labels) in enumerate(rows) for label in sorted(labels)], np.int64)
    num_train = max(1, round(share * len(rows)))
    plain = split_rows(groups, num_train, is_random=False)
    result = split_rows(groups, num_train, is_random=False, labels=pairs.reshape(-1, 2).T if len(pairs) else None)
    train, valid = ({groups[row] for row in rows_of_part.tolist()} for rows_of_part in (result.train, result.valid))
    assert train
    assert bool(valid) == bool(len(plain.valid))
    assert not train & valid
    assert sorted([*result.train.tolist(), *result.valid.tolist()]) == [*range(len(rows))]
    assert result.is_exchanged == (result.valid.tolist() != plain.valid.tolist())
    groups_of = {label: {group for group, labels in rows if label in labels} for label in range(7)}
    for several in groups_of.values():
        assert not several or several & train or len(plain.valid) == len(result.valid)
        needed = {group for labeled in groups_of.values() if len(labeled & train) == 1 for group in labeled & train}
        is_full = len(result.valid) >= len(plain.valid)
        assert not len(plain.valid) or len(several) < 2 or several & valid or several <= needed or is_full


def test_rare_labels_at_either_end_are_in_both_parts() -> None:
    """The last rows have only label 1, label 2 is missing there, and label 3 has one group."""
    labels = [{0}] * 100
    labels[3], labels[5], labels[90], labels[95], labels[97] = {2}, {2}, {1}, {1}, {3}
    pairs = np.array([(row, label) for row, some in enumerate(labels) for label in sorted(some)], np.int64).T
    result = split_rows([*range(100)], 90, is_random=False, labels=pairs)
    assert result.valid.tolist() == [5, *range(91, 97), *range(98, 100)]
    assert result.is_exchanged
    same = split_rows([*range(100)], 90, is_random=False, labels=pairs[:, pairs[1] == 0])
    assert same.valid.tolist() == [*range(90, 100)]
    assert not same.is_exchanged
