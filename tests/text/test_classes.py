"""Labels of classifiers: choices by probabilities, targets, shares, saving and loading."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.compact_texts import Texts
from ensue.text.labels import Classes

NAMES = ["cat", "dog", "owl"]


def probabilities(*numbers: float) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.float32)


def test_the_most_probable_label_is_chosen() -> None:
    classes = Classes(NAMES)
    assert classes.choose(probabilities(0.2, 0.5, 0.3)) == ("dog",)
    assert classes.choose(probabilities(0.4, 0.2, 0.4)) == ("cat",)
    assert classes.choose(probabilities(0.0, 0.0, 0.1)) == ("owl",)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (0.5, ("owl", "dog")), (0.25, ("owl", "dog", "cat")), (0.75, ("owl",)), (0.7500001, ()),
        (0.0, ("owl", "dog", "cat")),
    ],
)  # fmt: skip
def test_labels_above_the_threshold_are_chosen_by_probability(threshold: float, expected: tuple[str, ...]) -> None:
    classes = Classes(NAMES, multiple=True, threshold=threshold)
    assert classes.choose(probabilities(0.25, 0.5, 0.75)) == expected


def test_a_saved_threshold_still_selects_a_probability_equal_to_it() -> None:
    """Probabilities are float32, and JSON has decimal numbers."""
    for probability in probabilities(0.1, 1 / 3, 0.7, np.nextafter(np.float32(0.5), np.float32(1))):
        classes = Classes(["x"], multiple=True, threshold=float(probability))
        loaded = Classes.from_json(json.loads(json.dumps(classes.to_json())))
        assert loaded.choose(probabilities(probability)) == ("x",)
        assert loaded.choose(probabilities(np.nextafter(probability, np.float32(0)))) == ()


def test_targets_are_ids_or_indicators() -> None:
    single = Classes(NAMES)
    assert single.targets(single.matrix([["owl"], ["cat"], ["owl"]])).tolist() == [2, 0, 2]
    assert single.targets(single.matrix([["owl"]])).dtype == np.int64
    several = Classes(NAMES, multiple=True)
    targets = several.targets(several.matrix([["owl", "cat"], [], ["dog", "ant", "dog"]]))
    assert targets.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert targets.dtype == np.float32
    assert several.matrix([]).shape == several.targets(several.matrix([])).shape == (0, 3)


labelings = st.lists(st.lists(st.sampled_from([*NAMES, "ant"]), unique=True), max_size=20)


@given(labels=labelings)
def test_the_matrix_has_the_labels_of_each_row(labels: list[list[str]]) -> None:
    matrix = Classes(NAMES, multiple=True).matrix(labels)
    assert matrix.tolist() == [[name in names for name in NAMES] for names in labels]


@given(labels=labelings)
def test_shares_of_several_labels_are_smoothed_with_one_text_of_each_answer(labels: list[list[str]]) -> None:
    several = Classes(NAMES, multiple=True)
    shares = several.frequencies(several.matrix(labels))
    expected = [Fraction(sum(name in names for names in labels) + 1, len(labels) + 2) for name in NAMES]
    assert shares.tolist() == pytest.approx([float(share) for share in expected])
    assert ((shares > 0) & (shares < 1)).all()


@given(labels=st.lists(st.sampled_from(NAMES), max_size=20))
def test_shares_of_single_labels_are_smoothed_with_one_text_each(labels: list[str]) -> None:
    single = Classes(NAMES)
    shares = single.frequencies(single.matrix([(label,) for label in labels]))
    expected = [Fraction(labels.count(name) + 1, len(labels) + 3) for name in NAMES]
    assert shares.tolist() == pytest.approx([float(share) for share in expected])
    assert shares.sum() == pytest.approx(1)


@given(labels=st.lists(st.sampled_from(NAMES), min_size=1, max_size=20))
def test_labels_of_a_column_equal_those_of_a_list(labels: list[str]) -> None:
    column, single, matrix = Texts(), Classes(NAMES), Classes(NAMES).matrix([[label] for label in labels])
    for label in labels:
        column.append([label])
    label_ids = single.label_ids(column)
    assert label_ids.tolist() == single.label_ids([[label] for label in labels]).tolist() == matrix.argmax(1).tolist()
    assert single.frequencies(label_ids).tolist() == single.frequencies(matrix).tolist()


@pytest.mark.parametrize("multiple", [False, True])
def test_saved_classes_are_equal_after_loading(multiple: bool) -> None:
    classes = Classes(["b", "a", "ä \u2028", ""], multiple=multiple, threshold=0.1)
    loaded = Classes.from_json(json.loads(json.dumps(classes.to_json())))
    assert (loaded.names, loaded.multiple, loaded.threshold) == (("b", "a", "ä \u2028", ""), multiple, 0.1)
    assert loaded.to_json() == classes.to_json()


@pytest.mark.parametrize(
    "damage",
    [
        {"names": None}, {"names": []}, {"names": ["a", "a"]}, {"names": ["a", 1]}, {"names": [["a"]]}, {"names": 3},
        {"names": "abc"}, {"names": {"a": 0}}, {"threshold": None}, {"threshold": "high"},
    ],
    ids=str,
)  # fmt: skip
def test_invalid_content_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^.+$"):
        Classes.from_json(Classes(NAMES).to_json() | damage)


def test_equally_probable_labels_keep_their_order() -> None:
    assert Classes(NAMES, multiple=True).choose(probabilities(0.6, 0.9, 0.6)) == ("dog", "cat", "owl")
