"""Wrong arguments of Python callers: accepted where they can be converted, or an error of one line that names them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ensue
from ensue.errors import EnsueError
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from language_pipelines import pipeline_of
from training.tiny import run_tiny
from training.tiny_texts import classifying, columns, documents, sentences, tagging, tsv

NAN, HUGE = float("nan"), 10**400
Call = Callable[[Any], Any]


@pytest.fixture(scope="module")
def language() -> LanguagePipeline:
    return pipeline_of("characters")


@pytest.fixture(scope="module", params=["tagger", "classifier"])
def labeler(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> LabelingPipeline | ClassificationPipeline:
    path = tmp_path_factory.mktemp("labelers") / "data.tsv"
    is_tagger = request.param == "tagger"
    path.write_text(columns(sentences(30)) if is_tagger else tsv(documents(30)))
    recipe = tagging(path, data={"format": "columns"}, steps=1) if is_tagger else classifying(path, steps=1)
    run_tiny(recipe, path.parent / "run")
    kind, other = (LabelingPipeline, ClassificationPipeline)[:: 1 if is_tagger else -1]
    with pytest.raises(EnsueError, match=f"the model is a .*, a {kind.__name__}; expected a {other.__name__}$"):
        ensue.load(path.parent / "run", device="cpu", kind=other)
    return ensue.load(path.parent / "run", device="cpu", kind=kind)


def assert_refused(call: Call, value: Any, pattern: str) -> None:
    with pytest.raises((EnsueError, TypeError), match=pattern) as caught:
        call(value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.sampled(2)
@pytest.mark.parametrize("value", [5, None, b"run", ["run"], 3.5])
def test_wrong_paths_and_names_are_refused(value: Any, labeler: LabelingPipeline, language: LanguagePipeline) -> None:
    data = [value] if isinstance(value, list) else value  # a list of paths would be several files
    assert_refused(ensue.load, value, "^the run is .*expected a path$")
    assert_refused(lambda v: ensue.load("run", device=v), value, "^the device is .*expected its name$")
    assert_refused(lambda v: ensue.train("char-lstm", train="x", out=v), value, "^out is .*expected a path$")
    assert_refused(
        lambda v: ensue.train("char-lstm", train=v, out="x"), data, "^train( is|, row 1 ).*expected a path, rows "
    )
    assert_refused(labeler.evaluate, data, "^the data( is|, row 1 ).*expected a path, rows ")
    assert_refused(language.evaluate, data, "^the data( is|, row 1 ).*expected a path, rows ")
    assert_refused(language.minimal_pairs, data, "^the pairs( is|, row 1 ).*expected a path, rows ")
    assert_refused(labeler.with_splitter, value, "^the splitter is .*expected its name$")
    assert_refused(lambda v: ensue.train("char-lstm", train="x", out="y", settings=[v]), value, "^a setting is")


@pytest.mark.parametrize("value", [5, None, "a b", b"a b", [b"a"], [5], [None], [["a", 5]]])
def test_values_that_are_no_list_of_texts_are_refused(value: Any, labeler: LabelingPipeline) -> None:
    assert_refused(labeler.predict, value, "^predict takes ")


@pytest.mark.parametrize("value", [5, None, b"a", [5], ["a", 5], []])
def test_values_that_cannot_be_inspected_are_refused(value: Any, labeler: LabelingPipeline) -> None:
    assert_refused(labeler.inspect, value, "the text|reads texts|reads one text")


def test_texts_may_be_any_iterable_but_a_dict(labeler: LabelingPipeline) -> None:
    for texts in (["a b"], ("a b",), iter(["a b"]), np.array(["a b"])):
        assert len(labeler.predict(texts)) == 1
    assert labeler.predict([]) == []
    assert_refused(labeler.predict, {"a b": 1}, "predict takes a list of texts")


@pytest.mark.parametrize("value", [5, None, b"a", ["a"]])
def test_values_that_are_no_text_are_refused(value: Any, language: LanguagePipeline) -> None:
    assert_refused(language.score, value, "^the text is .*expected a string$")
    assert_refused(language.generate, value, "^the prompt is .*expected a string$")


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "max_tokens": [-1, 10**14, "5", 2.5, None, True, HUGE], "seed": [-1, 2**70, "5", 1.5, HUGE],
        "temperature": [-1, NAN, float("inf"), "5", None, HUGE], "top_k": [0, "5", 1.5], "top_p": [0, 2, NAN, "5"],
        "min_p": [-1, 2, NAN, "5"], "repetition_penalty": [0, NAN, "5", None],
    }.items(),
)  # fmt: skip
def test_options_of_generate_out_of_range_are_refused(name: str, values: list[Any], language: LanguagePipeline) -> None:
    for value in values:
        assert_refused(lambda v: language.generate("a", **{name: v}), value, f"^{name} is ")
        assert_refused(lambda v: language.samples("a", 1, **{name: v}), value, f"^{name} is ")


@pytest.mark.parametrize("value", [0, -1, "2", 2.5, 10**14])
def test_wrong_numbers_of_parts_and_threads_are_refused(value: Any, language: LanguagePipeline, tmp_path: Path) -> None:
    assert_refused(lambda v: language.samples("a", v), value, "^num_samples is ")
    assert_refused(lambda v: language.evaluate(tmp_path, parts=v), value, "^parts is ")
    assert_refused(lambda v: ensue.train("char-lstm", train="x", out=tmp_path / "y", threads=v), value, "^threads is ")


@pytest.mark.parametrize("method", ["generate", "samples", "with_adaptation"])
def test_arguments_with_unknown_names_are_named_beside_the_known(method: str, language: LanguagePipeline) -> None:
    message = r'^(sampling|an adaptation) has no "temprature"; expected one of (cache, cache_weight|temperature, top_k)'
    assert_refused(lambda name: getattr(language, method)(**{name: 1}), "temprature", message)


def test_numbers_of_numpy_are_numbers(language: LanguagePipeline) -> None:
    options = {"max_tokens": np.int64(3), "temperature": np.float32(0.5), "seed": np.int64(1)}
    assert len(language.samples("a", 1, **options)[0]) == 3  # type: ignore[arg-type]
