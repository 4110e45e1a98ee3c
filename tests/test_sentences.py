"""Sentences of the pages are short: a page has at most 16 words in a sentence on average."""

import re

import pytest

from pages import PAGES, REPOSITORY, name_of, prose, sentences, words_of

MAX_MEAN_WORDS = 16.0
RECORDS = ("CHANGELOG.md", "docs/log/")


def mean_length(lengths: list[int]) -> float:
    return sum(lengths) / max(len(lengths), 1)


def test_sentences_are_short() -> None:
    lengths_by_page = {name_of(page): list(map(words_of, sentences(page))) for page in PAGES}
    pages = {name: mean_length(lengths) for name, lengths in lengths_by_page.items() if not name.startswith(RECORDS)}
    assert {name: mean for name, mean in pages.items() if mean > MAX_MEAN_WORDS} == {}


def test_lines_of_prose_have_at_most_120_characters() -> None:
    """Tables, headings, figures and formulas may be longer."""
    formula = re.compile(r"^ *\$\$.*?\$\$$", re.MULTILINE | re.DOTALL)
    lines = [(name_of(page), line) for page in PAGES for line in formula.sub("", prose(page)).splitlines()]
    assert [
        pair for pair in lines if len(pair[1]) > 120 and not pair[1].lstrip().startswith(("|", "#", "<", "!["))
    ] == []


def test_sentences_are_found() -> None:
    page = REPOSITORY / "docs" / "glossary.md"
    assert "The number of a token, a label or a word in its vocabulary." in sentences(page)


@pytest.mark.parametrize(
    ("sentence", "count"), [("One two three.", 3), ("A model's `step` in float32.", 5), ("3.5 ms", 2), ("—", 0)]
)
def test_words_are_counted(sentence: str, count: int) -> None:
    assert words_of(sentence) == count


NO_NOUN = re.compile(r"(?<![Tt]here )\b(?:is|are) no (?!longer\b|more\b|such\b|less\b|better\b|faster\b)[`\w]")
"""Matches a negated noun where a negated verb is meant: "is not a list"."""


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_negations_are_not_before_nouns(folder: str) -> None:
    files = [path for path in (REPOSITORY / folder).rglob("*.py") if "exporting/c" not in path.as_posix()]
    lines = [(path.name, line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(name, line) for name, line in lines if NO_NOUN.search(line)] == []
