"""Senses from a few examples: the nearest mean vector, with a model of fixed vectors."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ensue.errors import EnsueError
from ensue.extensions.bidirectional.word_uses import (
    LabeledUse,
    Senses,
    WordUse,
    best_cosine,
    compute_use_vectors,
    score_senses,
)

VECTORS = {"river": (1.0, 0.0), "money": (0.0, 1.0), "bank": (0.0, 0.0)}


class SentenceMeans:
    """The vector of a word is the mean of its sentence. The first two of six layers are constant."""

    def layers_of_words(
        self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean"
    ) -> list[NDArray[np.float32]]:
        means = [np.mean([VECTORS[word] for word in words], axis=0) for words in sentences]
        return [
            np.stack([np.full((len(words), 2), 9.0 if layer < 2 else mean, np.float32) for layer in range(6)])
            for words, mean in zip(sentences, means, strict=True)
        ]


def test_a_use_has_the_sense_with_the_nearest_mean() -> None:
    examples = [
        LabeledUse(WordUse(("bank", "river"), 0), "water"),
        LabeledUse(WordUse(("river", "bank", "river"), 1), "water"),
        LabeledUse(WordUse(("money", "bank"), 1), "coins"),
    ]
    senses = Senses(SentenceMeans(), examples)
    uses = [WordUse(("bank", "money", "money"), 0), WordUse(("river", "bank", "money", "river"), 1)]
    assert senses.names == ["coins", "water"]
    assert senses.nearest(uses) == ["coins", "water"]
    np.testing.assert_allclose(senses.cosines(uses), [[1, 0], np.array([1, 2]) / 5**0.5], atol=1e-6)
    assert compute_use_vectors(SentenceMeans(), []).shape == (0, 1)
    assert senses.nearest([]) == []
    for place in (2, -1):
        with pytest.raises(EnsueError, match=rf"no word {place} in a sentence of 2 words; the first word is 0"):
            senses.nearest([WordUse(("bank", "river"), place)])
    with pytest.raises(EnsueError, match="expected labeled examples, found none"):
        Senses(SentenceMeans(), [])


def test_recalls_are_means_over_uses_and_over_senses() -> None:
    scores = score_senses({"bank": [("a", "a"), ("a", "a"), ("a", "b"), ("b", "a")], "arm": [("c", "c")]})
    assert scores.micro_recall == 3 / 5
    assert scores.macro_recall == pytest.approx((1 / 3 + 1) / 2)
    assert scores.words == {"bank": 0.5, "arm": 1.0}
    assert scores.uses == 5


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=12))
def test_no_threshold_is_better_than_the_best_cosine(pairs: list[tuple[int, bool]]) -> None:
    cosines = np.array([cosine / 3 for cosine, _ in pairs])
    is_same = np.array([same for _, same in pairs])

    def right(threshold: float) -> int:
        return int(((cosines > threshold) == is_same).sum())

    threshold = best_cosine(cosines, is_same)
    assert right(threshold) == max(right(threshold) for threshold in np.linspace(-2, 2, 101))
