"""Labeling scores against seqeval, and against what conlleval (version 2004-01-26) prints for hand-made sentences."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.metrics.labeling import LabelingScores, LabelingTally


def seqeval() -> Any:
    """Its scores; imported by a test that asks for them, as scikit-learn comes along."""
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
    for right, said in zip(gold, predicted, strict=True):
        tally.add(right, said)
    return tally.scores(known)


def columns(text: str) -> tuple[list[list[str]], list[list[str]]]:
    """Sentences parted by an empty line; in a line a word, the gold label, the predicted label."""
    sentences = [[line.split() for line in part.splitlines()] for part in text.strip().split("\n\n")]
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


def test_as_conlleval_prints_it() -> None:
    """processed 11 tokens with 6 phrases; found: 7 phrases; correct: 3.
    accuracy:  54.55%; precision:  42.86%; recall:  50.00%; FB1:  46.15
                  LOC: precision:   0.00%; recall:   0.00%; FB1:   0.00  3
                 MISC: precision:   0.00%; recall:   0.00%; FB1:   0.00  0
                  ORG: precision: 100.00%; recall: 100.00%; FB1: 100.00  1
                  PER: precision:  66.67%; recall: 100.00%; FB1:  80.00  3
    """
    found = scores(*columns(BROKEN))
    assert (found.tokens, found.sentences) == (11, 2)
    assert [f"{100 * share:.2f}" for share in (found.accuracy, found.precision, found.recall, found.f1)] == [
        "54.55", "42.86", "50.00", "46.15",
    ]  # fmt: skip
    assert {
        label: (f"{100 * one.precision:.2f} {100 * one.recall:.2f} {100 * one.f1:.2f}", one.support, one.predicted)
        for label, one in found.per_label.items()
    } == {
        "LOC": ("0.00 0.00 0.00", 2, 3),
        "MISC": ("0.00 0.00 0.00", 1, 0),
        "ORG": ("100.00 100.00 100.00", 1, 1),
        "PER": ("66.67 100.00 80.00", 2, 3),
    }
    assert found.macro_f1 == pytest.approx((0 + 0 + 1 + 0.8) / 4)
    assert found.summary() == "accuracy 54.55 %, F1 46.15"


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
def test_correct_spans_by_hand(gold: str, predicted: str, correct: int) -> None:
    found = scores([gold.split()], [predicted.split()])
    assert sum(round(one.recall * one.support) for one in found.per_label.values()) == correct


def test_a_span_does_not_reach_into_the_next_sentence() -> None:
    apart = scores([["B-X"], ["I-X"]], [["B-X"], ["B-X"]])
    assert (apart.f1, apart.per_label["X"].support) == (1.0, 2)


@given(pairs)
def test_spans_as_seqeval_scores_them(sentences: tuple[list[list[str]], list[list[str]]]) -> None:
    gold, predicted = sentences
    found = scores(gold, predicted)
    assert found.precision == pytest.approx(seqeval().precision_score(gold, predicted, zero_division=0))
    assert found.recall == pytest.approx(seqeval().recall_score(gold, predicted, zero_division=0))
    assert found.f1 == pytest.approx(seqeval().f1_score(gold, predicted, zero_division=0))
    assert found.accuracy == pytest.approx(seqeval().accuracy_score(gold, predicted))
    if not found.per_label:  # seqeval's report fails where there is no span at all
        return
    report = seqeval().classification_report(gold, predicted, output_dict=True, zero_division=0)
    assert found.macro_f1 == pytest.approx(report.pop("macro avg")["f1-score"])
    assert set(found.per_label) == set(report) - {"micro avg", "weighted avg"}
    for label, one in found.per_label.items():
        expected = report[label]
        assert one.support == expected["support"]
        assert [one.precision, one.recall, one.f1] == pytest.approx(
            [expected["precision"], expected["recall"], expected["f1-score"]]
        )


def test_plain_labels() -> None:
    found = scores(
        [["DET", "NOUN", "VERB"], ["NOUN", "X"]], [["DET", "NOUN", "NOUN"], ["VERB", "NOUN"]], spans=False, known=TAGS
    )
    assert found.accuracy == found.precision == found.recall == found.f1 == pytest.approx(2 / 5)
    noun = found.per_label["NOUN"]
    assert (noun.precision, noun.recall, noun.support, noun.predicted) == (1 / 3, 1 / 2, 2, 3)
    assert noun.f1 == pytest.approx(2 / 5)
    assert list(found.per_label) == ["DET", "NOUN", "VERB", "X"]
    assert found.macro_f1 == pytest.approx((1 + 2 / 5 + 0 + 0) / 4)
    assert found.confusion == [("NOUN", "VERB", 1), ("VERB", "NOUN", 1), ("X", "NOUN", 1)]
    assert found.summary() == "accuracy 40.00 %, macro F1 35.00"


def test_the_most_frequent_confusions_come_first() -> None:
    gold, predicted = ["A"] * 6 + ["B"] * 4, ["B", "B", "C", "C", "C", "A"] + ["A"] * 3 + ["B"]
    assert scores([gold], [predicted], spans=False).confusion == [("A", "C", 3), ("B", "A", 3), ("A", "B", 2)]
    many = scores([[f"{n:02}" for n in range(50)]], [["?"] * 50], spans=False)
    assert many.confusion == [(f"{n:02}", "?", 1) for n in range(20)]


def test_unknown_labels_are_wrong_and_reported() -> None:
    plain = scores([["A", "B", "B", "C"]], [["A", "A", "A", "A"]], spans=False, known=["A"])
    assert (plain.unknown_labels, plain.accuracy) == ({"B": 2, "C": 1}, 0.25)
    gold = [["S-PER", "B-LAW", "I-LAW", "E-LAW", "S-LAW", "O"]]
    spans = scores(gold, [["B-PER", "O", "O", "O", "O", "O"]], known=["O", "B-PER", "I-PER"])
    assert (spans.unknown_labels, spans.recall) == ({"LAW": 2}, 1 / 3)
    assert scores(gold, gold).unknown_labels == {}


@pytest.mark.parametrize("spans", [True, False])
@pytest.mark.parametrize("sentences", [[], [[]], [["O"]]])
def test_shares_of_nothing_are_zero(spans: bool, sentences: list[list[str]]) -> None:
    found = scores(sentences, sentences, spans=spans)
    assert found.sentences == len(sentences)
    assert found.accuracy == (1.0 if sentences == [["O"]] else 0.0)
    assert found.f1 == (0.0 if spans else found.accuracy)


def test_as_json() -> None:
    content = scores(*columns(BROKEN), known=["O", "B-PER"]).as_json()
    assert list(content)[: len(KEYS)] == KEYS
    read = json.loads(json.dumps(content, allow_nan=False))
    assert read == content
    assert read["per_label"]["PER"] == {
        "precision": pytest.approx(2 / 3), "recall": 1.0, "f1": pytest.approx(0.8), "support": 2, "predicted": 3,
    }  # fmt: skip
    assert read["confusion"][0] == {"gold": "B-LOC", "predicted": "I-LOC", "count": 1}
    assert read["unknown_labels"] == {"LOC": 2, "ORG": 1, "MISC": 1}


def test_a_label_for_every_token() -> None:
    with pytest.raises(AssertionError, match="1 labels for 2 tokens"):
        LabelingTally(spans=False).add(["A", "B"], ["A"])
