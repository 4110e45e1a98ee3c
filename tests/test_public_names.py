"""The names of the package, as completion and type checkers see them."""

import ast
import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import ensue
from conftest import REPOSITORY

MODULES = sorted((REPOSITORY / "src").rglob("*.py"))


def getattr_functions(source: str) -> list[int]:
    """Return the lines of module-level `__getattr__` functions that a type checker sees."""
    return [
        node.lineno
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
    ]


def test_completion_lists_every_public_name() -> None:
    assert set(ensue.__all__) <= set(dir(ensue))
    for name in ensue.__all__:
        assert getattr(ensue, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        ensue.trian  # type: ignore[attr-defined]  # noqa: B018


def test_no_module_hides_misspelled_names_from_type_checkers() -> None:
    assert getattr_functions("def __getattr__(name): ...\n") == [1]
    visible = {path: lines for path in MODULES if (lines := getattr_functions(path.read_text(encoding="utf-8")))}
    assert visible == {}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="no mypy here: make .venv/.installed-dev")
def test_a_type_checker_refuses_misspelled_names(tmp_path: Path) -> None:
    file = tmp_path / "use.py"
    file.write_text('import ensue\nensue.train\nensue.trian\nensue.lod("x")\n', encoding="utf-8")
    mypy = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(file)], capture_output=True, text=True, check=False
    )
    assert [line.split(":")[1] for line in mypy.stdout.splitlines() if " error: " in line] == ["3", "4"], mypy.stdout


FORMER = {
    "ensue.comparison:Comparison", "ensue.data.frames.series:Series", "ensue.data.pairs:PairSource",
    "ensue.data.word_uses:WordUse", "ensue.inspection.gradients:encoder_gradients", "ensue.metrics.frames:FrameScores",
    "ensue.metrics.symbols:SymbolScores", "ensue.sklearn:TextClassifier",
    "ensue.tasks.bidirectional_language_modeling.objectives:TwoWayScores",
    "ensue.tasks.bidirectional_language_modeling.pipeline:BidirectionalPipeline",
    "ensue.tasks.captioning.pipeline:CaptioningPipeline",
    "ensue.tasks.classification.frames:FrameClassificationPipeline",
    "ensue.tasks.drawing.pipeline:DrawingPipeline", "ensue.tasks.frame_prediction.pipeline:NextFrame",
    "ensue.tasks.frames.pipeline:FramesPipeline", "ensue.tasks.glimpses.pipeline:GlimpsesPipeline",
    "ensue.tasks.glimpses.view:ReadSeries", "ensue.tasks.labeling.frames:TaggedSeries",
}  # fmt: skip
"""Names of docs/api.md whose modules have moved to extensions."""


@pytest.mark.parametrize("name", sorted(FORMER))
def test_a_former_name_is_the_same_object(name: str) -> None:
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    assert found is getattr(importlib.import_module(found.__module__), attribute)
    assert importlib.import_module(found.__module__).__spec__.name == found.__module__


def test_methods_of_extensions_are_documented_and_listed() -> None:
    pipeline = object.__new__(importlib.import_module("ensue.tasks.sequence_to_sequence.pipeline").SequencePipeline)
    assert {"with_glossary", "with_markup"} <= {*dir(pipeline)}
    assert pipeline.with_glossary.__doc__
    assert "sense_of" not in dir(pipeline)
    with pytest.raises(AttributeError, match="object has no attribute 'with_glossery'"):
        _ = pipeline.with_glossery


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=str)
def test_what_all_lists_is_there(path: Path) -> None:
    name = ".".join(path.parent.relative_to(REPOSITORY / "src").parts)
    if "__all__ = [" in path.read_text(encoding="utf-8") and name != "ensue":
        module = importlib.import_module(name)
        assert all(hasattr(module, each) for each in module.__all__)


def test_a_command_of_an_extension_is_imported_alone() -> None:
    program = "import ensue.extensions.annotating.command"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
