"""Scores of generated texts equal sacrebleu, rouge-score and counts by hand."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.errors import EnsueError
from ensue.metrics.generation import compare_texts, edit_distance, nearest_edits, score_texts
from ensue.text.tokens import are_unsplit

TEXTS = ["the cat sat on the mat", "a dog runs home now", "yes"]
REFERENCES = [["the cat sat on a mat"], ["a dog ran home now", "dogs run home"], ["yes"]]


@pytest.mark.slow
def test_scores_equal_those_of_the_libraries() -> None:
    import sacrebleu  # noqa: PLC0415 (it and the next take a second)
    from rouge_score.rouge_scorer import RougeScorer  # noqa: PLC0415

    scores = score_texts(TEXTS, REFERENCES, tokenize="13a", nats=[(1.5, 1)] * 3)
    columns = [
        [references_of_text[0] for references_of_text in REFERENCES],
        [([*references_of_text, None])[1] for references_of_text in REFERENCES],
    ]
    assert scores.bleu == pytest.approx(sacrebleu.corpus_bleu(TEXTS, columns).score)  # type: ignore[arg-type]
    assert scores.chrf == pytest.approx(sacrebleu.corpus_chrf(TEXTS, columns, word_order=2).score)  # type: ignore[arg-type]
    scorer = RougeScorer(["rouge1", "rougeL"], use_stemmer=True)
    best = [
        max(scorer.score(r, t)["rouge1"].fmeasure for r in references_of_text)
        for t, references_of_text in zip(TEXTS, REFERENCES, strict=True)
    ]
    values = scores.as_json()
    assert values["rouge1"] == pytest.approx(100 * sum(best) / 3)
    assert values["exact_match"] == pytest.approx(100 / 3)
    assert values["edit_rate"] == pytest.approx(100 * 2 / 12)  # two words differ from the nearest references
    assert (values["nats_per_token"], values["examples"]) == (1.5, 3)
    assert "tok:13a" in values["signature"]
    assert scores.summary().startswith("BLEU ")


def test_bleu_is_smoothed_like_sacrebleus_default() -> None:
    """3 of 4 words and 1 of 3 bigrams are correct. The zeros of longer n-grams count 1/2 and 1/4 (Lin and Och 2004)."""
    scores = score_texts(["a small cat sat"], [["a large cat sat"]], tokenize="13a")
    assert scores.bleu == pytest.approx(100 * (3 / 4 * 1 / 3 * 1 / 4 * 1 / 4) ** (1 / 4))
    assert "smooth:exp" in scores.signature


def test_the_nearest_reference_has_the_least_edit_rate() -> None:
    assert nearest_edits("abcd", ["abcdefghij", "x"]) == (6, 10)  # not 4 edits to a single letter
    assert nearest_edits("abcd", ["abxy", "abcdefgh"]) == (2, 4)


def test_single_words_are_compared_by_characters_and_have_no_rouge() -> None:
    values = score_texts(["walkt", "sang"], [["walked"], ["sang"]], tokenize="13a").as_json()
    assert values["edit_rate"] == pytest.approx(100 * 2 / 10)
    assert "rouge1" not in values


@given(a=st.text("abc", max_size=5), b=st.text("abc", max_size=5), times=st.sampled_from([1, 1, 14]))
def test_edit_distances_equal_the_recursion(a: str, b: str, times: int) -> None:
    """A column of the table may have more bits than a machine word."""
    a, b = a * times, b[::-1] * times

    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    for i in range(len(a)):  # by rows, so that the recursion is shallow
        distance(i, len(b))
    assert edit_distance(a, b) == distance(len(a), len(b))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("猫が座っています。", True), ("猫 が 座っ て い ます 。", False), ("the cat", False), ("", False),
        ("แมวนั่งอยู่", True),
    ],
)  # fmt: skip
def test_scripts_without_blanks_are_detected(text: str, expected: bool) -> None:
    assert are_unsplit([text]) == expected


def test_the_bootstrap_distinguishes_a_difference_from_none() -> None:
    references = [[f"the number {n} is followed by the number {n + 1} here"] for n in range(60)]
    correct_texts = [references_of_text[0] for references_of_text in references]
    wrong = [text.replace("followed by", "before") for text in correct_texts]
    better = compare_texts(correct_texts, wrong, references, tokenize="13a")
    assert better.bleu[0] > better.bleu[1] + 10
    assert better.p_bleu < 0.01
    same = compare_texts(correct_texts, list(correct_texts), references, tokenize="13a")
    assert same.bleu[0] == same.bleu[1]
    assert same.p_bleu > 0.5


def test_scores_without_texts_are_refused() -> None:
    with pytest.raises(EnsueError, match="nothing to score"):
        score_texts([], [], tokenize="13a")


def test_without_the_libraries_an_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.metrics.generation.find_spec", lambda name: None)
    with pytest.raises(EnsueError, match=r"need the package sacrebleu: pip install 'ensue\[scores\]'$"):
        score_texts(TEXTS, REFERENCES, tokenize="13a")
