"""Labeling scores equal seqeval's, and those of conlleval (version 2004-01-26) for sentences made by hand."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.metrics.labeling import LabelingScores, LabelingTally


def seqeval() -> Any:
    """Return the scores of seqeval, imported only for tests that use it, since seqeval imports scikit-learn."""
    from seqeval import metrics  # noqa: PLC0415

    return metrics


KEYS = ["accuracy", "precision", "recall", "f1", "tokens", "per_label"]
TAGS = ["O", *(f"{prefix}-{name}" for prefix in "BIES" for name in ("X", "Y", "A-B"))]
pairs = st.lists(
    st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS), st.booleans()), min_size=1, max_size=8),
    min_size=1,
    max_size=6,
).map(
    lambda sentences: (
        [[gold for gold, _, _ in sentence] for sentence in sentences],
        [[gold if same else predicted for gold, predicted, same in sentence] for sentence in sentences],
    )
)


def scores(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]], *, spans: bool = True, known: Any = None
) -> LabelingScores:
    tally = LabelingTally(spans=spans)
    for gold_labels, predicted_labels in zip(gold, predicted, strict=True):
        tally.add(gold_labels, predicted_labels)
    return tally.scores(known)


def columns(text: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return gold and predicted labels of sentences. A line has a word, its gold and its predicted label."""
    sentences = [[line.split() for line in block.splitlines()] for block in text.strip().split("\n\n")]
    return [[row[1] for row in rows] for rows in sentences], [[row[2] for row in rows] for rows in sentences]


BROKEN = """\
Ann B-PER B-PER
Lee I-PER I-PER
of O O
New B-LOC B-LOC
York I-LOC B-LOC
Times I-ORG I-ORG
met O B-PER

Bob I-PER B-PER
Ray I-PER I-PER
Oslo B-LOC I-LOC
Fair I-MISC I-LOC
"""


def test_scores_equal_those_of_conlleval() -> None:
    """processed 11 tokens with 6 phrases; found: 7 phrases; correct: 3.
    accuracy:  54.55%; precision:  42.86%; recall:  50.00%; FB1:  46.15
                  LOC: precision:   0.00%; recall:   0.00%; FB1:   0.00  3
                 MISC: precision:   0.00%; recall:   0.00%; FB1:   0.00  0
                  ORG: precision: 100.00%; recall: 100.00%; FB1: 100.00  1
                  PER: precision:  66.67%; recall: 100.00%; FB1:  80.00  3
    """
    result = scores(*columns(BROKEN))
    assert (result.tokens, result.sentences) == (11, 2)
    assert [f"{100 * share:.2f}" for share in (result.accuracy, result.precision, result.recall, result.f1)] == [
        "54.55", "42.86", "50.00", "46.15",
    ]  # fmt: skip
    assert {
        label: (
            f"{100 * label_scores.precision:.2f} {100 * label_scores.recall:.2f} {100 * label_scores.f1:.2f}",
            label_scores.support,
            label_scores.predicted,
        )
        for label, label_scores in result.per_label.items()
    } == {
        "LOC": ("0.00 0.00 0.00", 2, 3),
        "MISC": ("0.00 0.00 0.00", 1, 0),
        "ORG": ("100.00 100.00 100.00", 1, 1),
        "PER": ("66.67 100.00 80.00", 2, 3),
    }
    assert result.macro_f1 == pytest.approx((0 + 0 + 1 + 0.8) / 4)
    assert result.summary() == "accuracy 54.55 %, F1 46.15"


@pytest.mark.parametrize(
    ("gold", "predicted", "correct"),
    [
        pytest.param("I-X B-X I-X", "I-X I-X I-X", 0, id="iob1: two spans run into one"),
        pytest.param("I-X B-X I-X", "B-X B-X I-X", 2, id="iob1 against bio: the same spans"),
        pytest.param("O B-X I-X", "O I-X I-X", 1, id="bio: a span without its B"),
        pytest.param("B-X I-X O", "B-X I-Y O", 0, id="bio: the class changes inside"),
        pytest.param("B-X I-X E-X", "B-X I-X I-X", 1, id="iobes: a span without its E"),
        pytest.param("S-X S-X O", "B-X E-X O", 0, id="iobes: two spans run into one"),
        pytest.param("S-X O S-Y", "E-X O B-Y", 2, id="iobes: ends and beginnings alone"),
        pytest.param("B-X M-X E-X", "B-X I-X I-X", 1, id="bmes against bio"),
    ],
)
def test_correct_spans_of_small_cases_are_counted(gold: str, predicted: str, correct: int) -> None:
    result = scores([gold.split()], [predicted.split()])
    assert sum(round(scores.recall * scores.support) for scores in result.per_label.values()) == correct


def test_a_span_does_not_reach_into_the_next_sentence() -> None:
    apart = scores([["B-X"], ["I-X"]], [["B-X"], ["B-X"]])
    assert (apart.f1, apart.per_label["X"].support) == (1.0, 2)


