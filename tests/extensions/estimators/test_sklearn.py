"""Classifiers and taggers as estimators of scikit-learn."""

import copy
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import check_estimator

import ensue
from ensue.extensions.estimators.sklearn import Tagger, TextClassifier

TEXTS = [f"a {word} film number {number}" for number in range(20) for word in ("good", "bad")]
MARKS = [1, 0] * 20
SENTENCES, TAGS = [["a", "dog"], ["the", "cat"]] * 10, [["D", "N"]] * 20
STEPS = {"train.steps": 20}
TAGGER = STEPS | {"encoder.d_model": 40}
SMALL = STEPS | {"head.ngram_buckets": 1000}


@pytest.fixture(scope="module")
def classifier() -> TextClassifier:
    return TextClassifier(settings=SMALL, random_state=3).fit(TEXTS, MARKS)


def test_predictions_are_those_of_the_run(classifier: TextClassifier) -> None:
    shares = classifier.predict_proba(TEXTS[:4])
    assert classifier.classes_.tolist() == [0, 1]
    assert np.allclose(shares.sum(1), 1, rtol=0, atol=1e-15)
    assert classifier.predict(TEXTS).tolist() == MARKS
    assert classifier.score(TEXTS, MARKS) == 1
    (prediction,) = ensue.load(classifier.run_).predict(TEXTS[:1])
    assert prediction.probabilities == pytest.approx({"0": shares[0, 0], "1": shares[0, 1]})
    assert classifier.predict_proba([]).shape == (0, 2)


@pytest.mark.parametrize("missing", [None, float("nan"), np.datetime64("NaT")])
def test_missing_labels_are_named(missing: Any) -> None:
    with pytest.raises(ValueError, match=rf"y\[1\]: expected a label, found {missing}"):
        TextClassifier().fit(TEXTS[:2], np.array(["good", missing], dtype=object))
    with pytest.raises(ValueError, match=rf"y\[1\]: expected a label, found {missing}"):
        TextClassifier().fit(TEXTS[:2], ["good", missing])


def test_a_pickle_holds_the_run(classifier: TextClassifier) -> None:
    again = pickle.loads(pickle.dumps(classifier))
    assert again.run_ != classifier.run_
    assert (again.predict_proba(TEXTS) == classifier.predict_proba(TEXTS)).all()
    run = again.run_
    del again
    assert not run.exists()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_is_the_model_that_was_fitted(tmp_path: Path, copied: Any) -> None:
    """Whatever became of its folder: another estimator is fitted there, or it is removed."""
    settings, out = SMALL | {"train.steps": 6}, tmp_path / "run"
    first = TextClassifier(settings=settings, out=out, random_state=1).fit(TEXTS, MARKS)
    expected = first.predict_proba(TEXTS[:4])
    second = clone(first).fit(TEXTS, [1 - mark for mark in MARKS])
    others = second.predict_proba(TEXTS[:4])
    assert (copied(first).predict_proba(TEXTS[:4]) == expected).all()
    shutil.rmtree(out)
    assert (copied(copied(first)).predict_proba(TEXTS[:4]) == expected).all()
    assert (copied(second).predict_proba(TEXTS[:4]) == others).all()
    assert not (others == expected).all()


def test_a_clone_has_the_parameters_but_no_model(classifier: TextClassifier) -> None:
    again = clone(classifier).set_params(settings__seed=1)
    assert again.get_params()["settings"] == SMALL | {"seed": 1}
    assert classifier.get_params()["settings__train.steps"] == 20
    with pytest.raises(NotFittedError):
        again.predict(TEXTS)
    with pytest.warns(SkipTestWarning, match="requires input"):  # the checks of tables of numbers
        check_estimator(TextClassifier())


@pytest.mark.slow
def test_a_tagger_labels_words(tmp_path: Path) -> None:
    tagger = Tagger(settings=TAGGER, out=tmp_path / "run").fit(SENTENCES, TAGS)
    assert tagger.predict([["a", "cat"], []]) == [["D", "N"], []]
    assert tagger.score(SENTENCES, TAGS) == 1
    shares, empty = tagger.predict_proba([["a", "cat"], []])
    assert (shares.shape, empty.shape, tagger.classes_.tolist()) == ((2, 2), (0, 2), ["D", "N"])
    assert np.allclose(shares.sum(1), 1, rtol=0, atol=1e-15)
    (sentence,) = tagger.model_.predict([["a", "cat"]], confidence=True)
    assert np.allclose(shares.max(1), [word.confidence for word in sentence], atol=1e-6)
    assert tagger.run_ == tmp_path / "run"


