"""Where sentences stand in the passages that are read, against plain lists."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.compact_texts import Ragged
from ensue.tasks.labeling.task import Passages


@given(data=st.data(), lengths=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=5))
def test_places_of_sentences(data: st.DataObject, lengths: list[list[int]]) -> None:
    """A word is found where its sentence is, whatever passages stand beside it in the batch."""
    flat = [length for passage in lengths for length in passage]
    starts = np.cumsum([0, *flat], dtype=np.int64)
    words = np.arange(100, 100 + starts[-1])
    passages = Passages(Ragged(words, starts), [len(passage) for passage in lengths])
    assert passages.are_sentences == all(len(passage) == 1 for passage in lengths)
    assert passages.words.lengths.tolist() == [sum(passage) for passage in lengths]
    rows = np.array(data.draw(st.permutations(range(len(lengths)))))[: data.draw(st.integers(1, len(lengths)))]
    batch = passages.words.padded(rows, fill=-1).flatten()
    found, sentences = passages.places(rows, torch.device("cpu")), passages.sentence_indices(rows)
    firsts = np.cumsum([0, *map(len, lengths)])
    expected = [(row, number) for row, c in enumerate(rows) for number in range(firsts[c], firsts[c + 1])]
    assert list(zip(found.rows.tolist(), sentences.tolist(), strict=True)) == expected
    for (_, number), places, real in zip(expected, found.places.numpy(), found.mask.numpy(), strict=True):
        here = batch[places[real]] if len(batch) else places[real]
        assert here.tolist() == words[starts[number] : starts[number + 1]].tolist()
        assert not places[~real].any()
