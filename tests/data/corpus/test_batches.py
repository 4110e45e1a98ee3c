"""Batches of language models: targets, frequency, order, and random access by step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.corpus.batches import Batches, Blocks, Segments
from ensue.data.mapped_file import TokenFile
from ensue.data.permutation import Permutation, mix
from ensue.errors import TrainingError

KINDS = [Segments, Blocks]
sizes = st.tuples(st.integers(2, 300), st.integers(1, 9), st.integers(1, 12), st.integers(-(2**70), 2**70))


def make(kind: type[Batches], count: int, batch_size: int, segment_length: int, seed: int = 0) -> Batches:
    """Return batches of a text whose ids are its positions."""
    return kind(TokenFile(np.arange(count)), batch_size=batch_size, segment_length=segment_length, seed=seed)


@pytest.mark.parametrize("kind", KINDS)
@given(sizes=sizes, epoch=st.integers(0, 1000))
def test_an_epoch_predicts_nearly_all_ids_once(
    kind: type[Batches], sizes: tuple[int, int, int, int], epoch: int
) -> None:
    count, batch_size, segment_length, seed = sizes
    if count <= segment_length:
        return
    batches = make(kind, count, batch_size, segment_length, seed)
    steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
    epoch_batches = [batches.batch(step) for step in steps]
    for inputs, targets, _ in epoch_batches:
        assert inputs.shape == targets.shape == (batches.batch_size, segment_length)
        assert inputs.dtype == targets.dtype == np.int64
        assert (targets == inputs + 1).all()
    predicted = np.concatenate([batch.targets.ravel() for batch in epoch_batches])
    assert len(np.unique(predicted)) == len(predicted)
    step_tokens = batches.batch_size * segment_length
    assert count - 1 - len(predicted) < step_tokens + segment_length
    assert batches.batch_size <= batch_size


@given(sizes=sizes)
def test_rows_continue_where_they_ended(sizes: tuple[int, int, int, int]) -> None:
    count, batch_size, segment_length, seed = sizes
    if count <= segment_length:
        return
    batches = make(Segments, count, batch_size, segment_length, seed)
    previous = batches.batch(0)
    assert previous.first
    for step in range(1, 2 * batches.steps_per_epoch):
        batch = batches.batch(step)
        assert batch.first == (step % batches.steps_per_epoch == 0)
        if not batch.first:
            assert (batch.inputs[:, 0] == previous.targets[:, -1]).all()
        previous = batch


def test_blocks_are_independent_and_each_epoch_has_another_order() -> None:
    batches = make(Blocks, 10_000, 4, 10)
    orders = []
    for epoch in range(2):
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        assert all(batches.batch(step).first for step in steps)
        orders.append([start // 10 for step in steps for start in batches.batch(step).inputs[:, 0].tolist()])
    matches = [sum(a == b for a, b in zip(orders[0], order, strict=True)) for order in (orders[1], sorted(orders[0]))]
    assert max(matches) < 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_a_function_of_seed_and_step(kind: type[Batches]) -> None:
    batches, equal_batches, other_batches = (make(kind, 5000, 8, 16, seed) for seed in (1, 1, 2))
    steps = [70, 3, 41]
    forwards = [batches.batch(step).inputs for step in steps]
    backwards = [equal_batches.batch(step).inputs for step in reversed(steps)][::-1]
    assert all((a == b).all() for a, b in zip(forwards, backwards, strict=True))
    assert any((a != other_batches.batch(step).inputs).any() for a, step in zip(forwards, steps, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_too_short_for_the_batch_has_fewer_rows(kind: type[Batches]) -> None:
    assert make(kind, 11, 64, 10).batch_size == 1
    assert make(kind, 31, 64, 10).batch_size == 3
    with pytest.raises(TrainingError, match="10 tokens, but one segment needs 11"):
        make(kind, 10, 64, 10)


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_a_permutation_has_each_number_once(size: int, key: int) -> None:
    assert sorted(Permutation(size, key)(np.arange(size)).tolist()) == list(range(size))


def test_a_permutation_of_very_many_numbers_needs_no_table() -> None:
    size = 10**15
    positions = np.arange(0, size, size // 1000)
    numbers = Permutation(size, 7)(positions)
    assert len(np.unique(numbers)) == len(positions)
    assert 0 <= numbers.min() < numbers.max() < size
    assert abs(numbers.mean() / size - 0.5) < 0.05
    assert abs(np.corrcoef(positions, numbers)[0, 1]) < 0.15


def test_mix_depends_on_every_number_and_their_order() -> None:
    assert len({mix(0, 0), mix(0, 1), mix(1, 0), mix(0), mix(-1, 0), mix(2**63, 0)}) == 6