@given(pairs)
def test_scores_of_spans_equal_those_of_seqeval(sentences: tuple[list[list[str]], list[list[str]]]) -> None:
    gold, predicted = sentences
    result = scores(gold, predicted)
    assert result.precision == pytest.approx(seqeval().precision_score(gold, predicted, zero_division=0))
    assert result.recall == pytest.approx(seqeval().recall_score(gold, predicted, zero_division=0))
    assert result.f1 == pytest.approx(seqeval().f1_score(gold, predicted, zero_division=0))
    assert result.accuracy == pytest.approx(seqeval().accuracy_score(gold, predicted))
    if not result.per_label:  # seqeval's report fails without spans
        return
    report = seqeval().classification_report(gold, predicted, output_dict=True, zero_division=0)
    assert result.macro_f1 == pytest.approx(report.pop("macro avg")["f1-score"])
    assert set(result.per_label) == set(report) - {"micro avg", "weighted avg"}
    for label, label_scores in result.per_label.items():
        expected = report[label]
        assert label_scores.support == expected["support"]
        assert [label_scores.precision, label_scores.recall, label_scores.f1] == pytest.approx(
            [expected["precision"], expected["recall"], expected["f1-score"]]
        )


def test_scores_of_plain_labels_are_correct() -> None:
    result = scores(
        [["DET", "NOUN", "VERB"], ["NOUN", "X"]], [["DET", "NOUN", "NOUN"], ["VERB", "NOUN"]], spans=False, known=TAGS
    )
    assert result.accuracy == result.precision == result.recall == result.f1 == pytest.approx(2 / 5)
    noun = result.per_label["NOUN"]
    assert (noun.precision, noun.recall, noun.support, noun.predicted) == (1 / 3, 1 / 2, 2, 3)
    assert noun.f1 == pytest.approx(2 / 5)
    assert list(result.per_label) == ["DET", "NOUN", "VERB", "X"]
    assert result.macro_f1 == pytest.approx((1 + 2 / 5 + 0 + 0) / 4)
    assert result.confusion == [("NOUN", "VERB", 1), ("VERB", "NOUN", 1), ("X", "NOUN", 1)]
    assert result.summary() == "accuracy 40.00 %, macro F1 35.00"


def test_the_most_frequent_confusions_come_first() -> None:
    gold, predicted = ["A"] * 6 + ["B"] * 4, ["B", "B", "C", "C", "C", "A"] + ["A"] * 3 + ["B"]
    assert scores([gold], [predicted], spans=False).confusion == [("A", "C", 3), ("B", "A", 3), ("A", "B", 2)]
    result = scores([[f"{n:02}" for n in range(50)]], [["?"] * 50], spans=False)
    assert result.confusion == [(f"{n:02}", "?", 1) for n in range(20)]


def test_unknown_labels_are_wrong_and_reported() -> None:
    plain = scores([["A", "B", "B", "C"]], [["A", "A", "A", "A"]], spans=False, known=["A"])
    assert (plain.unknown_labels, plain.accuracy) == ({"B": 2, "C": 1}, 0.25)
    gold = [["S-PER", "B-LAW", "I-LAW", "E-LAW", "S-LAW", "O"]]
    spans = scores(gold, [["B-PER", "O", "O", "O", "O", "O"]], known=["O", "B-PER", "I-PER"])
    assert (spans.unknown_labels, spans.recall) == ({"LAW": 2}, 1 / 3)
    assert scores(gold, gold).unknown_labels == {}


@pytest.mark.parametrize("spans", [True, False])
@pytest.mark.parametrize("sentences", [[], [[]], [["O"]]])
def test_scores_of_data_without_spans_or_sentences_are_0(spans: bool, sentences: list[list[str]]) -> None:
    result = scores(sentences, sentences, spans=spans)
    assert result.sentences == len(sentences)
    assert result.accuracy == (1.0 if sentences == [["O"]] else 0.0)
    assert result.f1 == (0.0 if spans else result.accuracy)


def test_scores_become_json() -> None:
    content = scores(*columns(BROKEN), known=["O", "B-PER"]).as_json()
    assert list(content)[: len(KEYS)] == KEYS
    read = json.loads(json.dumps(content, allow_nan=False))
    assert read == content
    assert read["per_label"]["PER"] == {
        "precision": pytest.approx(2 / 3), "recall": 1.0, "f1": pytest.approx(0.8), "support": 2, "predicted": 3,
    }  # fmt: skip
    assert read["confusion"][0] == {"gold": "B-LOC", "predicted": "I-LOC", "count": 1}
    assert read["unknown_labels"] == {"LOC": 2, "ORG": 1, "MISC": 1}


def test_sentences_need_a_label_for_every_token() -> None:
    with pytest.raises(AssertionError, match="1 labels for 2 tokens"):
        LabelingTally(spans=False).add(["A", "B"], ["A"])
