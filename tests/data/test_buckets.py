"""Batches of texts of similar length: each text once in an epoch, bounds, and random access by step."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ensue.data import buckets as buckets_module
from ensue.data import compact_texts
from ensue.data.buckets import Buckets, batch_by_length
from ensue.data.permutation import mix

Sizes = tuple[list[int], int, int, int]
sizes = st.tuples(
    st.lists(st.integers(0, 6), min_size=1, max_size=60) | st.lists(st.integers(0, 200), min_size=1, max_size=60),
    st.integers(1, 10),
    st.integers(1, 120),
    st.integers(-(2**63), 2**63 - 1),
)


def make(sizes: Sizes) -> Buckets:
    lengths, batch_size, batch_tokens, seed = sizes
    return Buckets(lengths, batch_size=batch_size, batch_tokens=batch_tokens, seed=seed)


def epoch_of(buckets: Buckets, epoch: int) -> list[NDArray[np.int64]]:
    return [buckets.rows(epoch * buckets.steps_per_epoch + step) for step in range(buckets.steps_per_epoch)]


def within_bounds(rows: NDArray[np.int64], sizes: Sizes) -> None:
    lengths = np.array(sizes[0])[rows]
    assert 1 <= len(rows) <= sizes[1]
    assert len(rows) == 1 or len(rows) * lengths.max() <= sizes[2]
    shortest = max(1, int(lengths.min()))
    assert lengths.max() <= math.floor(1.15 * shortest) + 1, "too much padding"


def are_equal(first: list[NDArray[np.int64]], second: list[NDArray[np.int64]]) -> bool:
    return [rows.tolist() for rows in first] == [rows.tolist() for rows in second]


@example(sizes=([1, 2], 2, 2, 0), epoch=0)
@given(sizes=sizes, epoch=st.integers(0, 10**6))
def test_an_epoch_has_each_text_once_within_the_bounds(sizes: Sizes, epoch: int) -> None:
    buckets = make(sizes)
    for batches in (epoch_of(buckets, epoch), epoch_of(buckets, epoch + 1)):
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes[0])))
        for rows in batches:
            within_bounds(rows, sizes)


@example(sizes=([1, 2], 2, 2, 0))
@given(sizes=sizes)
def test_reading_once_gives_each_text_once_from_short_to_long(sizes: Sizes) -> None:
    lengths = np.array(sizes[0])
    batches = list(batch_by_length(lengths, batch_size=sizes[1], batch_tokens=sizes[2]))
    for rows in batches:
        within_bounds(rows, sizes)
    order = np.concatenate(batches)
    assert sorted(order.tolist()) == list(range(len(lengths)))
    assert (np.diff(lengths[order]) >= 0).all()


@given(
    count=st.integers(1, 300), length=st.integers(0, 50), batch_size=st.integers(1, 20), batch_tokens=st.integers(1, 99)
)
def test_texts_of_one_length_fill_their_batches(count: int, length: int, batch_size: int, batch_tokens: int) -> None:
    fitting = max(1, min(batch_size, batch_tokens // max(1, length)))
    bounds = {"batch_size": batch_size, "batch_tokens": batch_tokens}
    assert Buckets([length] * count, **bounds, seed=0).steps_per_epoch == math.ceil(count / fitting)
    assert len(list(batch_by_length(np.full(count, length), **bounds))) == math.ceil(count / fitting)


def test_a_text_longer_than_a_batch_is_a_batch_alone() -> None:
    sizes = ([3] * 20 + [10_000] + [11_000] + [4] * 10, 8, 40, 0)
    for batches in (epoch_of(make(sizes), 0), list(batch_by_length(np.array(sizes[0]), batch_size=8, batch_tokens=40))):
        alone = [rows.tolist() for rows in batches if np.array(sizes[0])[rows].max() > 40]
        assert sorted(alone) == [[20], [21]]
        others = [rows for rows in batches if np.array(sizes[0])[rows].max() <= 40]
        assert len(others) <= 5


@given(sizes=sizes, steps=st.lists(st.integers(0, 500), min_size=1, max_size=6))
def test_a_batch_is_a_function_of_seed_and_step(sizes: Sizes, steps: list[int]) -> None:
    """The steps have any order, and the object has computed another epoch before."""
    buckets = make(sizes)
    assert are_equal([buckets.rows(step) for step in steps], [make(sizes).rows(step) for step in steps])


def test_epochs_and_seeds_give_different_batches() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, 400).tolist()
    buckets, other_buckets = make((lengths, 8, 100, 1)), make((lengths, 8, 100, 2))
    first, second, third = epoch_of(buckets, 0), epoch_of(buckets, 1), epoch_of(other_buckets, 0)
    assert len(first) == len(second) == len(third)
    for epoch, other_epoch in ((first, second), (first, third)):
        common = {frozenset(rows.tolist()) for rows in epoch} & {frozenset(rows.tolist()) for rows in other_epoch}
        assert len(common) < len(epoch) / 3, "many batches recur"
    mean_lengths = np.array([np.array(lengths)[rows].mean() for rows in first])
    assert abs(np.corrcoef(mean_lengths, np.arange(len(first)))[0, 1]) < 0.3, "batches are ordered by length"


def test_every_text_shares_batches_with_many_others() -> None:
    buckets = make(([5] * 40, 5, 1000, 0))
    met = {row for epoch in range(60) for rows in epoch_of(buckets, epoch) if 0 in rows for row in rows.tolist()}
    assert met == set(range(40))


def test_a_sorted_file_of_texts_of_one_length_gives_mixed_batches() -> None:
    """Reviews that are cut to a length and sorted by label are such a file."""
    labels = np.arange(2_000) >= 1_000
    shares = [labels[rows].mean() for rows in epoch_of(make(([110] * 2_000, 20, 10_000, 0)), 0)]
    assert all(0.1 < share < 0.9 for share in shares)


@pytest.mark.parametrize("lengths", [[7], [0], [0, 0, 0], [0, 5000, 0]])
def test_one_text_and_empty_texts_are_batches(lengths: list[int]) -> None:
    buckets = make((lengths, 2, 10, 0))
    for epoch in range(3):
        assert sorted(np.concatenate(epoch_of(buckets, epoch)).tolist()) == list(range(len(lengths)))
    assert sum(map(len, batch_by_length(np.array(lengths), batch_size=2, batch_tokens=10))) == len(lengths)


def test_data_without_texts_have_no_batches() -> None:
    assert list(batch_by_length(np.zeros(0, np.int64), batch_size=2, batch_tokens=10)) == []
    assert make(([], 2, 10, 0)).steps_per_epoch == 0


@pytest.mark.parametrize("max_length", [5, 300, 1 << 17])
def test_batches_of_many_texts_equal_those_of_a_single_sort(max_length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths are sorted by blocks, the order is cached, and a pool is shuffled when a batch needs it."""
    monkeypatch.setattr(buckets_module, "BLOCK_LENGTHS", 300)
    monkeypatch.setattr(compact_texts, "SPILL_BYTES", 400)
    lengths, seed = np.random.default_rng(1).integers(0, max_length, 2_000), 3
    result = make((lengths.tolist(), 7, 20 * max_length, seed))
    drawn = np.argsort(np.random.default_rng(mix(seed, 0, 1)).permutation(len(lengths)))
    order = drawn[np.argsort(lengths[drawn], kind="stable")]
    generator = np.random.default_rng(mix(seed, 2, 0))
    shown = generator.permutation(result.steps_per_epoch)
    batches = [
        batch
        for pool, parts in buckets_module._pools(lengths[order], 7, 20 * max_length)
        for batch in np.array_split(generator.permutation(order[pool]), parts)
    ]
    assert are_equal(epoch_of(result, 2), [batches[number] for number in shown])
    monkeypatch.setattr(buckets_module, "_order_by_length", None)
    assert are_equal(epoch_of(make((lengths.tolist(), 7, 20 * max_length, seed)), 2), epoch_of(result, 2)), (
        "the order is not read from the cache"
    )
