"""Words that are sampled in a step in place of all, and how often each is drawn."""

import numpy as np
import pytest
import torch

from ensue.models.specification import WordHead
from ensue.tasks.texts.corpus import SampledWords, notes_on_sampling, sampled_words

COUNTS = np.array([1000, 500, 5, 4, 3, 2, 1, 0, 0, 30])
CPU = torch.device("cpu")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("size", [1, 3, 9])
def test_each_word_is_drawn_as_often_as_expected(size: int, power: float) -> None:
    """The expected count is min(1, a · (count + 1)^power). The standard error of 2,000 steps is below 0.012."""
    words = SampledWords(COUNTS, size=size, power=power, seed=3)
    drawn = np.stack([np.bincount(words.draw(step, CPU).ids.numpy(), minlength=10) for step in range(2000)])
    assert drawn.sum(1).tolist() == [size] * 2000
    np.testing.assert_allclose(drawn.mean(0), words.expected, atol=0.05)
    assert words.expected.sum() == pytest.approx(size)
    assert words.expected.max() <= 1
    rare = words.expected < 1
    shares = words.expected[rare] / (COUNTS[rare] + 1.0) ** power
    np.testing.assert_allclose(shares, shares[0])
    assert (drawn[:, ~rare] == 1).all()


def test_a_sample_has_the_expected_counts_of_its_words() -> None:
    words = SampledWords(COUNTS, size=4, power=1.0, seed=0)
    sample = words.draw(7, CPU)
    np.testing.assert_allclose(sample.log_expected.exp().numpy(), words.expected[sample.ids.numpy()], rtol=1e-6)
    every = SampledWords(COUNTS, size=10, power=1.0, seed=0).draw(3, CPU)
    assert sorted(every.ids.tolist()) == list(range(10))
    assert not every.log_expected.any()


def test_a_step_is_a_function_of_seed_and_number() -> None:
    def ids(seed: int, step: int) -> list[int]:
        drawn: list[int] = SampledWords(COUNTS, size=4, power=0.0, seed=seed).draw(step, CPU).ids.tolist()
        return drawn

    assert ids(1, 5) == ids(1, 5)
    assert len({tuple(ids(seed, step)) for seed in (1, 2) for step in range(3)}) > 3


def test_a_sample_of_the_vocabulary_size_is_replaced_by_all_words() -> None:
    assert sampled_words(WordHead(sampled=10), COUNTS, 0) is None
    assert sampled_words(WordHead(), COUNTS, 0) is None
    assert sampled_words(WordHead(sampled=9), COUNTS, 0) is not None
    assert notes_on_sampling(WordHead(sampled=9), 10) == []
    (note,) = notes_on_sampling(WordHead(sampled=10), 10)
    assert "10 symbols, no more than head.sampled" in note
    with pytest.raises(ValueError, match="expected 1 to 10"):
        SampledWords(COUNTS, size=11, power=1.0, seed=0)
