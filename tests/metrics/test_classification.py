"""Classification scores equal scikit-learn's, and calibration equals its definition and closed forms."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import functional as F

from ensue.metrics.classification import ClassificationScores, ClassificationTally, best_temperature, best_threshold
from ensue.metrics.confusion import limit_labels

KEYS = ["accuracy", "macro_f1", "examples", "per_label"]
LABELS = ["b", "a", "c", "d"]
EVERY = [*LABELS, "unheard of"]
K = len(LABELS)


def sklearn() -> Any:
    """Return the scores of scikit-learn, imported only for tests that use it, since the import takes a second."""
    from sklearn import metrics  # noqa: PLC0415

    return metrics


def one_hot(label: str, top: float = 0.7) -> NDArray[np.float64]:
    probabilities = np.full(K, (1 - top) / (K - 1))
    probabilities[LABELS.index(label)] = top
    return probabilities


def single(pairs: list[tuple[str, str]]) -> ClassificationScores:
    tally = ClassificationTally(LABELS)
    for gold, predicted in pairs:
        tally.add([gold], one_hot(predicted), [predicted])
    return tally.scores()


def several(pairs: list[tuple[set[str], set[str]]]) -> ClassificationScores:
    tally = ClassificationTally(LABELS, multiple=True)
    for gold, predicted in pairs:
        tally.add(gold, np.array([0.9 if label in predicted else 0.1 for label in LABELS]), predicted)
    return tally.scores()


def assert_labels_agree(scores: ClassificationScores, report: dict[str, Any]) -> None:
    for label, label_scores in scores.per_label.items():
        expected = report[label]
        assert label_scores.support == expected["support"]
        assert [label_scores.precision, label_scores.recall, label_scores.f1] == pytest.approx(
            [expected["precision"], expected["recall"], expected["f1-score"]]
        )


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(EVERY), st.sampled_from(LABELS)), min_size=1, max_size=30))
def test_scores_of_single_labels_equal_those_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = [gold for gold, _ in pairs], [predicted for _, predicted in pairs]
    scores = single(pairs)
    report = sklearn().classification_report(gold, predicted, output_dict=True, zero_division=0.0)
    assert scores.accuracy == scores.micro_f1 == pytest.approx(sklearn().accuracy_score(gold, predicted))
    assert scores.macro_f1 == pytest.approx(report["macro avg"]["f1-score"])
    assert scores.weighted_f1 == pytest.approx(report["weighted avg"]["f1-score"])
    assert set(scores.per_label) == {*gold, *predicted}
    assert_labels_agree(scores, report)
    assert scores.confusion == sklearn().confusion_matrix(gold, predicted, labels=scores.labels).tolist()
    assert scores.labels[:K] == LABELS
    assert scores.unknown_labels == ({"unheard of": gold.count("unheard of")} if "unheard of" in gold else {})
    assert scores.examples == len(pairs) == sum(map(sum, scores.confusion))


@pytest.mark.slow
@given(st.lists(st.tuples(st.sets(st.sampled_from(EVERY)), st.sets(st.sampled_from(LABELS))), min_size=1, max_size=20))
def test_scores_of_several_labels_equal_those_of_scikit_learn(pairs: list[tuple[set[str], set[str]]]) -> None:
    gold = np.array([[label in right for label in EVERY] for right, _ in pairs])
    predicted = np.array([[label in predicted_labels for label in EVERY] for _, predicted_labels in pairs])
    scores = several(pairs)
    occurring = [index for index in range(len(EVERY)) if gold[:, index].any() or predicted[:, index].any()]
    assert scores.accuracy == pytest.approx(sklearn().accuracy_score(gold, predicted))
    assert set(scores.per_label) == {EVERY[index] for index in occurring}
    for average, ours in (("macro", scores.macro_f1), ("weighted", scores.weighted_f1), ("micro", scores.micro_f1)):
        expected = 0.0
        if occurring:
            expected = sklearn().f1_score(gold, predicted, average=average, labels=occurring, zero_division=0.0)
        assert ours == pytest.approx(expected)
    report = sklearn().classification_report(gold, predicted, target_names=EVERY, output_dict=True, zero_division=0.0)
    assert_labels_agree(scores, report)
    assert scores.confusion is None


@pytest.mark.slow
def test_the_matrix_of_very_many_labels_has_the_most_frequent_ones() -> None:
    """The matrix has all of 100 labels, and the 100 most frequent ones of 3,000, in their order."""
    for count in (100, 3_000):
        labels = [f"l{number}" for number in range(count)]
        tally = ClassificationTally(labels)
        for gold, predicted in (("l7", "l7"), (labels[-1], "l7"), (labels[-1], labels[-1]), ("new", labels[-2])):
            tally.add([gold], np.eye(count)[labels.index(predicted)], [predicted])
        scores = tally.scores()
        assert scores.confusion is not None
        assert len(scores.labels) == len(scores.confusion) == (101 if count == 100 else 100)
        assert scores.labels[-2:] == [labels[-1], "new"]
        right, last = scores.labels.index("l7"), scores.labels.index(labels[-1])
        assert scores.confusion[right][right] == scores.confusion[last][right] == scores.confusion[last][last] == 1
        assert scores.per_label.keys() == {"l7", labels[-1], labels[-2], "new"}
        assert len(json.dumps(scores.as_json())) < 50_000
        first = np.eye(1, count)[0]
        for label in labels:
            tally.add([label], first, [labels[0]])
        scores = tally.scores()
        assert (len(scores.per_label), len(limit_labels(scores.as_json())["per_label"])) == (count + 1, 100)
        assert limit_labels(scores.as_json())["per_label"]["l7"] == scores.as_json()["per_label"]["l7"]
        assert limit_labels(scores.as_json()).keys() == scores.as_json().keys()
    several = ClassificationTally(labels, multiple=True).scores()
    assert (several.labels, several.confusion) == (labels, None)


def test_scores_of_a_small_case_are_correct() -> None:
    scores = single([("a", "a"), ("a", "b"), ("b", "b"), ("unheard of", "b")])
    assert scores.accuracy == 0.5
    assert scores.labels == ["b", "a", "c", "d", "unheard of"]
    assert scores.confusion == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0] * 5, [0] * 5, [1, 0, 0, 0, 0]]
    assert list(scores.per_label) == ["a", "b", "unheard of"]
    assert scores.macro_f1 == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert scores.weighted_f1 == pytest.approx((2 * 2 / 3 + 1 / 2 + 0) / 4)
    assert scores.summary() == "accuracy 50.00 %, macro F1 38.89"


def test_scores_of_several_labels_in_a_small_case_are_correct() -> None:
    scores = several([({"a", "b"}, {"a"}), (set(), set()), ({"c"}, {"c", "d"})])
    assert scores.accuracy == pytest.approx(1 / 3)
    assert scores.micro_f1 == pytest.approx(2 * 2 / (3 + 3))
    assert scores.macro_f1 == pytest.approx((1 + 0 + 1 + 0) / 4)


def test_scores_become_json() -> None:
    for scores in (single([("a", "a"), ("unheard of", "b")]), several([({"a"}, {"a", "b"})])):
        content = scores.as_json()
        assert list(content)[: len(KEYS)] == KEYS
        assert json.loads(json.dumps(content, allow_nan=False)) == content
        assert content["per_label"]["a"] == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1, "predicted": 1}


@pytest.mark.parametrize("multiple", [True, False])
def test_scores_without_texts_are_0(multiple: bool) -> None:
    scores = ClassificationTally(LABELS, multiple=multiple).scores()
    assert (scores.accuracy, scores.macro_f1, scores.weighted_f1, scores.micro_f1) == (0, 0, 0, 0)
    assert (scores.examples, scores.calibration_error, scores.per_label) == (0, 0, {})


def test_single_labels_need_one_label_each() -> None:
    tally = ClassificationTally(LABELS)
    for gold, predicted in ((["a", "b"], ["a"]), ([], ["a"]), (["a"], [])):
        with pytest.raises(AssertionError, match="one label each"):
            tally.add(gold, one_hot("a"), predicted)
    with pytest.raises(AssertionError, match="collection"):
        tally.add("a", one_hot("a"), ["a"])
    with pytest.raises(AssertionError, match="3 probabilities, 4 labels"):
        tally.add(["a"], np.ones(3) / 3, ["a"])


def test_calibration_of_a_small_case_is_correct() -> None:
    """Three of four texts at 0.7 are correct: |0.75 - 0.7|. One at 0.95 is wrong: 0.95. Weights are counts."""
    tally = ClassificationTally(LABELS)
    for right in ("a", "a", "a", "b"):
        tally.add([right], one_hot("a"), ["a"])
    assert tally.scores().calibration_error == pytest.approx(0.05)
    tally.add(["b"], one_hot("a", top=0.95), ["a"])
    assert tally.scores().calibration_error == pytest.approx((4 * 0.05 + 0.95) / 5)


def test_a_bin_holds_its_upper_edge() -> None:
    """3/15 and 2.5/15 share a bin, in which correct and wrong cancel out, and 3.5/15 is in the next."""
    low, edge, high = 2.5 / 15, 3 / 15, 3.5 / 15
    for first, second, expected in ((low, edge, abs(1 - low - edge) / 2), (edge, high, ((1 - edge) + high) / 2)):
        tally = ClassificationTally(["a"], multiple=True)
        tally.add(["a"], np.array([first]), [])
        tally.add([], np.array([second]), [])
        assert tally.scores().calibration_error == pytest.approx(expected)


def expected_calibration_error(confidences: NDArray[np.float64], is_correct: NDArray[np.bool_]) -> float:
    """Return the error of scikit-learn's curve, weighted by the sizes of bins."""
    from sklearn.calibration import calibration_curve  # noqa: PLC0415 (as above)

    share, mean = calibration_curve(is_correct, confidences, n_bins=15)
    sizes = np.array([np.sum((confidences > b / 15) & (confidences <= (b + 1) / 15)) for b in range(15)])
    return float(np.sum(sizes[sizes > 0] * np.abs(share - mean)) / len(confidences))


