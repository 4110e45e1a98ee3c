"""Methods and options that extensions add to pipelines and commands."""

from pathlib import Path
from typing import Any

import pytest

from ensue.cli.options import pop_options, signature_of
from ensue.cli.using import predict
from ensue.data.examples import PairLayout, PairSource
from ensue.data.lines import Lines
from ensue.errors import DataError
from ensue.extension import Extension, PipelineMethod, with_options
from ensue.tasks.contract.pipeline import Pipeline


class Plain(Pipeline):
    """A pipeline to which the extension adds methods."""

    def evaluate(self, location: Any, *, encoding: str = "utf-8") -> Any: ...


class Other(Pipeline):
    """A pipeline without methods of the extension."""

    def evaluate(self, location: Any, *, encoding: str = "utf-8") -> Any: ...


class Derived(Plain):
    """A subclass, which also gets the methods."""


def repeated(pipeline: Pipeline, times: int, *, mark: str = "!") -> tuple[type, int, str]:
    return type(pipeline), times, mark


def marked(pipeline: Pipeline) -> str:
    return f"marked {type(pipeline).__name__}"


@pytest.fixture(autouse=True)
def _extension(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = f"{__name__}:Plain"
    options = {"repeat": (int, "The number of repetitions."), "mark_of": (Path, "A file of marks.")}
    methods = {
        "repeated": PipelineMethod(f"{__name__}:repeated", plain),
        "marked": PipelineMethod(f"{__name__}:marked", plain, "predict", {"marks": (bool, "With marks.")}),
        "others": PipelineMethod(f"{__name__}:others", plain, "predict", options),
    }
    monkeypatch.setattr("ensue.extension.extensions", lambda: {"toy": Extension(name="toy", methods=methods)})


def test_a_method_is_added_to_a_class_and_its_subclasses() -> None:
    assert Plain(None).repeated(2, mark="?") == (Plain, 2, "?")
    assert Derived(None).repeated(3) == (Derived, 3, "!")
    for pipeline, name in ((Other(None), "repeated"), (Plain(None), "repeat"), (Plain(None), "_repeated")):
        with pytest.raises(AttributeError, match=f"'{type(pipeline).__name__}' object has no attribute '{name}'"):
            getattr(pipeline, name)


def test_options_of_a_command_call_their_method(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_options(Plain(None), "predict", {"marks": True}) == "marked Plain"
    pipeline = Plain(None)
    assert with_options(pipeline, "predict", {"marks": False, "repeat": None}) is pipeline
    for other, options in ((Plain(None), {"loud": 1}), (Other(None), {"marks": True})):
        with pytest.raises(TypeError, match=rf"{type(other).__name__}.predict has no option (loud|marks)$"):
            with_options(other, "predict", options)
    monkeypatch.setattr(Other, "with_search", None, raising=False)
    with pytest.raises(TypeError, match=r"has no option beams; for options of the search, call with_search$"):
        with_options(Other(None), "predict", {"beams": 5})


def test_a_command_has_the_options_and_passes_on_those_that_are_set() -> None:
    parameters = signature_of(predict).parameters
    assert (parameters["marks"].default, parameters["repeat"].default) == (False, None)
    assert list(parameters).index("others") == list(parameters).index("mark_of") + 1
    values = {"marks": False, "repeat": 2, "mark_of": None, "width": 4}
    assert pop_options("predict", values) == {"repeat": 2}
    assert values == {"width": 4}


def test_a_format_of_a_missing_extension_is_an_error_of_one_line() -> None:
    with pytest.raises(DataError, match=r"a.memo: the run reads the format memo, whose extension is not installed"):
        PairSource(Lines(["a\n"], "a.memo"), like=PairLayout("memo"), is_labeled=False)
