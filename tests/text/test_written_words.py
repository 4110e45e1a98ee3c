"""Words are joined to a text, and the text is split into the same words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.text.tokenizer import CLOSING, OPENING, QUOTES, WordJoiner, WordTokenizer

MARKS = "".join(sorted(CLOSING | OPENING | QUOTES)) + "()[]{}'’‘-–/$%«»「」"
TEXTS = st.text(st.sampled_from(MARKS + "ab1 \n") | st.characters(exclude_categories=["Cs"]), max_size=30)


def joined(words: list[str], *, joins_marks: bool = True) -> str:
    line = WordJoiner(joins_marks=joins_marks)
    return "".join(map(line.feed, words))


@pytest.mark.parametrize(
    "text",
    [
        "Caron, who is late (again), will be out from 12.",
        '"Who is it?" she said; "¿quién?" he said.\n"No," they don\'t know…',
        "„Das ist gut“, sagte sie. «C'est bien.»",
        "He (who [sic] wrote) 1,000.5 well-known lines: all!",
    ],
)
def test_words_are_joined_as_people_write(text: str) -> None:
    assert joined(WordTokenizer.train([text], splitter="simple").words(text)) == text


@given(text=TEXTS)
def test_joined_words_are_split_into_the_same_words(text: str) -> None:
    tokenizer = WordTokenizer.train([text], splitter="simple")
    words = tokenizer.words(text)
    assert tokenizer.words(joined(words)) == words
    assert tokenizer.decode(tokenizer.encode(text)) == joined(words)


def test_words_that_are_split_at_blanks_are_joined_with_blanks() -> None:
    tokenizer = WordTokenizer.train(["a ( b ) ."])
    assert tokenizer.decode(tokenizer.encode("a ( b ) .")) == "a ( b ) ." == joined([*"a(b)."], joins_marks=False)
