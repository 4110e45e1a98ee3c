"""Texts as batches: the words that stand there, each form once, columns and masks, against plain lists."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.compact_texts import StringColumn, Texts
from ensue.models.word_features import Words
from ensue.tasks.words.data import EncodedTexts
from ensue.text.lexicon import Lexicon

CPU = torch.device("cpu")
WORDS = ["the", "The", "bird", "xyz", "1984", "a" * 50, ""]
LEXICON = Lexicon.train(
    {word: 2 for word in WORDS if word != "xyz"},
    columns={"pos": ["NOUN", "VERB"], "2": ["x"]}, characters=True, longest_affix=2, shapes=True, vectors=["the"],
)  # fmt: skip
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=6), min_size=1, max_size=6)


def value(text: list[str], place: int, name: str) -> str:
    """Of a column that is made up."""
    return ["NOUN", "VERB", "ADJ"][(len(text) + place) % 3] if name == "pos" else "xy"[place % 2]


def encoded(parts: list[list[str]]) -> EncodedTexts:
    found, columns = Texts(), {"2": StringColumn(), "pos": StringColumn()}
    for text in parts:
        found.append(text)
        for name, column in columns.items():
            column.extend(value(text, place, name) for place in range(len(text)))
    return EncodedTexts(LEXICON, found, columns)


def holds(words: Words, parts: list[list[str]]) -> None:
    """Whether a batch has these texts."""
    longest = max(map(len, parts), default=0)
    assert words.numbers.shape == (len(parts), longest)
    assert words.columns.shape == (len(parts), longest, 2)
    assert words.num_real == sum(map(len, parts))
    if words.mask is None:
        assert all(len(text) == longest for text in parts)
    else:
        assert words.mask.tolist() == [[place < len(text) for place in range(longest)] for text in parts]
    for row, text in enumerate(parts):
        numbers = words.numbers[row, : len(text)]
        expected = LEXICON.encode(text)
        assert words.forms.words[numbers].tolist() == expected.words.tolist()
        assert words.forms.affixes[numbers].tolist() == expected.affixes.tolist()
        assert words.forms.shapes[numbers].tolist() == expected.shapes.tolist()
        assert words.forms.vectors[numbers].tolist() == expected.vectors.tolist()
        assert words.forms.lengths[numbers].tolist() == expected.lengths.tolist()
        width = expected.characters.shape[1]
        assert words.forms.characters[numbers, :width].tolist() == expected.characters.tolist()
        given = [LEXICON.encode_column(name, [value(text, n, name) for n in range(len(text))]) for name in ("pos", "2")]
        assert words.columns[row, : len(text)].tolist() == np.stack(given, 1).tolist()


@given(parts=texts, data=st.data())
def test_a_batch_has_the_texts_that_were_asked_for(parts: list[list[str]], data: st.DataObject) -> None:
    """In that order, some of them twice."""
    rows = data.draw(st.lists(st.sampled_from(range(len(parts))), min_size=1, max_size=6))
    found = encoded(parts)
    assert len(found) == len(parts)
    words = found.batch(np.array(rows), CPU)
    holds(words, [parts[row] for row in rows])
    cut = data.draw(st.integers(0, len(rows)))
    longest = words.numbers.shape[1]
    for part, chosen in ((slice(0, cut), rows[:cut]), (slice(cut, None), rows[cut:])):
        half = words.slice_rows(part)
        assert half.numbers.shape == (len(chosen), longest)
        assert half.num_real == sum(len(parts[row]) for row in chosen)
        assert half.numbers.tolist() == words.numbers[part].tolist()
        assert half.columns.tolist() == words.columns[part].tolist()
        assert half.forms is words.forms


@given(parts=texts)
def test_each_form_is_there_once(parts: list[list[str]]) -> None:
    """And none that does not stand there, but for the one that padding points to."""
    words = encoded(parts).batch(np.arange(len(parts)), CPU)
    standing = {word for text in parts for word in text}
    padded = {next(iter(word for text in parts for word in text))} if standing and words.mask is not None else set()
    assert len(words.forms.words) == len(standing | padded)


def test_texts_without_words() -> None:
    holds(encoded([[], []]).batch(np.arange(2), CPU), [[], []])
    found = encoded([[], ["bird"], []])
    holds(found.batch(np.array([0, 2]), CPU), [[], []])
    holds(found.batch(np.array([2, 1]), CPU), [[], ["bird"]])


def test_characters_are_as_long_as_the_batch_needs() -> None:
    found = encoded([["the", "bird"], ["a" * 50]])
    assert found.batch(np.array([0]), CPU).forms.characters.shape == (2, 4)
    assert found.batch(np.array([1]), CPU).forms.characters.shape == (1, 32)


def test_a_lexicon_without_columns_reads_none() -> None:
    lexicon, parts, column = Lexicon.train({"bird": 2}), Texts(), StringColumn()
    parts.append(["bird", "x"])
    column.extend(["NOUN", "NOUN"])
    for columns in (None, {"pos": column}):
        words = EncodedTexts(lexicon, parts, columns).batch(np.arange(1), CPU)
        assert words.columns.shape == (1, 2, 0)


def test_a_column_that_is_missing() -> None:
    parts = Texts()
    parts.append(["bird"])
    with pytest.raises(KeyError, match="pos"):
        EncodedTexts(LEXICON, parts)
