"""Special tokens have ids after those of texts, and no text is encoded as one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.text.special_tokens import SPECIAL, TokenizerWithSpecials
from ensue.text.tokenizers import train_tokenizer

TEXT = "the cat saw the cats <end> and <PL> the dog\n" * 3
CODERS = {
    kind: TokenizerWithSpecials(train_tokenizer(kind, [TEXT], max_size=300 if kind == "bpe" else None), ["PL", "SG"])
    for kind in ("characters", "bytes", "words", "bpe")
}


@pytest.mark.parametrize("kind", CODERS)
def test_special_ids_follow_those_of_texts(kind: str) -> None:
    coder = CODERS[kind]
    first = coder.tokenizer.vocabulary_size
    assert coder.vocabulary_size == first + len(SPECIAL) + 2
    assert [coder.symbol(id) for id in coder.special_ids] == [*SPECIAL, "PL", "SG"]
    assert coder.encode_names(["SG", "PL", "DU"]).tolist() == [first + 6, first + 5, coder.unknown_name_id]
    assert coder.encode(TEXT + "".join(SPECIAL)).max() < first


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
@given(text=st.text())
def test_any_text_round_trips(kind: str, text: str) -> None:
    coder = CODERS[kind]
    text = text.encode(errors="replace").decode()
    ids = [coder.begin_id, *coder.encode(text).tolist(), coder.end_id, coder.padding_id]
    assert coder.decode(ids) == text
    decoder = coder.decoder()
    assert "".join([decoder.feed(id) for id in ids]) + decoder.flush() == text


def test_a_word_has_the_same_subwords_at_the_beginning() -> None:
    coder = CODERS["bpe"]
    assert coder.encode("cat the cat").tolist()[-1:] == coder.encode("cat").tolist()[-1:]
    assert len(coder.encode("")) == 0


@pytest.mark.parametrize("kind", CODERS)
def test_a_saved_tokenizer_with_specials_is_equal_after_loading(kind: str) -> None:
    coder = CODERS[kind]
    loaded = TokenizerWithSpecials.from_json(coder.to_json())
    assert loaded.to_json() == coder.to_json()
    np.testing.assert_array_equal(loaded.encode(TEXT), coder.encode(TEXT))
    with pytest.raises(ValueError, match="occurs twice"):
        TokenizerWithSpecials.from_json({**coder.to_json(), "names": ["PL", "PL"]})


def test_a_name_spelled_as_a_special_token_is_another_token() -> None:
    coder = TokenizerWithSpecials(train_tokenizer("bytes", []), ["PL", *SPECIAL])
    ids = coder.encode_names([*SPECIAL, "PL"])
    assert len(set(ids.tolist())) == 6
    assert ids.min() > coder.unknown_name_id
    assert [coder.symbol(id) for id in ids] == [*SPECIAL, "PL"]
    assert TokenizerWithSpecials.from_json(coder.to_json()).encode_names(SPECIAL).tolist() == ids[:5].tolist()
    assert CODERS["bytes"].encode_names(SPECIAL).tolist() == [CODERS["bytes"].unknown_name_id] * 5
