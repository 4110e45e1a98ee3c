"""The public names of the package for completion and type checkers."""

import ast
import importlib
import inspect
import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import ensue
from conftest import REPOSITORY
from ensue import library
from pages import PAGES, blocks, name_of

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
    texts = {path: path.read_text(encoding="utf-8") for path in MODULES}
    assert {path for path, text in texts.items() if "def __getattr__(" in text and getattr_functions(text)} == set()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="no mypy here: make .venv/.installed-dev")
def test_a_type_checker_refuses_misspelled_names(tmp_path: Path) -> None:
    file = tmp_path / "use.py"
    file.write_text('import ensue\nensue.train\nensue.trian\nensue.lod("x")\n', encoding="utf-8")
    assert [line.split(":")[1] for line in checked("mypy", file)] == ["3", "4"]


def checked(tool: str, path: Path) -> list[str]:
    """Return the errors of a type checker in a file, or in the files of a folder."""
    command = [sys.executable, "-m", tool]
    if tool == "mypy":
        command += ["--strict", "--ignore-missing-imports", "--scripts-are-modules"]
        command += [
            "--allow-untyped-calls",
            "--disable-error-code=empty-body",
        ]  # `backward` of torch is untyped; pages show classes with empty bodies
    files = sorted(map(str, path.glob("*.py"))) if path.is_dir() else [str(path)]
    environment = {**os.environ, "MYPYPATH": str(REPOSITORY / "src")}
    result = subprocess.run([*command, *files], capture_output=True, text=True, check=False, env=environment)
    return [line for line in result.stdout.splitlines() if " error: " in line or " note: Revealed" in line]


def test_the_names_of_recipes_for_type_checkers_are_up_to_date() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs" / "recipe_types.py"))
    assert script["FILE"].read_text(encoding="utf-8") == script["text"](), "python docs/recipe_types.py"
    assert inspect.signature(ensue.train).parameters.keys() == {"recipe", "kind", *library.Options.__annotations__}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="no mypy here: make .venv/.installed-dev")
def test_type_checkers_know_pipelines_answers_and_scores(tmp_path: Path) -> None:
    file = tmp_path / "use.py"
    file.write_text(
        """import ensue
from ensue.tasks.labeling.pipeline import LabelingPipeline
reveal_type(ensue.train("char-lstm", train="a", out="b"))
mood = ensue.train("classify-bag", train=[("a", "b")], out="b")
reveal_type(mood.predict(["a"])[0].label)
reveal_type(mood.evaluate([("a", "b")]).accuracy)
reveal_type(mood.predict(["a"])[:3])
reveal_type(ensue.train("own.toml", kind=LabelingPipeline, out="b").evaluate("a").f1)
reveal_type(ensue.train("own.toml", out="b"))
ensue.train("char-lstm", trian="a", out="b")
""",
        encoding="utf-8",
    )
    lines = [line.split(":", 1)[1] for line in checked("mypy", file)]
    revealed = [line for line in lines if "Revealed" in line]
    types = [line.partition('Revealed type is "')[2].rstrip('"').replace("builtins.", "") for line in revealed]
    assert [name.rpartition(".")[2] for name in types] == [
        "LanguagePipeline", "str", "float", "Classified]", "float", "Pipeline",
    ]  # fmt: skip
    assert {line.partition(" error: ")[0] for line in lines} - {*revealed} == {"10:"}, lines


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_the_code_of_the_pages_has_types(tool: str, tmp_path: Path) -> None:
    """The blocks of a page become one file with the line numbers of the page."""
    if find_spec(tool) is None:
        pytest.skip(f"no {tool} here")
    for page in PAGES:
        lines = list[str]()
        for block in blocks(page, "python"):
            lines += ["#"] * (block.line - 1 - len(lines)) + block.text.splitlines()
        if lines:
            name = re.sub(r"\W", "_", name_of(page).removesuffix(".md"))
            (tmp_path / f"{name}.py").write_text("\n".join([*lines, ""]), encoding="utf-8")
    assert checked(tool, tmp_path) == []


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
    "ensue.tasks.sequence_to_sequence.outputs:Output",
    "ensue.tasks.vectors.word_table:Neighbor", "ensue.tasks.word_vectors.pipeline:WordVectorsPipeline",
}  # fmt: skip
"""Names of docs/api.md whose modules have moved to extensions."""


@pytest.mark.parametrize("name", sorted(FORMER))
def test_a_former_name_is_the_same_object(name: str) -> None:
    module, _, attribute = name.partition(":")
    definition = getattr(importlib.import_module(module), attribute)
    assert definition is getattr(importlib.import_module(definition.__module__), attribute)
    assert importlib.import_module(definition.__module__).__spec__.name == definition.__module__


def test_methods_of_extensions_are_documented_and_listed() -> None:
    pipeline = object.__new__(importlib.import_module("ensue.tasks.sequence_to_sequence.pipeline").SequencePipeline)
    assert {"with_glossary", "with_markup"} <= {*dir(pipeline)}
    assert pipeline.with_glossary.__doc__
    assert "sense_of" not in dir(pipeline)
    with pytest.raises(AttributeError, match="object has no attribute 'with_glossery'"):
        _ = pipeline.with_glossery


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=str)
def test_names_in_all_exist(path: Path) -> None:
    name = ".".join(path.parent.relative_to(REPOSITORY / "src").parts)
    if "__all__ = [" in path.read_text(encoding="utf-8") and name != "ensue":
        module = importlib.import_module(name)
        assert all(hasattr(module, exported) for exported in module.__all__)


def test_a_command_of_an_extension_is_imported_alone() -> None:
    program = "import ensue.extensions.annotating.command"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
