"""The numbers of a classifier's view equal predictions for texts that were changed by hand."""

import numpy as np
import pytest
import torch

from ensue.errors import EnsueError
from ensue.tasks.classification import view as classifying
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.classification.view import ClassifierView, group_words
from ensue.text.labels import Classes
from inspection.small import LSTM, TRANSFORMER, classifier
from training.tiny import some_slow

TEXT = "Ann saw the calm Sea of Landon"
WORDS_ONLY = {"d_words": 6}
NEW = "\u2603"
"""A word missing in training data."""


def views_of(pipeline: ClassificationPipeline, text: str | tuple[str, str] = TEXT) -> tuple[ClassifierView, ...]:
    views = pipeline.inspect(text).view
    assert isinstance(views, tuple)
    return views


def probability(pipeline: ClassificationPipeline, text: str | tuple[str, str], label: int) -> float:
    (answer,) = pipeline.predict([text])
    return answer.probabilities[pipeline.labels.names[label]]


def log_odds(p: float) -> float:
    return float(np.log(p) - np.log1p(-p))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("multiple", [False, True], ids=["one label", "several"])
@pytest.mark.parametrize("pooling", [("mean", "max"), ("last",), ("attention",)], ids="+".join)
@pytest.mark.parametrize("model", some_slow([LSTM, TRANSFORMER], LSTM), ids=["lstm", "transformer"])
def test_the_contribution_of_a_word_is_the_change_with_an_unknown_word(multiple, pooling, model) -> None:  # type: ignore[no-untyped-def]
    classes = Classes(["good", "bad", "so-so"], multiple=multiple)
    pipeline = classifier(features=WORDS_ONLY, model=model, pooling=pooling, classes=classes)
    (view,) = views_of(pipeline)
    (answer,) = pipeline.predict([TEXT])
    np.testing.assert_allclose(view.probabilities, list(answer.probabilities.values()), rtol=1e-5)
    full_probability = probability(pipeline, TEXT, view.label)
    words = TEXT.split()
    for position, contribution in enumerate(view.contributions):
        without = probability(pipeline, " ".join([*words[:position], NEW, *words[position + 1 :]]), view.label)
        assert contribution.group == range(position, position + 1)
        assert contribution.probability == pytest.approx(without, rel=1e-4)
        assert contribution.log_odds == pytest.approx(log_odds(full_probability) - log_odds(without), abs=1e-3)
    assert view.contributions[6].log_odds == pytest.approx(0, abs=1e-5)
    assert view.is_known.tolist() == [True] * 6 + [False]


def test_words_of_a_pair_are_replaced_on_one_side_at_a_time() -> None:
    pipeline = classifier(features=WORDS_ONLY, pair=True)
    pair = ("Ann saw London", "the Sea was calm")
    first, second = views_of(pipeline, pair)
    assert first.label == second.label
    assert first.contributions[2].probability == pytest.approx(
        probability(pipeline, (f"Ann saw {NEW}", pair[1]), first.label), rel=1e-4
    )
    assert second.contributions[1].probability == pytest.approx(
        probability(pipeline, (pair[0], f"the {NEW} was calm"), first.label), rel=1e-4
    )


def test_ngrams_are_counted_without_the_word() -> None:
    pipeline = classifier(features=WORDS_ONLY, pooling=(), ngrams=2)
    (view,) = views_of(pipeline)
    assert (view.attention, view.maxima, view.traces) == (None, None, [])
    without = probability(pipeline, TEXT.replace("calm", NEW), view.label)
    assert view.contributions[3].probability == pytest.approx(without, rel=1e-4)


def test_log_odds_of_certain_labels_are_finite() -> None:
    pipeline = classifier()
    with torch.no_grad():
        pipeline.model.head[-1].bias += torch.tensor([200.0, 0.0, 0.0])
    (view,) = views_of(pipeline)
    assert view.probabilities[0] == 1
    assert np.isfinite([contribution.log_odds for contribution in view.contributions]).all()
    assert max(abs(contribution.log_odds) for contribution in view.contributions) > 1e-3


@pytest.mark.parametrize("data", [{}, {"segment_tokens": 3}], ids=["whole", "segments"])
def test_attention_and_maxima_reproduce_the_pooled_vector(data: dict) -> None:  # type: ignore[type-arg]
    model = LSTM | {"bidirectional": False}
    pipeline = classifier(model=model, pooling=("attention", "max"), data=data)
    (view,) = views_of(pipeline)
    assert view.attention is not None
    assert view.maxima is not None
    forms, rows = pipeline.reader.read([TEXT.split()])
    numbers = torch.from_numpy(rows.values.astype(np.int64))[None]
    with torch.no_grad():
        x = pipeline.model.features.assemble(forms.vectors, numbers, numbers.new_zeros(1, 7, 0))
        pooled = pipeline.model.pool(x, forms.keys[numbers], None).vector[0]
        h = pipeline.model.layers(x)[0][0]
    np.testing.assert_allclose(view.attention @ h.numpy(), pooled[:5], rtol=1e-4, atol=1e-5)
    winners = [int((h[:, unit] - pooled[5 + unit]).abs().argmin()) for unit in range(5)]
    assert view.maxima.tolist() == [winners.count(position) / 5 for position in range(7)]


def test_words_of_long_texts_are_replaced_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    assert group_words(3) == [range(0, 1), range(1, 2), range(2, 3)]
    groups = group_words(2_000)
    assert [position for group in groups for position in group] == list(range(2_000))
    assert len(groups) * 2_000 <= classifying.MAX_VARIANT_WORDS
    monkeypatch.setattr(classifying, "MAX_VARIANT_WORDS", 21)
    pipeline = classifier(features=WORDS_ONLY)
    (view,) = views_of(pipeline)
    assert [contribution.group for contribution in view.contributions] == [range(0, 3), range(3, 6), range(6, 7)]
    without = probability(pipeline, f"Ann saw the {NEW} {NEW} {NEW} Landon", view.label)
    assert view.contributions[1].probability == pytest.approx(without, rel=1e-4)


def test_only_words_that_the_model_reads_are_shown() -> None:
    (view,) = views_of(classifier(data={"max_tokens": 4, "keep": "both"}))
    assert view.words == ("Ann", "saw", "of", "Landon")


def test_a_wrong_number_of_texts_is_refused() -> None:
    with pytest.raises(EnsueError, match="the model reads one text; found 2"):
        classifier().inspect(("a", "b"))
    with pytest.raises(EnsueError, match="the model reads two texts; found 1"):
        classifier(pair=True).inspect("a")
    with pytest.raises(EnsueError, match="the text has no words"):
        classifier(pair=True).inspect(("calm", " "))


@pytest.mark.parametrize("pair", [False, True])
def test_integrated_gradients_of_words_add_up(pair: bool) -> None:
    pipeline = classifier(pair=pair, ngrams=0 if pair else 2)
    inspection = pipeline.inspect(("the Sea was", "calm") if pair else "the Sea was calm .")
    for side, view in enumerate(inspection.view):
        result = view.integrated
        p = view.probabilities[view.label]
        assert result.value == pytest.approx(np.log(p / (1 - p)), abs=1e-3)
        assert len(result.shares) == len(view.words)
        assert float(result.shares.sum()) == pytest.approx(result.value - result.baseline, abs=result.error + 1e-4)
        assert result.is_exact, side
    assert "Integrated gradients" in inspection.page
