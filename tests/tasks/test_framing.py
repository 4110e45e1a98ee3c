"""Framing of words: each has separate tokens, and words are encoded like their text."""

import numpy as np
import pytest

from ensue.tasks.masked_language_modeling.model import framing_of
from ensue.tasks.texts.framing import Framing
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.masked_tokens import MaskedTokenizer
from ensue.text.subwords import SubwordTokenizer
from ensue.text.tokenizers import train_tokenizer

TEXT = "the cat saw the cats [SEP] and [MASK] the dog\n" * 3
CODERS = {kind: MaskedTokenizer(train_tokenizer(kind, [TEXT], max_size=300)) for kind in ("wordpiece", "bpe")}
TRAINED = CODERS["bpe"].tokenizer
assert isinstance(TRAINED, SubwordTokenizer)
PUBLISHED = MaskedTokenizer(SubwordTokenizer(TRAINED.library, special={"[START]": "Ċ"}))
"""Subwords of a text without a blank before it, like RoBERTa's."""


@pytest.mark.parametrize("kind", CODERS)
def test_words_without_tokens_do_not_shift_others(kind: str) -> None:
    coder, framing = CODERS[kind], framing_of(CODERS[kind], 16)
    words = ["the", "", "\x00", "cats", "\u200d", "dog"]
    split = framing.split(words)
    assert len(split.counts) == len(words)
    assert sum(split.counts) == len(split.ids)
    assert split.counts[1] == 0
    assert split.ids[-split.counts[-1] :].tolist() == coder.encode("dog").tolist()
    assert framing.split([]).ids.shape == (0,)
    assert framing.add_frame(split.ids).tolist() == coder.add_frame(split.ids).tolist()


@pytest.mark.parametrize("coder", [*CODERS.values(), PUBLISHED], ids=[*CODERS, "published"])
def test_words_are_encoded_like_their_text(coder: MaskedTokenizer) -> None:
    for text in ("the cats saw", "dog"):
        assert framing_of(coder, 16).split(text.split()).ids.tolist() == coder.encode(text).tolist()


def test_windows_leave_space_for_the_special_tokens() -> None:
    tokenizer = CODERS["bpe"].tokenizer
    framing = Framing(tokenizer=tokenizer, begin=(1,), end=(2, 3), max_positions=8)
    assert max(len(framing.add_frame(np.arange(20)[w.begin : w.end])) for w in framing.windows(20)) == 8
    assert [(w.begin, w.end) for w in Framing(tokenizer=tokenizer, begin=(1,)).windows(20)] == [(0, 20)]


def test_long_words_are_not_cached() -> None:
    """Otherwise the memory of a server would grow with each long word."""
    reader = SubwordReader(framing_of(CODERS["bpe"], 16), pooling="first", has_text_vector=False)
    words = ["cats", "cats" * 1000]
    ids = [ids.tolist() for ids in reader.encode(words)]
    assert [ids.tolist() for ids in reader.encode(words)] == ids
    assert len(ids[1]) > 1000
    assert sum(map(len, reader._cache)) < 10
