"""Texts with masks: special tokens, framing, and filling of masks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.text.masked_tokens import MaskedTokenizer
from ensue.text.subwords import SubwordTokenizer
from ensue.text.tokenizers import train_tokenizer

TEXT = "the cat saw the cats [SEP] and [MASK] the dog\n" * 3
CODERS = {kind: MaskedTokenizer(train_tokenizer(kind, [TEXT], max_size=300)) for kind in ("wordpiece", "bpe")}
TRAINED = CODERS["bpe"].tokenizer
assert isinstance(TRAINED, SubwordTokenizer)
PUBLISHED = MaskedTokenizer(SubwordTokenizer(TRAINED.library, special={"[START]": "Ċ"}))
"""Subwords of a text without a blank before it, like RoBERTa's."""


def ids_of(coder: MaskedTokenizer, word: str) -> int:
    (id,) = coder.encode(word).tolist()
    return int(id)


@pytest.mark.parametrize("kind", CODERS)
@given(text=st.text() | st.just("[MASK] [SEP]"))
def test_no_text_has_a_special_token(kind: str, text: str) -> None:
    coder = CODERS[kind]
    assert len({coder.padding_id, coder.begin_id, coder.separator_id, coder.mask_id, *coder.text_ids}) == 4 + len(
        coder.text_ids
    )
    ids = coder.encode(text)
    assert not set(ids.tolist()) & set(coder.special_ids)
    assert coder.encode_with_offsets(text)[0].tolist() == ids.tolist()
    assert coder.decode(coder.add_frame(ids)) == coder.decode(ids)


@pytest.mark.parametrize("kind", CODERS)
def test_a_frame_surrounds_one_text_or_two(kind: str) -> None:
    coder = CODERS[kind]
    a, b = coder.encode("the cat"), coder.encode("dog")
    begin, end = [coder.begin_id], [coder.separator_id]
    assert coder.add_frame(a).tolist() == [*begin, *a, *end]
    assert coder.add_frame(a, b).tolist() == [*begin, *a, *end, *b, *end]


@pytest.mark.parametrize("kind", CODERS)
def test_masks_replace_tokens_and_are_filled(kind: str) -> None:
    coder = CODERS[kind]
    text = "the [MASK] saw [MASK]."
    ids, pieces = coder.encode_masked(text)
    mask_positions = np.flatnonzero(ids == coder.mask_id)
    fills = [ids_of(coder, "cat"), ids_of(coder, "dog")]
    assert coder.fill(pieces, fills) == "the cat saw dog."
    ids[mask_positions] = fills
    assert ids.tolist() == coder.encode("the cat saw dog.").tolist()
    assert coder.fill(*(("", " saw"), [ids_of(coder, "the")])) == "the saw"
    inside = coder.encode("cats")[-1]
    if len(coder.encode("cats")) == 2:
        assert coder.fill(("the cat ", " saw"), [int(inside)]) == "the cats saw"


@pytest.mark.parametrize("kind", CODERS)
def test_the_first_tokens_of_words_are_marked(kind: str) -> None:
    coder = CODERS[kind]
    ids, offsets = coder.encode_with_offsets("the dogs, cats")
    begins = [int(start) for (start, _), begin in zip(offsets, coder.begins_word[ids], strict=True) if begin]
    assert begins == [0, 4, 8, 10]
