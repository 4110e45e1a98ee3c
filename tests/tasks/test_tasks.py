"""The table of tasks, and the law that only the folder of a task names it."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from ensue.errors import RecipeError
from ensue.extension import pipeline_methods
from ensue.recipe import Recipe
from ensue.tasks import DEFAULT_TASK, TASKS, task_entry, task_names

SOURCE = Path(ensue.__file__).parent
OUTSIDE = ["cli", "console", "runs", "training", "recipe", "inspection", "library.py", "quickstart.py"]


def names_of_tasks(tree: ast.AST) -> list[str]:
    """Return strings that are a task's name, and imports from its folder, except those for type checkers."""
    folders = tuple(module.partition(":")[0] for module in TASKS.values())
    names = []
    typed = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in (node for node in ast.walk(tree) if id(node) not in typed):
        if isinstance(node, ast.Constant) and node.value in task_names():
            names.append(str(node.value))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(folders):
            names.append(str(node.module))
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.startswith(folders)]
    return names


def test_only_the_folder_of_a_task_names_it() -> None:
    files = [file for path in OUTSIDE for file in sorted((SOURCE / path).rglob("*.py")) or [SOURCE / path]]
    assert len(files) > 40
    assert {file.name: names for file in files if (names := names_of_tasks(ast.parse(file.read_text())))} == {}


@pytest.mark.parametrize(
    "line",
    [
        'if task == "labeling": pass',
        "from ensue.tasks.classification.job import ClassificationJob",
        "def f():\n    import ensue.tasks.language_modeling.job",
    ],
)
def test_a_name_of_a_task_is_detected(line: str) -> None:
    assert len(names_of_tasks(ast.parse(line))) == 1


@pytest.mark.parametrize("name", task_names())
def test_an_entry_of_the_table_loads_its_classes(name: str) -> None:
    entry = task_entry(name)
    assert issubclass(entry.recipe, Recipe)
    assert entry.recipe.model_fields["task"].default == name
    assert entry.commands
    for loaded in (entry.parts_class, entry.job_class, entry.pipeline_class):
        assert loaded.__module__.startswith(("ensue.extensions.", TASKS.get(name, "-").partition(":")[0]))
    generates = "generate_into" if entry.pipeline_class.generates_files else "generate"
    methods = {"predict": "prediction_lines", "score": "score_lines", "generate": generates}
    pipeline = entry.pipeline_class
    added = {name for name, method in pipeline_methods().items() if method.is_of(pipeline)}
    assert all(hasattr(pipeline, methods.get(name, name)) or name in added for name in entry.commands)


@pytest.mark.parametrize(
    ("task", "command", "options"),
    [
        ("language-modeling", "generate", {"top_p", "min_p", "seed", "samples", "beams", "no_repeat_ngram"}),
        ("sequence-to-sequence", "evaluate", {"beams", "length_penalty", "max_tokens", "with", "format", "compare"}),
        ("masked-language-modeling", "predict", {"n_best", "shard"}),
        ("labeling", "predict", {"vectors", "splitter", "format"}),
    ],
)
def test_options_equal_the_arguments_of_methods(task: str, command: str, options: set[str]) -> None:
    entry = task_entry(task)
    assert options <= entry.options(command)
    assert ("format" in entry.options("predict")) == (task in ("sequence-to-sequence", "labeling"))


def test_the_default_task_exists() -> None:
    assert DEFAULT_TASK in TASKS


@given(st.one_of(st.text(), st.none(), st.integers(), st.lists(st.text()), st.sampled_from(["labelling", ""])))
def test_an_unknown_task_is_an_error_of_one_line(name: object) -> None:
    with pytest.raises(RecipeError, match="no task") as caught:
        task_entry(name)
    assert "known: language-modeling, labeling, classification" in str(caught.value)
