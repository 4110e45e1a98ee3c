"""`at_least` of taggers leaves out less probable spans and tags, and changes nothing else."""

from typing import Any

import pytest

from ensue.errors import EnsueError
from ensue.library import load
from kept_runs.make import unpacked

TEXTS = ["Anna Novak sees Lima and the old house.", "A Bank of Peru sees Anna", ""]
RUNS = ["tag-lstm-crf", "tag-lstm", "tag-nested", "tag-columns", "tag-transformer-crf"]


@pytest.fixture(scope="module", params=RUNS)
def tagger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    unpacked(request.param, folder)
    return load(next(path.parent for path in folder.rglob("config.json")), device="cpu")


def test_less_probable_spans_and_tags_are_left_out(tagger: Any) -> None:
    sentences = tagger.predict(TEXTS, confidence=True)
    probabilities = sorted(
        probability
        for each in sentences
        for probability in (
            each.span_probabilities
            if each.has_spans
            else [p for w in each for p in (w.confidence.values() if w.columns else [w.confidence])]
        )
    )
    for threshold in [0.0, 1.0, *([probabilities[len(probabilities) // 2]] if probabilities else [])]:
        for before, after in zip(sentences, tagger.predict(TEXTS, confidence=True, at_least=threshold), strict=True):
            assert before.text == after.text
            if before.has_spans:
                expected_spans = [span for span in before.spans if span.probability >= threshold]
                assert [span[:4] for span in after.spans] == [span[:4] for span in expected_spans]
                assert after.span_probabilities == pytest.approx([span.probability for span in expected_spans])
                continue
            for old, new in zip(before, after, strict=True):
                pairs = old.confidence if old.columns else {"": old.confidence}
                values = old.columns or {"": old.label}
                expected = {name: value if pairs[name] >= threshold else "_" for name, value in values.items()}
                assert (new.columns or {"": new.label}) == expected
                probable = {name: p for name, p in pairs.items() if p >= threshold}
                assert new.confidence == (probable if old.columns else probable.get(""))
                shown = new.as_json().get("confidence", {})
                assert (shown.keys() if old.columns else bool(shown)) == (
                    probable.keys() if old.columns else bool(probable)
                )
    assert [each.labels for each in tagger.predict(TEXTS, at_least=0.0)] == [each.labels for each in sentences]


@pytest.mark.parametrize("value", [-0.1, 2])
def test_at_least_is_a_number_from_0_to_1(tagger: Any, value: object) -> None:
    with pytest.raises(EnsueError, match="at_least"):
        tagger.predict(TEXTS, at_least=value)


def test_settings_of_a_search_are_combined(tagger: Any) -> None:
    assert (tagger.n_best, tagger.at_least) == (0, 0.0)
    both = tagger.with_search(at_least=0.5).with_search(n_best=2)
    assert (both.n_best, both.at_least) == (2, 0.5)
    with pytest.raises(EnsueError, match="n_best"):
        tagger.with_search(n_best=0)
