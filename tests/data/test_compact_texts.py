"""Columns of words, texts and ragged rows equal plain lists."""

from collections import Counter
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.compact_texts import Ragged, StringColumn, Texts

strings = st.sampled_from(["a", "b", "", "é", "a\x00", "long word"]) | st.text(max_size=2)
word_lists = st.lists(st.lists(strings, max_size=6), max_size=8)


def ragged(rows: list[list[int]]) -> Ragged:
    values = np.array([value for row in rows for value in row], np.int32)
    return Ragged(values, np.array([0, *accumulate(map(len, rows))], np.int64))


@given(pieces=word_lists)
def test_a_column_equals_a_list_of_strings(pieces: list[list[str]]) -> None:
    column, expected = StringColumn(), []
    for piece in pieces:
        column.extend(piece)
        expected += piece
        assert [column.values[id] for id in column.ids] == expected
        assert len(column) == len(column.ids) == len(expected)
    assert column.values == list(dict.fromkeys(expected))
    assert column.counts() == Counter(expected)


def test_a_column_reads_any_iterable_once() -> None:
    column = StringColumn()
    column.extend(letter for letter in "abca")
    column.extend(())
    assert column.values == ["a", "b", "c"]
    assert column.ids.tolist() == [0, 1, 2, 0]
    assert column.ids.dtype == np.int32


def test_a_column_with_a_view_refuses_to_grow() -> None:
    column = StringColumn()
    column.extend("ab")
    ids = column.ids
    with pytest.raises(BufferError):
        column.extend("c" * 1000)
    assert ids.tolist() == [0, 1]


@given(lists=word_lists, data=st.data())
def test_selected_texts_equal_new_texts(lists: list[list[str]], data: st.DataObject) -> None:
    """Their values and the order of these are equal, too, since they give the ids of words."""
    rows = data.draw(st.lists(st.sampled_from(range(len(lists))), max_size=8)) if lists else []
    all_texts, expected = Texts(), Texts()
    for words in lists:
        all_texts.append(words)
    for row in rows:
        expected.append(lists[row])
    result = all_texts.select(np.array(rows, np.int64))
    for texts in (result, expected):
        texts.append(["new", *texts.words.values])
    assert result.words.values == expected.words.values
    assert result.words.ids.tolist() == expected.words.ids.tolist()
    assert result.starts.tolist() == expected.starts.tolist()


@given(rows=word_lists)
def test_texts_equal_lists_of_words(rows: list[list[str]]) -> None:
    result = Texts()
    for words in rows:
        result.append(words)
    assert len(result) == len(rows)
    assert result.lengths.tolist() == [len(words) for words in rows]
    starts, column = result.starts, result.words
    assert starts.tolist() == [0, *accumulate(map(len, rows))]
    assert starts.dtype == np.int64
    for n, words in enumerate(rows):
        assert [column.values[id] for id in column.ids[starts[n] : starts[n + 1]]] == words


rows_of_numbers = st.lists(st.lists(st.integers(-5, 1000), max_size=6), max_size=8)


@given(rows=rows_of_numbers, fill=st.sampled_from([0, -1, 7]), data=st.data())
def test_padded_rows_equal_those_of_lists(rows: list[list[int]], fill: int, data: st.DataObject) -> None:
    """The rows have any order, and some are repeated, or none is chosen."""
    result = ragged(rows)
    assert len(result) == len(rows)
    chosen = data.draw(st.lists(st.sampled_from(range(len(rows))), max_size=6)) if rows else []
    index, width = np.array(chosen, np.int64), max((len(rows[row]) for row in chosen), default=0)
    padded, mask = result.padded(index, fill), result.mask(index)
    assert padded.shape == (len(chosen), width)
    assert padded.dtype == np.int64
    assert padded.tolist() == [rows[row] + [fill] * (width - len(rows[row])) for row in chosen]
    if all(len(rows[row]) == width for row in chosen):
        assert mask is None
    else:
        assert mask is not None
        assert mask.tolist() == [[position < len(rows[row]) for position in range(width)] for row in chosen]


@given(rows=rows_of_numbers, data=st.data())
def test_a_slice_equals_that_of_lists(rows: list[list[int]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    result, expected = ragged(rows).slice(start, stop), ragged(rows[start:stop])
    assert len(result) == stop - start
    assert result.lengths.tolist() == expected.lengths.tolist()
    everything = np.arange(stop - start)
    assert result.padded(everything).tolist() == expected.padded(everything).tolist()


def test_single_words_of_texts_are_read() -> None:
    texts = Texts()
    for word in "bcab":
        texts.append([word])
    result = texts.single_labels({"b": 2, "c": 1})
    assert result is not None
    assert (result.tolist(), result.dtype) == ([2, 1, 0, 2], np.uint8)
    texts.append([])
    assert texts.single_labels({"b": 2}) is None


def test_rows_without_numbers_are_padded() -> None:
    empty = ragged([[], []])
    assert empty.padded(np.arange(2)).shape == (2, 0)
    assert empty.mask(np.arange(2)) is None
    assert ragged([]).padded(np.arange(0)).shape == (0, 0)
    assert ragged([[], [3]]).padded(np.arange(2), fill=9).tolist() == [[9], [3]]
