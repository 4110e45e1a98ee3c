"""How words are framed: each has its own tokens, and a text without its signs is read as it is written."""

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
"""Subwords that read a text without a blank before it, as RoBERTa's do."""


@pytest.mark.parametrize("kind", CODERS)
def test_words_without_tokens_shift_no_others(kind: str) -> None:
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
def test_words_are_read_as_their_text_is(coder: MaskedTokenizer) -> None:
    for text in ("the cats saw", "dog"):
        assert framing_of(coder, 16).split(text.split()).ids.tolist() == coder.encode(text).tolist()


def test_windows_leave_room_for_the_signs() -> None:
    tokenizer = CODERS["bpe"].tokenizer
    framing = Framing(tokenizer=tokenizer, begin=(1,), end=(2, 3), max_positions=8)
    assert max(len(framing.add_frame(np.arange(20)[w.begin : w.end])) for w in framing.windows(20)) == 8
    assert [(w.begin, w.end) for w in Framing(tokenizer=tokenizer, begin=(1,)).windows(20)] == [(0, 20)]


def test_of_long_words_nothing_is_kept() -> None:
    """A server that is asked for long words would else grow by each of them."""
    reader = SubwordReader(framing_of(CODERS["bpe"], 16), pooling="first", has_text_vector=False)
    words = ["cats", "cats" * 1000]
    found = [ids.tolist() for ids in reader.encode(words)]
    assert [ids.tolist() for ids in reader.encode(words)] == found
    assert len(found[1]) > 1000
    assert sum(map(len, reader._cache)) < 10
