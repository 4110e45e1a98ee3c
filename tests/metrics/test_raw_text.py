"""The scores of the CoNLL 2018 shared task equal alignments by hand, and an enumeration for single-word tokens."""

import random
from itertools import combinations, pairwise

import pytest

from ensue.errors import EnsueError
from ensue.metrics.confusion import LabelScore
from ensue.metrics.raw_text import AnalyzedToken, AnalyzedWord, raw_text_scores


def sentence(text: str) -> list[AnalyzedToken]:
    """Return tokens of a text with commas. The token `du:de+le` has two words."""
    analyzed = []
    for token in text.split(","):
        form, _, words = token.partition(":")
        analyzed.append(AnalyzedToken(form, [AnalyzedWord(word) for word in (words or form).split("+")]))
    return analyzed


@pytest.mark.parametrize(
    ("gold", "predicted", "words"),
    [
        ("x", "x", 1), ("xy,z", "x,y,z", 1), ("x,yz", "x,y,z", 1), ("du:de+le,pain", "du:de+le,pain", 3),
        ("du:de+le,pain", "du,pain", 1), ("du:de+le,pain", "du:De+la,pain", 2), ("don't:do+n't,go", "do,n't,go", 3),
        ("don't:do+n't,go", "don,'t,go", 1), ("do,n't,go", "don't:do+n't,go", 3), ("wxyz:w+x+y+z", "wx:w+x,yz:y+z", 4),
        ("wxy:w+x+y,z", "w,xyz:x+y+z", 4), ("wxy:w+A+y,z", "w,xyz:x+y+z", 3), ("ab,cd:c+d,ef", "abc:ab+c,d,ef", 4),
    ],
)  # fmt: skip
def test_words_are_aligned_by_their_characters(gold: str, predicted: str, words: int) -> None:
    for first, second in ((gold, predicted), (predicted, gold)):
        scores = raw_text_scores([sentence(first)], [sentence(second)]).scores
        counts = (sum(len(token.words) for token in sentence(text)) for text in (first, second))
        assert scores["words"] == LabelScore.of(words, *counts)


def test_tokens_and_sentences_are_correct_if_both_ends_are() -> None:
    choose = random.Random(1)
    text = "abcdefghijkl"
    for _ in range(50):
        cuts = [sorted(choose.sample(range(1, len(text)), 5)) for _ in range(2)]
        spans = [list(pairwise([0, *inner, len(text)])) for inner in cuts]
        ends = [choose.sample(inner, 2) for inner in cuts]
        both = []
        for token_spans, breaks in zip(spans, ends, strict=True):
            sentences_of_text: list[list[AnalyzedToken]] = [[]]
            for start, end in token_spans:
                sentences_of_text[-1].append(AnalyzedToken(text[start:end], [AnalyzedWord(text[start:end])]))
                sentences_of_text += [[]] if end in breaks else []
            both.append(sentences_of_text)
        scores = raw_text_scores(*both).scores
        common = len({*spans[0]} & {*spans[1]})
        assert scores["tokens"] == scores["words"] == LabelScore.of(common, 6, 6)
        borders = [{0, len(text), *breaks} for breaks in ends]
        spans_of = [
            {(a, b) for a, b in combinations(sorted(cut), 2) if not any(a < c < b for c in cut)} for cut in borders
        ]
        assert scores["sentences"] == LabelScore.of(len(spans_of[0] & spans_of[1]), 3, 3)


def test_scores_of_words_count_all_words() -> None:
    gold = [AnalyzedToken("a", [AnalyzedWord("a", "X", "x", "Case=Nom|Typo=Yes", "_")]), *sentence("bc")]
    predicted = [AnalyzedToken("a", [AnalyzedWord("a", "X", "y", "Case=Nom", "other")]), *sentence("b,c")]
    scores = raw_text_scores([gold], [predicted])
    values = scores.as_json()
    assert {name: values[name] for name in ("words", "upos", "xpos", "feats", "lemmas")} == pytest.approx(
        {"words": 2 / 5, "upos": 2 / 5, "xpos": 0, "feats": 2 / 5, "lemmas": 2 / 5}
    )
    assert scores.summary().startswith("tokens 40.00, sentences 100.00, words 40.00")
    assert set(raw_text_scores([gold], [predicted], with_tags=False).scores) == {"tokens", "sentences", "words"}


def test_a_different_text_is_refused_with_one_line() -> None:
    with pytest.raises(EnsueError, match="not of the same text: they differ near 'abc'"):
        raw_text_scores([sentence("ab,c")], [sentence("ab,d")])