@pytest.mark.slow
def test_a_class_that_only_the_validation_data_have_is_improbable() -> None:
    """Half of ten examples, each of another class, are held out for validation."""
    settings = {"train.steps": 2, "data.valid_fraction": 0.5}
    classifier = TextClassifier(settings=settings | {"head.ngram_buckets": 1000}).fit(TEXTS[:10], [*range(10)])
    missing = [name not in classifier.model_.labels.names for name in map(str, classifier.classes_)]
    assert any(missing)
    assert (classifier.predict_proba(TEXTS[:2])[:, missing] == 0).all()
    first = classifier.run_
    assert classifier.fit(TEXTS[:10], [*range(10)]).run_ != first
    assert not first.exists()
    words = [[f"word{number}"] for number in range(10)]
    tags = [[f"t{number}"] for number in range(10)]
    tagger = Tagger("tag-lstm", settings=settings | {"encoder.d_model": 40}).fit(words, tags)
    missing = [name not in tagger.model_.labels.names for name in tagger.classes_]
    (shares,) = tagger.predict_proba([["word1"]])
    assert any(missing)
    assert (shares[:, missing] == 0).all()
    assert np.allclose(shares.sum(1), 1, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("X", "y", "complaint"),
    [
        ("one text", [1], "a list of texts, found one string"),
        (SimpleNamespace(columns=["text"], to_dict=None), [1], r'found a table; select a column: X\["text"\]'),
        (["a", 3], [0, 1], r"X\[1\]: .*found 3"),
        (["a", ("b", "c", "d")], [0, 1], r"X\[1\]: "),
        (["a", "b"], [0], r"^y: .*shape \(2,\), found \(1,\)"),
        (["a", "b"], np.array(["1", 1], dtype=object), "two labels have the same name|not supported"),
    ],
)
def test_texts_and_labels_that_do_not_match_are_refused(X: Any, y: Any, complaint: str) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint):
        TextClassifier().fit(X, y)


def test_blanks_around_a_label_stay() -> None:
    """The run leaves them out, the classes do not."""
    classifier = TextClassifier(settings=SMALL).fit(TEXTS, [" one ", "b"] * 20)
    assert classifier.classes_.tolist() == [" one ", "b"]
    assert np.allclose(classifier.predict_proba(TEXTS).sum(1), 1, atol=1e-5)
    assert set(classifier.predict(TEXTS)) <= {" one ", "b"}


def test_words_may_be_arrays_and_labels_must_be_strings() -> None:
    words = [np.array(sentence) for sentence in SENTENCES]
    tagger = Tagger(settings=TAGGER | {"train.steps": 2}).fit(words, TAGS)
    assert [len(labels) for labels in tagger.predict(words)] == [len(sentence) for sentence in words]
    with pytest.raises(ValueError, match="sentence 0: labels must be strings; found 1"):
        Tagger().fit([["a"]], [[1]])  # type: ignore[list-item]


def test_recipes_and_sentences_of_another_task_are_refused() -> None:
    with pytest.raises(ValueError, match="a Tagger cannot have the task 'classification' of 'classify-bag'"):
        Tagger("classify-bag").fit(SENTENCES, TAGS)
    with pytest.raises(ValueError, match="sentence 0: expected a list of words, and a label for each"):
        Tagger().fit(["a dog"], [["D", "N"]])


@pytest.mark.slow
def test_a_grid_search_varies_keys_of_a_recipe_in_a_pipeline() -> None:
    pipeline = Pipeline([("classifier", TextClassifier(settings=SMALL))])
    search = GridSearchCV(pipeline, {"classifier__settings__train.learning_rate": [1e-9, 0.01]}, cv=2, n_jobs=2).fit(
        TEXTS, MARKS
    )
    assert search.best_params_ == {"classifier__settings__train.learning_rate": 0.01}
    pairs = [(f"a {number}", other) for number in range(20) for other in ("a", "b")]
    pair_classifier = TextClassifier("classify-pairs", settings=STEPS).fit(pairs, ["same", "other"] * 20)
    assert pair_classifier.classes_.tolist() == ["other", "same"]
    assert pair_classifier.predict_proba(pairs).shape == (40, 2)
