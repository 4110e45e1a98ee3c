"""Lexicons: features of words equal those of plain Python; unknown words, saving."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ensue.text.lexicon import MAX_CHARACTERS_READ, Lexicon, WordForms, shape

COUNTS = {"Janet": 3, "janet": 1, "back": 5, "bills": 1, "the": 9, "The": 4, "1984": 2, "2001": 2, "Ö": 1}
EVERYTHING: dict[str, Any] = {
    "characters": True, "longest_affix": 3, "shapes": True, "columns": {"pos": ["VERB", "NOUN", "VERB"], "lemma": []},
    "vectors": ["The", "the", "Back"],
}  # fmt: skip
letters = st.sampled_from("aAbB12٣-'é😀\u200d\u0301 \x00")
forms = st.lists(st.text(letters, max_size=2 * MAX_CHARACTERS_READ + 3) | st.text(max_size=5), max_size=12)
options = st.fixed_dictionaries(
    {
        "min_count": st.integers(1, 3), "max_size": st.none() | st.integers(1, 5), "lowercase": st.booleans(),
        "fold_digits": st.booleans(), "characters": st.booleans(), "longest_affix": st.integers(0, 3),
        "shapes": st.booleans(),
        "columns": st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=3), max_size=2),
        "vectors": st.none() | st.lists(st.text(max_size=3), unique=True, max_size=3),
    }
)  # fmt: skip


def folded(form: str, *, lowercase: bool, fold_digits: bool) -> str:
    form = form.lower() if lowercase else form
    return "".join("0" if fold_digits and letter.isdecimal() else letter for letter in form)


def assert_equal(result: WordForms, expected: WordForms) -> None:
    for name, value, expected_value in zip(WordForms._fields, result, expected, strict=True):
        np.testing.assert_array_equal(value, expected_value, err_msg=name)
        assert value.dtype == expected_value.dtype == np.int64


@given(train=forms, queried=forms, lowercase=st.booleans(), fold_digits=st.booleans(), min_count=st.integers(1, 3))
def test_a_word_has_the_number_of_its_folded_form(
    train: list[str], queried: list[str], lowercase: bool, fold_digits: bool, min_count: int
) -> None:
    counts = {form: train.count(form) for form in train}
    lexicon = Lexicon.train(counts, min_count=min_count, lowercase=lowercase, fold_digits=fold_digits)
    texts = [folded(form, lowercase=lowercase, fold_digits=fold_digits) for form in train]
    known = {text for text in texts if texts.count(text) >= min_count} - {"<unk>"}
    assert set(lexicon.words.symbols) == {"<unk>", *known}
    queried = [*queried, *train, *queried]
    ids = lexicon.encode(queried).words
    for form, id in zip(queried, ids.tolist(), strict=True):
        text = folded(form, lowercase=lowercase, fold_digits=fold_digits)
        assert lexicon.words.symbols[id] == (text if text in known else "<unk>")


@given(train=forms, queried=forms, lowercase=st.booleans(), fold_digits=st.booleans())
def test_equal_words_have_equal_keys(train: list[str], queried: list[str], lowercase: bool, fold_digits: bool) -> None:
    lexicon = Lexicon.train(dict.fromkeys(train, 2), lowercase=lowercase, fold_digits=fold_digits)
    queried = [*queried, *train, *queried]
    encoded = lexicon.encode(queried)
    assert encoded.words.tolist() == [max(key, 0) for key in encoded.keys.tolist()]
    assert encoded.keys.all()
    texts = [folded(form, lowercase=lowercase, fold_digits=fold_digits) for form in queried]
    assert len(set(zip(texts, encoded.keys.tolist(), strict=True))) == len(set(texts)) == len(set(encoded.keys))


@example(forms=["ΑΣ", "Σ", "ΑΣ.", "1\n2", "", "İ٣"], lowercase=True)
@given(forms=st.lists(st.text()), lowercase=st.booleans())
def test_folding_many_forms_equals_folding_each(forms: list[str], lowercase: bool) -> None:
    lexicon = Lexicon.train({"a": 2}, lowercase=lowercase)
    assert [*lexicon.normalize_all(forms)] == [lexicon.normalize(form) for form in forms]


def test_the_key_of_an_unknown_word_is_the_same_on_every_machine() -> None:
    """The key is the CRC-32 of its UTF-8, as in zip files."""
    assert Lexicon.train({"a": 2}, fold_digits=False).encode(["123456789", "a", "\ud800"]).keys.tolist()[:2] == [
        ~0xCBF43926,
        1,
    ]


def test_the_most_frequent_words_are_kept() -> None:
    counts = {"b": 2, "a": 2, "c": 5, "d": 1, "B": 1}
    assert Lexicon.train(counts).words.symbols == ("<unk>", "c", "b", "a", "d")
    assert Lexicon.train(counts, lowercase=False).words.symbols == ("<unk>", "c", "a", "b", "B", "d")
    assert Lexicon.train(counts, min_count=2).words.symbols == ("<unk>", "c", "b", "a")
    assert Lexicon.train(counts, max_size=2).words.symbols == ("<unk>", "c", "b")
    assert Lexicon.train({"1984": 1, "2001": 1}, min_count=2).words.symbols == ("<unk>", "0000")
    assert Lexicon.train({"1984": 1, "2001": 1}, min_count=2, fold_digits=False).words.symbols == ("<unk>",)


@given(train=forms, queried=forms)
def test_characters_are_the_first_and_last_letters(train: list[str], queried: list[str]) -> None:
    lexicon = Lexicon.train(dict.fromkeys(train, 1), characters=True)
    assert lexicon.characters is not None
    known = {letter for form in train for letter in form}
    encoded = lexicon.encode(queried)
    assert encoded.characters.shape == (len(queried), encoded.lengths.max(initial=0))
    for form, row, length in zip(queried, encoded.characters, encoded.lengths, strict=True):
        read = form if len(form) <= 32 else form[:16] + form[-16:]
        assert length == len(read)
        assert not row[length:].any()
        symbols = [lexicon.characters.symbols[id] for id in row[:length]]
        assert symbols == [letter if letter in known else "<unk>" for letter in read]


def test_both_ends_of_a_very_long_word_are_read() -> None:
    word = "".join(chr(0x4E00 + n) for n in range(1000))
    lexicon = Lexicon.train({word: 1}, characters=True, longest_affix=2, shapes=True)
    encoded = lexicon.encode([word * 1000, word[:32], ""])
    assert encoded.lengths.tolist() == [32, 32, 0]
    assert lexicon.characters is not None
    symbols = lexicon.characters.symbols
    assert "".join(symbols[id] for id in encoded.characters[0]) == word[:16] + word[-16:]
    assert "".join(symbols[id] for id in encoded.characters[1]) == word[:32]


@pytest.mark.parametrize(
    ("form", "affixes"),
    [
        ("Janet", "j- ja- jan- -t -et -net"), ("B2B4", "b- b0- b0b- -0 -b0 -0b0"), ("it", "i- it- it- -t -it -it"),
        ("é", "é- é- é- -é -é -é"), ("", "- - - - - -"),
    ],
)  # fmt: skip
def test_affixes_of_a_form_are_both_ends(form: str, affixes: str) -> None:
    """A form shorter than an affix is the affix."""
    lexicon = Lexicon.train({}, longest_affix=3)
    assert lexicon.affixes_of(form) == affixes.split()


def test_affixes_of_five_words_are_known() -> None:
    counts = dict.fromkeys(["undo", "unfit", "untie", "uncut", "unpin", "refit", "recut"], 100)
    lexicon = Lexicon.train(counts, longest_affix=2)
    assert lexicon.affixes is not None
    assert lexicon.affixes.symbols == ("<unk>", "u-", "un-")  # 4 words end with t, however frequent they are
    assert lexicon.encode(["Unlit", "redo", "u"]).affixes.tolist() == [[1, 2, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("Janet", "Xxxx"), ("USA", "XXX"), ("NATO", "XXX"), ("iPhone15", "xXxxxdd"), ("McDonald's", "XxXxxx'x"),
        ("10-12", "dd-dd"), ("1,000,000", "d,ddd,ddd"), ("A380", "Xddd"), ("U.S.", "X.X."), ("e-mail", "x-xxx"),
        ("......", "..."), ("-----", "---"), ("$$$$", "$$$$"), ("snake_case", "xxx_xxx"), ("ÉCOLE", "XXX"),
        ("Straße", "Xxxx"), ("٣٤", "dd"), ("السلام", "xxx"), ("日本語学", "xxx"), ("😀", "😀"), ("", ""),
        ("👨‍👩‍👧", "👨‍👩‍👧"), ("dd", "xx"), ("x" * 32 + "9", "xxx"), ("a" * 10**6, "xxx"),
    ],
)  # fmt: skip
def test_shapes_of_forms_are_correct(form: str, expected: str) -> None:
    assert shape(form) == expected


def test_shapes_that_were_seen_once_are_unknown() -> None:
    lexicon = Lexicon.train({"Janet": 1, "Maria": 1, "x9": 1, "y?": 2}, shapes=True)
    assert lexicon.shapes is not None
    assert lexicon.shapes.symbols == ("<unk>", "Xxxx", "x?")
    assert lexicon.encode(["Boris", "x9", "Q?"]).shapes.tolist() == [1, 0, 0]


def test_each_column_has_its_numbers() -> None:
    lexicon = Lexicon.train({"a": 1}, columns={"pos": ["VERB", "NOUN", "VERB"], "2": ["<unk>", "VERB"]})
    assert lexicon.columns["pos"].symbols == ("<unk>", "NOUN", "VERB")
    assert lexicon.encode_column("pos", ["VERB", "noun", "NOUN", "<unk>", ""]).tolist() == [2, 0, 1, 0, 0]
    assert lexicon.encode_column("2", ["VERB", "NOUN", "<unk>"]).tolist() == [1, 0, 0]
    assert lexicon.encode_column("pos", []).tolist() == []


def test_a_vector_of_the_form_itself_comes_before_that_of_its_lowered_form() -> None:
    lexicon = Lexicon.train({"a": 1}, vectors=["The", "the", "Back", "1984"])
    queried = ["The", "the", "THE", "Back", "back", "1984", "2001", "<unk>", "<UNK>", ""]
    assert lexicon.encode(queried).vectors.tolist() == [1, 2, 2, 3, 0, 4, 0, 0, 0, 0]


def test_the_unknown_words_name_as_a_word_is_unknown() -> None:
    counts = {"<unk>": 10, "<UNK>": 5, "a": 1}
    lexicon = Lexicon.train(counts, vectors=["<unk>", "a"], columns={"c": ["<unk>"]}, characters=True)
    assert lexicon.words.symbols == ("<unk>", "a")
    assert lexicon.vectors is not None
    assert lexicon.vectors.symbols == ("<unk>", "a")
    encoded = lexicon.encode(["<unk>", "<UNK>", "a"])
    assert encoded.words.tolist() == encoded.vectors.tolist() == [0, 0, 1]
    assert encoded.lengths.tolist() == [5, 5, 1]
    assert 0 not in encoded.characters[0]


def test_unused_features_are_zero() -> None:
    encoded = Lexicon.train(COUNTS).encode(["Janet", "", "Janet"])
    assert encoded.words.tolist() == [4, 0, 4]  # after the, back and 0000
    assert encoded.characters.shape == encoded.affixes.shape == (3, 0)
    assert not np.concatenate([encoded.lengths, encoded.shapes, encoded.vectors]).any()


@given(queried=forms.filter(len), data=st.data())
def test_selected_forms_equal_new_ones(queried: list[str], data: st.DataObject) -> None:
    lexicon = Lexicon.train(dict.fromkeys([*queried[::2], *COUNTS], 2), **EVERYTHING)
    rows = data.draw(st.lists(st.integers(0, len(queried) - 1), max_size=8))
    assert_equal(lexicon.encode(queried).select(np.array(rows, np.int64)), lexicon.encode([queried[n] for n in rows]))


@given(train=forms, queried=forms, options=options)
def test_a_saved_lexicon_is_equal_after_loading(train: list[str], queried: list[str], options: dict[str, Any]) -> None:
    lexicon = Lexicon.train({form: 1 + train.count(form) for form in train}, **options)
    content = json.loads(json.dumps(lexicon.to_json()))
    loaded = Lexicon.from_json(content)
    assert loaded.to_json() == content
    assert_equal(loaded.encode([*train, *queried]), lexicon.encode([*train, *queried]))
    assert list(loaded.columns) == list(options["columns"])
    for name, values in options["columns"].items():
        assert loaded.encode_column(name, values).tolist() == lexicon.encode_column(name, values).tolist()


def test_kept_vectors_are_fewer_than_vectors_and_0_in_earlier_runs() -> None:
    content = Lexicon.train({"a": 1}, vectors=["a", "b"], kept_vectors=1).to_json()
    assert Lexicon.from_json(content).kept_vectors == 1
    assert Lexicon.from_json(content | {"kept_vectors": 2}).kept_vectors == 2
    with pytest.raises(ValueError, match="kept_vectors must be less than the number of vectors"):
        Lexicon.from_json(content | {"kept_vectors": 3})
    del content["kept_vectors"]
    assert Lexicon.from_json(content).kept_vectors == 0


@pytest.mark.parametrize("key", sorted(Lexicon.train({}).to_json().keys() - {"format_version", *Lexicon.optional_keys}))
def test_content_without_a_key_is_refused(key: str) -> None:
    content = Lexicon.train(COUNTS, **EVERYTHING).to_json()
    del content[key]
    with pytest.raises(ValueError, match=f"^no {key}$"):
        Lexicon.from_json(content)


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "tags"}, {"kind": None}, {"words": None}, {"words": []}, {"words": ["a"]}, {"words": "<unk>"},
        {"words": ["<unk>", "a", "a"]}, {"words": ["<unk>", 3]}, {"words": {"<unk>": 0}}, {"characters": 7},
        {"affixes": ["j-"]}, {"shapes": [["<unk>"]]}, {"vectors": {}}, {"columns": None}, {"columns": ["pos"]},
        {"columns": {"pos": ["NOUN"]}}, {"longest_affix": None}, {"longest_affix": "3"}, {"longest_affix": -1},
        {"longest_affix": float("inf")}, {"longest_affix": 2.5},
    ],
    ids=str,
)  # fmt: skip
def test_invalid_content_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^.+$"):
        Lexicon.from_json(Lexicon.train(COUNTS, **EVERYTHING).to_json() | damage)


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["words", "everything"])
def test_no_forms_give_empty_features(options: dict[str, Any]) -> None:
    lexicon = Lexicon.train(COUNTS, **options)
    encoded = lexicon.encode([])
    assert [len(feature) for feature in encoded] == [0] * 7
    assert encoded.affixes.shape == (0, 2 * lexicon.longest_affix)
    assert_equal(encoded.select(np.zeros(0, np.int64)), encoded)
    nothing = Lexicon.train({}, **options)
    assert not nothing.encode(["Janet", ""]).words.any()
