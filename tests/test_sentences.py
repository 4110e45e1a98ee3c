"""Sentences of the pages are short: a page has at most 16 words in a sentence on average."""

import pytest

from pages import PAGES, REPOSITORY, name_of, sentences, words_of

MOST = 16.0
RECORDS = ("CHANGELOG.md", "docs/log/")


def mean_length(lengths: list[int]) -> float:
    return sum(lengths) / max(len(lengths), 1)


def test_sentences_are_short() -> None:
    found = {name_of(page): list(map(words_of, sentences(page))) for page in PAGES}
    pages = {name: mean_length(lengths) for name, lengths in found.items() if not name.startswith(RECORDS)}
    assert {name: mean for name, mean in pages.items() if mean > MOST} == {}


def test_sentences_are_found() -> None:
    page = REPOSITORY / "docs" / "glossary.md"
    assert "The number of a token, a label or a word in its vocabulary." in sentences(page)


@pytest.mark.parametrize(
    ("sentence", "count"), [("One two three.", 3), ("A model's `step` in float32.", 5), ("3.5 ms", 2), ("—", 0)]
)
def test_words_are_counted(sentence: str, count: int) -> None:
    assert words_of(sentence) == count
