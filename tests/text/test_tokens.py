"""Words have offsets, cover everything but white space, and cut no grapheme."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.errors import RecipeError
from ensue.text.boundaries import BLANKS
from ensue.text.tokenizer import splitter_pattern
from ensue.text.tokens import SPLITTERS, Token, tokens
from training.tiny import some_slow

GRAPHEMES = [
    "a", "7", "!", "'", "ש", "文", "e\u0301", "!\u0301\u0302", "क\u094d\u200dष", "न\u093e", "👍", "👍\U0001f3fd",
    "👨\u200d👩\u200d👧\u200d👦", "🏳\ufe0f\u200d🌈", "🧑\U0001f3fd\u200d🚀", "❤\ufe0f", "1\ufe0f\u20e3", "🇩🇪", "🇫🇷",
    "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
]  # fmt: skip
"""Graphemes of several code points."""


@pytest.mark.parametrize("splitter", SPLITTERS)
@given(st.text(max_size=40))
def test_offsets_cover_everything_but_white_space(splitter: str, text: str) -> None:
    result = tokens(text, splitter)
    end = 0
    for token in result:
        assert end <= token.start < token.end
        assert text[token.start : token.end] == token.text
        assert not text[end : token.start].strip()
        end = token.end
    assert not text[end:].strip()


@pytest.mark.parametrize("splitter", SPLITTERS)
@given(st.lists(st.sampled_from([*GRAPHEMES, " ", "\n"]), max_size=12))
def test_no_grapheme_is_cut(splitter: str, graphemes: list[str]) -> None:
    text = "".join(graphemes)
    borders = {sum(map(len, graphemes[:count])) for count in range(len(graphemes) + 1)}
    assert {border for token in tokens(text, splitter) for border in token[1:]} <= borders
    if splitter == "characters":
        assert [token.text for token in tokens(text, splitter)] == [item for item in graphemes if item.strip()]


@pytest.mark.parametrize("splitter", ["whitespace", "simple"])
@given(st.text(st.sampled_from("aB7é文.,'-!’%“_\u00a0 \n\t<>unk"), max_size=30))
def test_words_equal_those_of_the_word_tokenizer(splitter: str, text: str) -> None:
    words = [word for word in splitter_pattern(splitter).findall(text) if word != "\n"]
    assert [token.text for token in tokens(text, splitter)] == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I don't know.", "I do n't know ."),
        ("I'm sure we'll see; they've said he'd come", "I 'm sure we 'll see ; they 've said he 'd come"),
        ("The dog’s tail and the dogs' tails", "The dog ’s tail and the dogs ' tails"),
        ("You cannot, I'm gonna", "You can not , I 'm gon na"),
        ("DON'T", "DO N'T"),
        ("He dont want it", "He do nt want it"),
        ("(He paid $1,000.50, i.e. 20% more.)", "( He paid $ 1,000.50 , i.e. 20 % more . )"),
        ("Mr. O'Reilly of the U.S. said so.", "Mr. O'Reilly of the U.S. said so ."),
        ("J. Smith met plan a.", "J. Smith met plan a ."),
        ("a well-known non-smoker", "a well - known non-smoker"),
        ("at 7:30pm on 9/11, the 1990s", "at 7:30 pm on 9/11 , the 1990s"),
        ("Wait... what?! -- no!!", "Wait ... what ?! -- no !!"),
        ("see http://a.org/b?c=d. or mail x.y@z.com, ok", "see http://a.org/b?c=d . or mail x.y@z.com , ok"),
        ('"Hi," she said :)', '" Hi , " she said :)'),
        ("713-853-3989", "713-853-3989"),
    ],
)
def test_treebank_words_are_correct(text: str, expected: str) -> None:
    assert [token.text for token in tokens(text, "treebank")] == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Le résumé arrivé, n'est-ce pas?", "Le résumé arrivé , n'est - ce pas ?"),
        ("यह एक किताब है", "यह एक किताब है"), ("كِتَابٌ جديد", "كِتَابٌ جديد"), ("Việt Nam", "Việt Nam"),
        ("می\u200cخواهم", "می\u200cخواهم"), ("क्\u200dषेत्र", "क्\u200dषेत्र"),
        ("❤\ufe0fx 1\ufe0f\u20e3", "❤\ufe0f x 1\ufe0f\u20e3"),
    ],
)  # fmt: skip
def test_combining_marks_stay_with_their_letters(text: str, expected: str) -> None:
    for form in ("NFC", "NFD"):
        words = [token.text for token in tokens(unicodedata.normalize(form, text), "treebank")]  # type: ignore[arg-type]
        assert words == unicodedata.normalize(form, expected).split()  # type: ignore[arg-type]


@given(st.text(st.sampled_from("abcéÅñọ'’-.,! 1_&ESst\u0301"), max_size=25))
def test_decomposed_letters_are_split_like_composed_ones(text: str) -> None:
    composed = unicodedata.normalize("NFC", text)
    words = [unicodedata.normalize("NFD", token.text) for token in tokens(composed, "treebank")]
    assert [token.text for token in tokens(unicodedata.normalize("NFD", composed), "treebank")] == words


def test_runs_of_an_earlier_version_cut_words_at_combining_marks() -> None:
    decomposed = unicodedata.normalize("NFD", "résumé, don't")
    words = [token.text for token in tokens(decomposed, "treebank-1")]
    assert words == [*(unicodedata.normalize("NFD", word) for word in ("ré", "sumé")), ",", "do", "n't"]


def test_the_simple_splitter_separates_punctuation() -> None:
    assert tokens("Go, 文字!", "simple") == [Token("Go", 0, 2), Token(",", 2, 3), Token("文字", 4, 6), Token("!", 6, 7)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("splitter", SPLITTERS)
@pytest.mark.parametrize(
    "unit", some_slow(["a", "a.", "1-", "n't", "👨\u200d", "🇩🇪", "\u0301", "x@"], "a.", "👨\u200d", "x@")
)
def test_a_long_word_takes_linear_time(splitter: str, unit: str) -> None:
    text = unit * (20_000 // len(unit))
    assert "".join(token.text for token in tokens(text, splitter)) == text


def test_only_blanks_separate_words() -> None:
    assert tokens(BLANKS) == tokens("") == []
    assert [token.text for token in tokens("a\x00b\x85c", "whitespace")] == ["a\x00b\x85c"]
    assert [token.text for token in tokens("a\u3000文", "characters")] == ["a", "文"]


def test_an_unknown_splitter_is_refused() -> None:
    with pytest.raises(RecipeError) as caught:
        tokens("a", "treebnk")
    assert str(caught.value) == (
        'unknown splitter "treebnk"; expected one of whitespace, simple, treebank, treebank-1, characters; '
        'did you mean "treebank"?'
    )
