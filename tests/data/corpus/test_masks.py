"""Masks and examples of masked language models are functions of (seed, epoch, example)."""

from collections.abc import Callable

import numpy as np
import pytest

from ensue.data.corpus.examples import NOT_HIDDEN, Frame, FramedBlocks, FramedExamples, FramedPairs, Masking
from ensue.data.mapped_file import TokenFile

BEGIN, SEPARATOR, PADDING, MASK, FIRST = 0, 1, 2, 3, 4
FRAME = Frame(BEGIN, SEPARATOR, PADDING)
V = 104
TEXT_IDS = np.arange(FIRST, V)
CAN_HIDE = np.arange(V) >= FIRST
BEGINS_WORD = np.arange(V) % 3 != 0
"""Every third token continues a word."""


def masking(**changes: object) -> Masking:
    return Masking(**{"mask_id": MASK, "text_ids": TEXT_IDS, "can_hide": CAN_HIDE, **changes})  # type: ignore[arg-type]


def stream(size: int = 1000, *, lines: bool = False) -> TokenFile:
    ids = np.random.default_rng(0).integers(FIRST, V, size)
    if lines:
        ids[::11] = SEPARATOR
        ids[::55] = BEGIN
    return TokenFile(ids)


MAKERS: dict[str, Callable[[], FramedExamples]] = {
    "blocks": lambda: FramedBlocks(stream(), length=14, frame=FRAME, seed=3),
    "pairs": lambda: FramedPairs(stream(lines=True), length=29, frame=FRAME, seed=3),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("kind", MAKERS)
def test_an_example_is_the_same_in_any_batch(kind: str, whole_words: bool) -> None:
    """Batches have any size, over several epochs, from one reader or from others that begin anywhere."""
    hides = masking(begins_word=BEGINS_WORD if whole_words else None)
    examples = MAKERS[kind]()
    size = 2 * examples.count + 3
    all_rows = examples.rows(0, size)
    inputs, targets = hides.hide(all_rows.ids, all_rows.keys)
    for batch in (7, examples.count + 2):
        for first in range(0, size, batch):
            some_rows = MAKERS[kind]().rows(first, min(batch, size - first))
            rows, length = slice(first, first + batch), some_rows.ids.shape[1]
            some_inputs, some_targets = hides.hide(some_rows.ids, some_rows.keys)
            np.testing.assert_array_equal(some_inputs, inputs[rows, :length])
            np.testing.assert_array_equal(some_targets, targets[rows, :length])
            if kind == "pairs":
                np.testing.assert_array_equal(some_rows.follows, all_rows.follows[rows])
                np.testing.assert_array_equal(some_rows.segments, all_rows.segments[rows, :length])


@pytest.mark.parametrize("kind", MAKERS)
def test_an_epoch_has_each_example_once_and_epochs_differ(kind: str) -> None:
    examples = MAKERS[kind]()
    epochs = [examples.rows(epoch * examples.count, examples.count) for epoch in range(2)]
    for epoch in epochs:
        assert len(set(epoch.keys.tolist())) == examples.count
    assert not set(epochs[0].keys.tolist()) & set(epochs[1].keys.tolist())
    assert epochs[0].ids.shape != epochs[1].ids.shape or (epochs[0].ids != epochs[1].ids).any()


def test_blocks_are_the_text_between_marks() -> None:
    tokens = stream(100)
    blocks = FramedBlocks(tokens, length=14, frame=FRAME, seed=0)
    result = blocks.epoch_rows(5, np.arange(blocks.count))
    assert (result.ids[:, 0] == BEGIN).all()
    assert (result.ids[:, -1] == SEPARATOR).all()
    text = result.ids[:, 1:-1].ravel().tolist()
    all_ids = tokens.read(0, 100).tolist()
    assert any(all_ids[start : start + len(text)] == text for start in range(100 - len(text) + 1))
    everything = FramedBlocks(tokens, length=14, frame=FRAME, seed=0, covers_all=True)
    rows = everything.epoch_rows(0, np.arange(everything.count))
    assert rows.lengths.tolist() == [16] * 7 + [4]
    assert rows.ids[rows.ids >= FIRST].tolist() == all_ids
    assert len(FramedBlocks(stream(14), length=14, frame=FRAME, seed=0).rows(0, 2).ids) == 2


def test_the_offset_of_blocks_differs_by_epoch() -> None:
    blocks = FramedBlocks(stream(42), length=14, frame=FRAME, seed=0)
    assert blocks.count == 2
    assert len({int(blocks.epoch_rows(epoch, np.zeros(1, np.int64)).ids[0, 1]) for epoch in range(40)}) > 7


def test_pairs_follow_each_other_in_half_of_the_examples() -> None:
    tokens = stream(20_000, lines=True)
    pairs = FramedPairs(tokens, length=29, frame=FRAME, seed=0)
    result = pairs.rows(0, pairs.count)
    assert result.follows is not None
    assert result.segments is not None
    has_more = np.diff(pairs.chunks)[:, 0] > 1  # a single sentence has no sentence that follows
    assert 0.45 < result.follows.sum() / has_more.sum() < 0.55
    text = tokens.read(0, 20_000)
    plain = text[text >= FIRST].tolist()
    position_of = {tuple(plain[at : at + 8]): at for at in range(len(plain) - 8)}
    for ids, length, segments, follows in zip(result.ids, result.lengths, result.segments, result.follows, strict=True):
        real = ids[:length]
        assert length <= 32
        assert real[0] == BEGIN
        assert (ids[length:] == PADDING).all()
        (first, second) = np.flatnonzero(real == SEPARATOR)
        assert second == length - 1
        assert segments[:length].tolist() == [0] * (first + 1) + [1] * (length - first - 1)
        a, b = real[1:first].tolist(), real[first + 1 : second].tolist()
        assert a
        assert b
        if len(a) > 8 and len(b) > 8:
            assert (position_of[tuple(b[:8])] == position_of[tuple(a[:8])] + len(a)) == follows


def test_a_text_that_does_not_follow_is_of_another_document() -> None:
    """Each document has one id, and its texts meet those of every other document."""
    ids = [id for document in range(4) for id in [BEGIN, *[FIRST + document, SEPARATOR] * 12]]
    pairs = FramedPairs(TokenFile(np.array(ids)), length=8, frame=FRAME, seed=0)
    rows = pairs.rows(0, 10 * pairs.count)
    assert rows.segments is not None
    assert rows.follows is not None
    seconds = np.take_along_axis(rows.ids, rows.segments.argmax(1, keepdims=True), 1)[:, 0]
    assert (rows.ids[rows.follows, 1] == seconds[rows.follows]).all()
    short = ~rows.follows & ((rows.ids == SEPARATOR).argmax(1) == 2)
    assert rows.lengths[short].max() == pairs.longest  # the second text fills the row
    apart = set(zip(rows.ids[~rows.follows, 1].tolist(), seconds[~rows.follows].tolist(), strict=True))
    assert apart == {(FIRST + a, FIRST + b) for a in range(4) for b in range(4) if a != b}


def test_pairs_need_two_documents() -> None:
    with pytest.raises(ValueError, match="at least two documents"):
        FramedPairs(TokenFile(np.array([5, 6, SEPARATOR, 7])), length=9, frame=FRAME, seed=0)


def test_a_long_sentence_is_cut() -> None:
    ids = np.arange(FIRST, FIRST + 90)
    ids[40] = BEGIN
    result = FramedPairs(TokenFile(ids), length=9, frame=FRAME, seed=0).rows(0, 2)
    assert result.lengths.tolist() == [12, 12]
    assert result.follows is not None
    assert not result.follows.any()


@pytest.mark.parametrize("whole_words", [False, True])
def test_the_shares_of_hidden_tokens_equal_the_settings(whole_words: bool) -> None:
    blocks = FramedBlocks(stream(200_000), length=126, frame=FRAME, seed=1)
    rows = blocks.rows(0, blocks.count)
    hides = masking(begins_word=BEGINS_WORD if whole_words else None)
    inputs, targets = hides.hide(rows.ids, rows.keys)
    hidden = targets != NOT_HIDDEN
    assert (targets[hidden] == rows.ids[hidden]).all()
    assert (inputs[~hidden] == rows.ids[~hidden]).all()
    assert CAN_HIDE[targets[hidden]].all()
    expected = round(0.15 * 126)
    assert (hidden.sum(1) == expected).all() if not whole_words else (hidden.sum(1) <= expected).all()
    assert hidden.sum(1).mean() > expected - 0.7
    kinds = [np.mean(kind[hidden]) for kind in (inputs == MASK, inputs == rows.ids)]
    assert kinds == pytest.approx([0.8, 0.1 + 0.1 / 100], abs=0.01)
    assert hidden[:, 1:-1].mean(0).std() < 0.02  # every position is equally likely
    if whole_words:
        goes_on = ~BEGINS_WORD[rows.ids[:, 2:-1]]
        assert (hidden[:, 2:-1] == hidden[:, 1:-2])[goes_on].all()


@pytest.mark.parametrize("whole_words", [False, True])
def test_short_rows_hide_one_token_and_empty_ones_none(whole_words: bool) -> None:
    ids = np.array([[BEGIN, 7, SEPARATOR, PADDING], [BEGIN, SEPARATOR, PADDING, PADDING], [BEGIN, 7, 8, SEPARATOR]])
    hides = masking(begins_word=BEGINS_WORD if whole_words else None)
    _, targets = hides.hide(ids, np.arange(3).astype(np.uint64))
    assert (targets != NOT_HIDDEN).sum(1).tolist() == [1, 0, 1]
