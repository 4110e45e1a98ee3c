"""Words in columns, texts and ragged rows, against plain lists."""

from collections import Counter
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.compact_texts import Ragged, StringColumn, Texts

strings = st.sampled_from(["a", "b", "", "é", "a\x00", "long word"]) | st.text(max_size=2)
texts = st.lists(st.lists(strings, max_size=6), max_size=8)


def ragged(rows: list[list[int]]) -> Ragged:
    values = np.array([value for row in rows for value in row], np.int32)
    return Ragged(values, np.array([0, *accumulate(map(len, rows))], np.int64))


@given(pieces=texts)
def test_a_column_is_a_list_of_strings(pieces: list[list[str]]) -> None:
    column, expected = StringColumn(), []
    for piece in pieces:
        column.extend(piece)
        expected += piece
        assert [column.values[id] for id in column.ids] == expected
        assert len(column) == len(column.ids) == len(expected)
    assert column.values == list(dict.fromkeys(expected))
    assert column.counts() == Counter(expected)


def test_a_column_is_read_once_and_from_anything() -> None:
    column = StringColumn()
    column.extend(letter for letter in "abca")
    column.extend(())
    assert column.values == ["a", "b", "c"]
    assert column.ids.tolist() == [0, 1, 2, 0]
    assert column.ids.dtype == np.int32


def test_what_somebody_reads_does_not_move() -> None:
    """A view of the ids keeps a column as it is, loudly."""
    column = StringColumn()
    column.extend("ab")
    ids = column.ids
    with pytest.raises(BufferError):
        column.extend("c" * 1000)
    assert ids.tolist() == [0, 1]


@given(parts=texts, data=st.data())
def test_selected_texts_are_those_of_new_texts(parts: list[list[str]], data: st.DataObject) -> None:
    """Also their values and the order of these, which decide on the numbers of words."""
    rows = data.draw(st.lists(st.sampled_from(range(len(parts))), max_size=8)) if parts else []
    whole, expected = Texts(), Texts()
    for part in parts:
        whole.append(part)
    for row in rows:
        expected.append(parts[row])
    result = whole.select(np.array(rows, np.int64))
    for texts in (result, expected):
        texts.append(["new", *texts.words.values])
    assert result.words.values == expected.words.values
    assert result.words.ids.tolist() == expected.words.ids.tolist()
    assert result.starts.tolist() == expected.starts.tolist()


@given(parts=texts)
def test_texts_are_lists_of_words(parts: list[list[str]]) -> None:
    result = Texts()
    for part in parts:
        result.append(part)
    assert len(result) == len(parts)
    assert result.lengths.tolist() == [len(part) for part in parts]
    starts, words = result.starts, result.words
    assert starts.tolist() == [0, *accumulate(map(len, parts))]
    assert starts.dtype == np.int64
    for n, part in enumerate(parts):
        assert [words.values[id] for id in words.ids[starts[n] : starts[n + 1]]] == part


rows_of_numbers = st.lists(st.lists(st.integers(-5, 1000), max_size=6), max_size=8)


@given(rows=rows_of_numbers, fill=st.sampled_from([0, -1, 7]), data=st.data())
def test_rows_side_by_side(rows: list[list[int]], fill: int, data: st.DataObject) -> None:
    """Any of them in any order, some of them twice, or none."""
    result = ragged(rows)
    assert len(result) == len(rows)
    chosen = data.draw(st.lists(st.sampled_from(range(len(rows))), max_size=6)) if rows else []
    index, longest = np.array(chosen, np.int64), max((len(rows[row]) for row in chosen), default=0)
    padded, mask = result.padded(index, fill), result.mask(index)
    assert padded.shape == (len(chosen), longest)
    assert padded.dtype == np.int64
    assert padded.tolist() == [rows[row] + [fill] * (longest - len(rows[row])) for row in chosen]
    if all(len(rows[row]) == longest for row in chosen):
        assert mask is None
    else:
        assert mask is not None
        assert mask.tolist() == [[place < len(rows[row]) for place in range(longest)] for row in chosen]


@given(rows=rows_of_numbers, data=st.data())
def test_a_slice_is_some_of_the_rows(rows: list[list[int]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    part, expected = ragged(rows).slice(start, stop), ragged(rows[start:stop])
    assert len(part) == stop - start
    assert part.lengths.tolist() == expected.lengths.tolist()
    everything = np.arange(stop - start)
    assert part.padded(everything).tolist() == expected.padded(everything).tolist()


def test_the_only_word_of_each_text() -> None:
    texts = Texts()
    for word in "bcab":
        texts.append([word])
    result = texts.single_labels({"b": 2, "c": 1})
    assert result is not None
    assert (result.tolist(), result.dtype) == ([2, 1, 0, 2], np.uint8)
    texts.append([])
    assert texts.single_labels({"b": 2}) is None


def test_rows_without_anything() -> None:
    empty = ragged([[], []])
    assert empty.padded(np.arange(2)).shape == (2, 0)
    assert empty.mask(np.arange(2)) is None
    assert ragged([]).padded(np.arange(0)).shape == (0, 0)
    assert ragged([[], [3]]).padded(np.arange(2), fill=9).tolist() == [[9], [3]]
