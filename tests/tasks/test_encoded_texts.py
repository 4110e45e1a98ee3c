"""Batches of texts equal plain lists: words, each form once, columns and masks."""

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


def value(text: list[str], position: int, name: str) -> str:
    """Return a value of an artificial column."""
    return ["NOUN", "VERB", "ADJ"][(len(text) + position) % 3] if name == "pos" else "xy"[position % 2]


def encoded(lists: list[list[str]]) -> EncodedTexts:
    all_texts, columns = Texts(), {"2": StringColumn(), "pos": StringColumn()}
    for text in lists:
        all_texts.append(text)
        for name, column in columns.items():
            column.extend(value(text, position, name) for position in range(len(text)))
    return EncodedTexts(LEXICON, all_texts, columns)


def assert_has_texts(words: Words, lists: list[list[str]]) -> None:
    """Assert that a batch has these texts."""
    max_length = max(map(len, lists), default=0)
    assert words.numbers.shape == (len(lists), max_length)
    assert words.columns.shape == (len(lists), max_length, 2)
    assert words.num_real == sum(map(len, lists))
    if words.mask is None:
        assert all(len(text) == max_length for text in lists)
    else:
        assert words.mask.tolist() == [[position < len(text) for position in range(max_length)] for text in lists]
    for row, text in enumerate(lists):
        numbers = words.numbers[row, : len(text)]
        expected = LEXICON.encode(text)
        assert words.forms.words[numbers].tolist() == expected.words.tolist()
        assert words.forms.affixes[numbers].tolist() == expected.affixes.tolist()
        assert words.forms.shapes[numbers].tolist() == expected.shapes.tolist()
        assert words.forms.vectors[numbers].tolist() == expected.vectors.tolist()
        assert words.forms.lengths[numbers].tolist() == expected.lengths.tolist()
        width = expected.characters.shape[1]
        assert words.forms.characters[numbers, :width].tolist() == expected.characters.tolist()
        values = {name: [value(text, n, name) for n in range(len(text))] for name in ("pos", "2")}
        expected_columns = [LEXICON.encode_column(*column) for column in values.items()]
        assert words.columns[row, : len(text)].tolist() == np.stack(expected_columns, 1).tolist()


@given(lists=texts, data=st.data())
def test_a_batch_has_the_requested_texts(lists: list[list[str]], data: st.DataObject) -> None:
    """The texts have the requested order, and some are repeated."""
    rows = data.draw(st.lists(st.sampled_from(range(len(lists))), min_size=1, max_size=6))
    encoded_texts = encoded(lists)
    assert len(encoded_texts) == len(lists)
    words = encoded_texts.batch(np.array(rows), CPU)
    assert_has_texts(words, [lists[row] for row in rows])
    cut = data.draw(st.integers(0, len(rows)))
    max_length = words.numbers.shape[1]
    for rows_of_half, chosen in ((slice(0, cut), rows[:cut]), (slice(cut, None), rows[cut:])):
        half = words.slice_rows(rows_of_half)
        assert half.numbers.shape == (len(chosen), max_length)
        assert half.num_real == sum(len(lists[row]) for row in chosen)
        assert half.numbers.tolist() == words.numbers[rows_of_half].tolist()
        assert half.columns.tolist() == words.columns[rows_of_half].tolist()
        assert half.forms is words.forms


@given(lists=texts)
def test_each_form_is_stored_once(lists: list[list[str]]) -> None:
    """Only a form at which padding points may be there without occurring."""
    words = encoded(lists).batch(np.arange(len(lists)), CPU)
    occurring = {word for text in lists for word in text}
    padded = {next(iter(word for text in lists for word in text))} if occurring and words.mask is not None else set()
    assert len(words.forms.words) == len(occurring | padded)


def test_texts_without_words_have_empty_rows() -> None:
    assert_has_texts(encoded([[], []]).batch(np.arange(2), CPU), [[], []])
    encoded_texts = encoded([[], ["bird"], []])
    assert_has_texts(encoded_texts.batch(np.array([0, 2]), CPU), [[], []])
    assert_has_texts(encoded_texts.batch(np.array([2, 1]), CPU), [[], ["bird"]])


def test_characters_are_as_long_as_the_longest_word_of_the_batch() -> None:
    encoded_texts = encoded([["the", "bird"], ["a" * 50]])
    assert encoded_texts.batch(np.array([0]), CPU).forms.characters.shape == (2, 4)
    assert encoded_texts.batch(np.array([1]), CPU).forms.characters.shape == (1, 32)


def test_a_lexicon_without_columns_reads_none() -> None:
    lexicon, texts, column = Lexicon.train({"bird": 2}), Texts(), StringColumn()
    texts.append(["bird", "x"])
    column.extend(["NOUN", "NOUN"])
    for columns in (None, {"pos": column}):
        words = EncodedTexts(lexicon, texts, columns).batch(np.arange(1), CPU)
        assert words.columns.shape == (1, 2, 0)


def test_a_missing_column_is_an_error() -> None:
    texts = Texts()
    texts.append(["bird"])
    with pytest.raises(KeyError, match="pos"):
        EncodedTexts(LEXICON, texts)
