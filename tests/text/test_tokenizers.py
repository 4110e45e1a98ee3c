"""Every kind of tokenizer: round trips, boundaries, incremental decoding, files."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ensue.errors import RecipeError, RunError
from ensue.text import subwords
from ensue.text.boundaries import last_boundary
from ensue.text.tokenizers import KINDS, Tokenizer, load_tokenizer, save_tokenizer, train_tokenizer
from ensue.text.wordpiece import WordPieceTokenizer

CORPUS = "The cat sat on the mat.\nthe dog, an 1,000.5 pound dog, didn't – naïve\u2028 and\x85 so on 猫\n" * 3
LETTERS = "".join(sorted(set(CORPUS)))
TRAINED = [kind for kind in KINDS if kind != "published"]
TOKENIZERS = {kind: train_tokenizer(kind, [CORPUS], max_size=300) for kind in TRAINED}
LOWERED = {kind: train_tokenizer(kind, [CORPUS], max_size=300, lowercase=True) for kind in ("bpe", "wordpiece")}
SIMPLE = train_tokenizer("words", [CORPUS], splitter="simple")
ALL = [*TOKENIZERS.values(), SIMPLE]
telling = " \n\t\r\x0b\x0c\x1c\x85\xa0\u2028\u3000'!<é1aZ"
any_text = st.text(st.characters(codec="utf-8") | st.sampled_from(telling), max_size=60)
any_string = st.text(st.characters(exclude_categories=()), max_size=20)


NEW = "Προς την naïve Ελλάδα the dogcat, dogcat, axt xt\n" * 12
EXTENDED = {kind: train_tokenizer(kind, [NEW], max_size=300, base=old) for kind, old in TOKENIZERS.items()}


@pytest.mark.parametrize("kind", TRAINED)
def test_new_symbols_are_added_after_the_old_ones(kind: str) -> None:
    old, new = TOKENIZERS[kind], EXTENDED[kind]
    assert list(map(new.symbol, range(old.vocabulary_size))) == list(map(old.symbol, range(old.vocabulary_size)))
    assert (new.vocabulary_size == old.vocabulary_size) == (kind == "bytes")
    assert load_again(new).encode(NEW).tolist() == new.encode(NEW).tolist()
    assert new.unknown_id is None or new.unknown_id not in new.encode(NEW)
    assert kind == "bytes" or len(set(new.encode(NEW)) - set(old.encode(NEW))) >= 4
    assert len(new.encode(NEW)) <= len(old.encode(NEW)) // (2 if kind == "bpe" else 1) or kind == "wordpiece"
    same = train_tokenizer(kind, [CORPUS], max_size=300, base=old)
    assert same.vocabulary_size == old.vocabulary_size


@given(text=st.text(st.sampled_from(sorted({*NEW, *CORPUS})), max_size=40))
@example(text="the axthe xthe")
def test_new_merges_only_join_old_subwords(text: str) -> None:
    old, new = (table["bpe"].encode_with_offsets(text)[1] for table in (TOKENIZERS, EXTENDED))
    assert {*new[:, 1].tolist()} <= {*old[:, 1].tolist()}
    assert EXTENDED["bpe"].decode(EXTENDED["bpe"].encode(text)) == text


def load_again(tokenizer: Tokenizer) -> Tokenizer:
    return Tokenizer.from_json(json.loads(json.dumps(tokenizer.to_json())))


@given(text=any_text)
@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_every_text_round_trips_through_bytes_and_subwords(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=st.text(LETTERS))
def test_known_text_round_trips_through_characters(text: str) -> None:
    tokenizer = TOKENIZERS["characters"]
    ids = tokenizer.encode(text)
    assert ids.shape == (len(text),)
    assert tokenizer.decode(ids) == text


@given(lines=st.lists(st.lists(st.sampled_from([word for word in CORPUS.replace("\n", " ").split(" ") if word]))))
def test_lines_of_known_words_round_trip(lines: list[list[str]]) -> None:
    text = "\n".join(map(" ".join, lines))
    tokenizer = TOKENIZERS["words"]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.sampled(2)
@given(text=any_string)
@pytest.mark.parametrize("tokenizer", ALL, ids=repr)
def test_any_string_has_ids_even_with_lone_surrogates(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids.dtype == np.uint32
    assert ids.ndim == 1
    assert (ids < tokenizer.vocabulary_size).all()
    assert not re.search("[\ud800-\udfff]", tokenizer.decode(ids))


@given(ids=st.lists(st.integers(0, 255), max_size=30))
def test_bytes_decode_like_python(ids: list[int]) -> None:
    assert TOKENIZERS["bytes"].decode(ids) == bytes(ids).decode("utf-8", "replace")


@given(ids=st.lists(st.integers(0, 299), max_size=30))
def test_subwords_decode_like_their_library(ids: list[int]) -> None:
    tokenizer = TOKENIZERS["bpe"]
    assert tokenizer.decode(ids) == tokenizer.library.decode(ids, skip_special_tokens=False)


@given(text=any_text)
def test_subwords_encode_like_their_library(text: str) -> None:
    tokenizer = TOKENIZERS["bpe"]
    assert tokenizer.encode(text).tolist() == tokenizer.library.encode(text).ids


@given(text=any_string)
def test_wordpiece_encodes_like_its_library(text: str) -> None:
    tokenizer = TOKENIZERS["wordpiece"]
    ids, _ = tokenizer.encode_with_offsets(text)
    assert tokenizer.encode(text).tolist() == ids.tolist()


@given(text=any_string | st.sampled_from(["İstanbul ΑΣ x", "a\u0300b CAFÉ", "\ufb01 ﷺ"]))
@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_offsets_are_positions_in_the_original_text(kind: str, text: str) -> None:
    tokenizer = LOWERED[kind]
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids.tolist() == tokenizer.encode(text).tolist()
    assert (np.diff(offsets[:, 0]) >= 0).all()
    assert all(0 <= start < stop <= len(text) for start, stop in offsets.tolist())
    if kind == "bpe" and len(text):  # every character is covered
        assert (offsets[0, 0], offsets[-1, 1]) == (0, len(text))


def test_wordpiece_takes_the_longest_pieces_and_ignores_special_tokens_in_a_text() -> None:
    symbols = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc[]", "ab", "##c", "##cab", "##b"]
    tokenizer = WordPieceTokenizer(symbols)
    shown = [tokenizer.symbol(id) for id in tokenizer.encode("abcab abcb\n[PAD] \x00 x A\x0cb")]
    assert shown == ["ab", "##cab", "ab", "##c", "##b", "[", "[UNK]", "]", "[UNK]", "[UNK]"]
    assert tokenizer.decode(tokenizer.encode("abcb  a")) == "abcb a"
    assert set(tokenizer.special_ids) == {"[PAD]", "[CLS]", "[SEP]", "[MASK]"}


def test_the_size_of_wordpiece_is_bounded_and_rare_characters_are_unknown() -> None:
    assert TOKENIZERS["wordpiece"].vocabulary_size < 300  # all pieces of the text
    small = train_tokenizer("wordpiece", [CORPUS], max_size=31)
    assert small.vocabulary_size == 31
    assert small.encode("猫").tolist() == [small.unknown_id]
    assert small.unknown_id not in small.encode("a at")


def test_a_character_of_several_bytes_is_decoded_at_its_last_byte() -> None:
    decoder = TOKENIZERS["bytes"].decoder()
    assert [decoder.feed(byte) for byte in "a猫".encode()] == ["a", "", "", "猫"]
    assert decoder.feed(0xE9) == ""
    assert decoder.flush() == "\ufffd"


def test_pieces_of_words_have_their_blank() -> None:
    tokenizer = TOKENIZERS["words"]
    decoder = tokenizer.decoder()
    assert [decoder.feed(int(id)) for id in tokenizer.encode("the cat\nthe dog\n")] == [
        "the", " cat", "\n", "the", " <unk>", "\n",
    ]  # fmt: skip


@pytest.mark.sampled(2)
@given(left=any_text, blank=st.sampled_from(" \t\n\r\x0b\x0c"), right=any_text)
@pytest.mark.parametrize("tokenizer", ALL, ids=repr)
def test_a_boundary_does_not_change_ids(tokenizer: Tokenizer, left: str, blank: str, right: str) -> None:
    text = left + blank + right
    cut = last_boundary(text)
    if cut is None:
        assert not re.search(r"\S[ \t\n\r]", text)
    else:
        assert cut == max(match.end() for match in re.finditer(r"\S(?=[ \t\n\r])", text))
        pieces = [tokenizer.encode(text[:cut]), tokenizer.encode(text[cut:])]
        assert np.concatenate(pieces).tolist() == tokenizer.encode(text).tolist()


def test_a_boundary_far_from_the_end_is_found() -> None:
    assert last_boundary("ab cd" + "e" * 100_000) == 2
    assert last_boundary("ab" + " " * 100_000) == 2
    assert last_boundary("e" * 100_000) is None


def test_only_line_ends_of_the_text_are_encoded_as_line_ends() -> None:
    tokenizer = TOKENIZERS["words"]
    assert tokenizer.encode("the").tolist() == tokenizer.encode("the\n").tolist()[:-1]
    assert tokenizer.encode("\n\n").tolist() == [1, 1]
    assert tokenizer.encode("<unk>").tolist() == [tokenizer.unknown_id]


def test_the_simple_splitter_separates_punctuation_but_not_inside_words_and_numbers() -> None:
    text = '"I don\'t," (she) said: well-known <unk> cost 1,000.5, or 5 €… «Éte\u0301» हिन्दी।'
    expected = '" I don\'t , " ( she ) said : well-known <unk> cost 1,000.5 , or 5 € … « Éte\u0301 » हिन्दी ।'
    tokenizer = train_tokenizer("words", [text], splitter="simple")
    assert tokenizer.words(text) == expected.split()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_vocabulary_of_words_is_sorted_by_count_then_string() -> None:
    chunks = ["b a c\nc", " d c b <unk> <unk> <eos>"]
    symbols = train_tokenizer("words", chunks).to_json()["symbols"]
    assert symbols == ["<unk>", "<eos>", "c", "b", "a", "d"]
    assert train_tokenizer("words", chunks, min_count=2).to_json()["symbols"] == symbols[:4]
    assert train_tokenizer("words", chunks, max_size=5).to_json()["symbols"] == symbols[:5]


def test_the_vocabulary_of_characters_is_sorted_by_code_point() -> None:
    chunks = ["ccb", "cab\n\ud800\U0001f431"]
    assert train_tokenizer("characters", chunks).to_json()["symbols"] == ["<unk>", "\n", "a", "b", "c", "\U0001f431"]
    assert train_tokenizer("characters", chunks, min_count=2).to_json()["symbols"] == ["<unk>", "b", "c"]
    assert train_tokenizer("characters", chunks, max_size=2).to_json()["symbols"] == ["<unk>", "c"]


def test_the_size_of_subwords_is_bounded() -> None:
    assert TOKENIZERS["bpe"].vocabulary_size == 300
    assert train_tokenizer("bpe", [CORPUS], max_size=10).vocabulary_size == 256
    assert train_tokenizer("bpe", [CORPUS], min_count=1000).vocabulary_size == 256


def test_subwords_of_a_long_text_equal_those_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subwords, "MAX_CHUNK_CHARACTERS", 20)
    assert train_tokenizer("bpe", [CORPUS], max_size=300).to_json() == TOKENIZERS["bpe"].to_json()


def test_start_is_a_line_end_or_unknown_or_special() -> None:
    for kind, tokenizer in TOKENIZERS.items():
        assert tokenizer.decode([tokenizer.start_id]) == ("[CLS]" if kind == "wordpiece" else "\n")
    assert train_tokenizer("characters", ["ab"]).start_id == 0


@pytest.mark.parametrize("kind", TRAINED)
def test_lowercase_holds_in_training_and_use(kind: str) -> None:
    tokenizer = train_tokenizer(kind, ["One TWO\n"], lowercase=True)
    assert tokenizer.decode(tokenizer.encode("ONE two\n")).rstrip("\n") == "one two"


def test_symbols_are_the_text_of_tokens() -> None:
    words = TOKENIZERS["words"]
    assert words.symbol(int(words.encode("cat")[0])) == "cat"
    assert TOKENIZERS["bytes"].symbol(10) == "\n"
    assert TOKENIZERS["bytes"].symbol(0xE9) == "\\xe9"
    assert TOKENIZERS["bpe"].symbol(int(TOKENIZERS["bpe"].encode(" the")[0])) == " the"


@pytest.mark.parametrize("tokenizer", ALL, ids=repr)
def test_a_saved_tokenizer_is_equal_after_loading(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    save_tokenizer(tokenizer, path)
    loaded = load_tokenizer(path)
    assert loaded.to_json() == tokenizer.to_json()
    assert loaded.encode(CORPUS).tolist() == tokenizer.encode(CORPUS).tolist()
    assert json.loads(path.read_text())["kind"] == tokenizer.kind


def _words(**changes: object) -> str:
    return json.dumps(train_tokenizer("words", ["a b"]).to_json() | changes)


@pytest.mark.parametrize(
    ("content", "output"),
    [
        (None, "cannot be read"), ("", "not a tokenizer"), ("[]", "not a tokenizer"),
        ('{"kind": "words"}', "format_version"), (_words()[:-20], "not a tokenizer"),
        (_words(format_version=2), "newer"), (_words(kind="wordz"), "expected one of .*characters"),
        (_words(kind=[]), "not a tokenizer"), (_words(symbols=["<unk>", "<eos>", "a", "a"]), "twice"),
        (_words(symbols=["a", "b"]), "first symbols"), (_words(symbols=5), "symbols: expected a list, found 5"),
        (_words(symbols=["<unk>", "<eos>", 5]), "symbols.2: expected a string, found 5"),
        (_words(splitter="x"), "splitter"), (_words(kind="characters", symbols=["<unk>", "ab"]), "not one character"),
        (_words(kind="bpe"), "tokenizer"), (_words(kind="wordpiece"), r"the symbols have no \[PAD\]"),
        (_words(kind="bpe", tokenizer={"version": "1.0"}), "not a tokenizer"),
    ],
)  # fmt: skip
def test_a_damaged_tokenizer_is_an_error_of_one_line(content: str | None, output: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RunError, match=output) as caught:
        load_tokenizer(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_an_error_of_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match='did you mean "characters"'):
        train_tokenizer("character", ["a"])
    with pytest.raises(RecipeError, match='did you mean "simple"'):
        train_tokenizer("words", ["a"], splitter="simpel")


def test_subwords_are_deterministic_and_a_fork_gives_no_warning() -> None:
    program = (
        "import os, json; from ensue.text.tokenizers import train_tokenizer\n"
        f"made = [train_tokenizer(kind, [{CORPUS!r}], max_size=300) for kind in ('bpe', 'wordpiece')]\n"
        "made[0].encode('a b')\n"
        "if os.fork() == 0:\n    made[0].encode('c d'); os._exit(0)\n"
        "os.wait(); print(json.dumps([tokenizer.to_json() for tokenizer in made]))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert json.loads(result.stdout) == [TOKENIZERS[kind].to_json() for kind in ("bpe", "wordpiece")]


def test_text_imports_neither_torch_nor_tokenizers() -> None:
    program = "import sys, ensue.text.tokenizers, ensue.data.corpus.cache, ensue.data.corpus.batches\n"
    program += "assert not {'torch', 'tokenizers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
