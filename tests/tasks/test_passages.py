"""Passages: the positions of sentences agree with a computation on Python lists."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.compact_texts import Ragged
from ensue.tasks.labeling.task import Passages


@given(data=st.data(), lengths=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=5))
def test_positions_of_sentences_are_in_their_passages(data: st.DataObject, lengths: list[list[int]]) -> None:
    """The words of a sentence are at its positions, whatever other passages are in the batch."""
    flat = [length for passage in lengths for length in passage]
    starts = np.cumsum([0, *flat], dtype=np.int64)
    words = np.arange(100, 100 + starts[-1])
    passages = Passages(Ragged(words, starts), [len(passage) for passage in lengths])
    assert passages.are_sentences == all(len(passage) == 1 for passage in lengths)
    assert passages.words.lengths.tolist() == [sum(passage) for passage in lengths]
    rows = np.array(data.draw(st.permutations(range(len(lengths)))))[: data.draw(st.integers(1, len(lengths)))]
    batch = passages.words.padded(rows, fill=-1).flatten()
    positions, sentences = passages.places(rows, torch.device("cpu")), passages.sentence_indices(rows)
    firsts = np.cumsum([0, *map(len, lengths)])
    expected = [(row, number) for row, c in enumerate(rows) for number in range(firsts[c], firsts[c + 1])]
    assert list(zip(positions.rows.tolist(), sentences.tolist(), strict=True)) == expected
    for (_, number), places, real in zip(expected, positions.places.numpy(), positions.mask.numpy(), strict=True):
        words_of_sentence = batch[places[real]] if len(batch) else places[real]
        assert words_of_sentence.tolist() == words[starts[number] : starts[number + 1]].tolist()
        assert not places[~real].any()