@pytest.mark.slow
def test_calibration_equals_that_of_scikit_learn() -> None:
    random = np.random.default_rng(1)
    probabilities = random.dirichlet(np.ones(K) / 2, size=500)
    gold = [LABELS[random.choice(K, p=row)] for row in probabilities]
    single, several = ClassificationTally(LABELS), ClassificationTally(LABELS, multiple=True)
    for label, row in zip(gold, probabilities, strict=True):
        single.add([label], row, [LABELS[row.argmax()]])
        several.add([label], row, [])
    right = np.array(gold) == np.array(LABELS)[probabilities.argmax(1)]
    assert single.scores().calibration_error == pytest.approx(expected_calibration_error(probabilities.max(1), right))
    each = np.array(gold)[:, None] == np.array(LABELS)
    assert several.scores().calibration_error == pytest.approx(
        expected_calibration_error(probabilities.ravel(), each.ravel())
    )


decisions = st.lists(st.tuples(st.booleans(), st.integers(0, 10)), min_size=2, max_size=24).map(
    lambda rows: rows[: len(rows) // 2 * 2]
)


@pytest.mark.slow
@given(decisions, st.sampled_from([np.float32, np.float64]))
def test_the_best_threshold_has_the_best_score(rows: list[tuple[bool, int]], precision: type[np.floating[Any]]) -> None:
    gold = np.array([right for right, _ in rows]).reshape(-1, 2)
    probabilities = np.array([tenths / 10 for _, tenths in rows], precision).reshape(-1, 2)

    def micro_f1(threshold: float) -> float:
        return float(sklearn().f1_score(gold, probabilities >= threshold, average="micro", zero_division=0.0))

    threshold = best_threshold(gold, probabilities)
    assert 0 <= threshold <= 1
    best = max(micro_f1(float(candidate)) for candidate in probabilities.ravel())
    assert micro_f1(threshold) == pytest.approx(best)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("multiple", [False, True])
def test_the_best_temperature_has_the_least_loss(multiple: bool) -> None:
    """The logits are three times too large for the labels. The losses are torch's."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2000, 3, generator=generator, dtype=torch.float64)
    if multiple:
        gold = torch.rand(logits.shape, generator=generator, dtype=torch.float64) < (logits / 3).sigmoid()
        probabilities, loss = logits.sigmoid(), lambda z: F.binary_cross_entropy_with_logits(z, gold.double())
    else:
        ids = torch.multinomial((logits / 3).softmax(1), 1, generator=generator)[:, 0]
        gold = F.one_hot(ids, 3).bool()
        probabilities, loss = logits.softmax(1), lambda z: F.cross_entropy(z, ids)
    temperature = best_temperature(gold.numpy(), probabilities.numpy(), multiple=multiple)
    assert temperature == pytest.approx(3, rel=0.1)
    best = min((float(loss(logits / t)), t) for t in torch.linspace(2, 4, 401).tolist())[1]
    assert temperature == pytest.approx(best, abs=6e-3)


def test_a_model_without_errors_has_temperature_1() -> None:
    assert best_temperature(np.eye(3, dtype=bool), np.full((3, 3), 0.2) + 0.4 * np.eye(3), multiple=False) == 1


def test_the_threshold_lies_between_two_probabilities() -> None:
    gold = np.array([[True, False], [True, False]])
    assert best_threshold(gold, np.array([[0.9, 0.2], [0.6, 0.1]])) == pytest.approx(0.4)
    assert best_threshold(np.ones((2, 1), np.bool_), np.array([[0.9], [0.3]])) == pytest.approx(0.15)
    assert best_threshold(np.ones((1, 1), np.bool_), np.zeros((1, 1))) == 0.0


def test_the_threshold_separates_neighboring_numbers() -> None:
    """The numbers are neighbors in the precision of the probabilities."""
    for precision in (np.float32, np.float64):
        low = precision(0.3)
        high = np.nextafter(low, precision(1))
        threshold = best_threshold(np.array([[True, False]]), np.array([[high, low]]))
        assert (np.array([high, low]) >= threshold).tolist() == [True, False]


def test_without_correct_labels_the_threshold_is_one_half() -> None:
    assert best_threshold(np.zeros((3, 2), np.bool_), np.full((3, 2), 0.9)) == 0.5
    assert best_threshold(np.zeros((0, 2), np.bool_), np.zeros((0, 2))) == 0.5
