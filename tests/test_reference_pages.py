"""The pages list all recipes, keys, signatures, scores and files, and no others."""

import inspect
import re
import runpy
from collections import defaultdict
from collections.abc import Callable, Iterator
from inspect import get_annotations
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

import ensue
import ensue.nn
from ensue.metrics.classification import ClassificationTally
from ensue.metrics.generation import score_texts
from ensue.metrics.labeling import LabelingTally
from ensue.metrics.scores import LanguageScores
from ensue.recipe import Recipe, recipe_names
from ensue.tasks import task_entry, task_names
from pages import BENCHMARKS_PAGE, PAGES, RECIPES_PAGE, REPOSITORY, blocks, first_cells, name_of, named, prose, public


def test_every_recipe_is_listed_and_nothing_else() -> None:
    assert sorted(first_cells(RECIPES_PAGE, "recipe")) == recipe_names()


def section(page: Path, heading: str) -> str:
    """Return the text of a page from a heading of level 2 to the next one."""
    match = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(encoding="utf-8"), re.M | re.S)
    assert match, f"{name_of(page)} has no section {heading!r}"
    return match[1]


NUMBER = r"\d[\d,]*\.\d+|\d+,\d{3}"


@pytest.mark.parametrize(("page", "heading"), [("README.md", "Numbers beside peers"), ("docs/which-tool-when.md", "")])
def test_numbers_of_the_first_pages_are_among_the_measurements(page: str, heading: str) -> None:
    """A new measurement has to change both pages."""
    path = REPOSITORY / page
    measured = set(re.findall(NUMBER, BENCHMARKS_PAGE.read_text(encoding="utf-8")))
    stated = set(re.findall(NUMBER, section(path, heading) if heading else path.read_text(encoding="utf-8")))
    assert len(stated) > 5
    assert not {number for number in stated - measured if number.replace(",", "") not in measured}


def test_every_page_is_in_the_side_bar_once() -> None:
    """A page may be listed by the toctree of any page."""
    docs = REPOSITORY / "docs"
    listed = ["index"]
    for page in PAGES:
        for block in blocks(page, "{toctree}"):
            names = [line for line in block.text.splitlines() if line and not line.startswith(":")]
            listed += [(page.parent / name).relative_to(docs).as_posix() for name in names]
    pages = [page.relative_to(docs).with_suffix("").as_posix() for page in PAGES if docs in page.parents]
    assert sorted(listed) == sorted(pages)


def test_the_side_bar_has_short_groups() -> None:
    groups = [block.text.split("\n\n") for block in blocks(REPOSITORY / "docs" / "index.md", "{toctree}")]
    assert len(groups) > 5
    assert all(":caption:" in options and len(names.splitlines()) < 10 for options, names in groups)


def test_every_key_of_a_recipe_is_explained() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs" / "recipe_keys.py"))
    page = RECIPES_PAGE.read_text(encoding="utf-8")
    assert page == script["update"](page), "python docs/recipe_keys.py brings it up to date"


def parts(schema: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a schema, its base classes, and those of all tables in it."""
    yield from (part for part in schema.__mro__ if issubclass(part, BaseModel) and part is not BaseModel)
    for field in schema.model_fields.values():
        for choice in (field.annotation, *get_args(field.annotation)):
            if isinstance(choice, type) and issubclass(choice, BaseModel):
                yield from parts(choice)


def test_every_table_of_a_recipe_is_explained() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs" / "recipe_keys.py"))
    explained = {model for _, model in script["TABLES"]}
    schemas = {part for task in task_names() for part in parts(task_entry(task).recipe)}
    for part in {part for part in schemas if part is Recipe or not issubclass(part, Recipe)}:
        assert part in explained or not list(script["own_fields"](part)), part


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    signature_parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in signature_parameters if p.name != "self"]


def as_written(arguments: str) -> list[tuple[str, Any, Any]]:
    namespace: dict[str, Any] = {}
    exec(f"def function({arguments}): ...", namespace)
    return parameters(namespace["function"])


LAYERS_PAGE = REPOSITORY / "docs" / "api-layers.md"


def test_public_names_have_docstrings() -> None:
    """Sphinx would silently leave out names without a docstring."""
    for path, members in (public() | public(LAYERS_PAGE)).items():
        for name, thing in [(path, named(path)), *((f"{path}.{name}", getattr(named(path), name)) for name in members)]:
            assert len(inspect.getdoc(thing) or "") > 10, name


def test_every_layer_is_listed_and_nothing_else() -> None:
    names = [name for name, value in vars(ensue.nn).items() if name[0] != "_" and not inspect.ismodule(value)]
    assert sorted(public(LAYERS_PAGE)) == sorted(f"ensue.nn.{name}" for name in names)


def test_functions_and_pipelines_are_listed() -> None:
    """The API page lists the functions of the package, and each task's pipeline with the methods of commands."""
    listed = public()
    assert {f"ensue.{name}" for name in ensue.__all__} - {"ensue.__version__", "ensue.nn"} <= listed.keys()
    for task in task_names():
        pipeline = task_entry(task).pipeline_class
        known = {name for base in pipeline.__mro__ for name in listed.get(f"{base.__module__}.{base.__name__}", [])}
        assert f"{pipeline.__module__}.{pipeline.__name__}" in listed, task
        usual = {"predict", "score", "generate", "embed", "neighbors", "evaluate", "inspect", "search", "protocol"}
        assert {name for name in usual if hasattr(pipeline, name)} <= known, task


SCORES: dict[str, Callable[[], dict[str, Any]]] = {
    "evaluation.md": LanguageScores(total_nats=1.0, tokens=1, characters=1).as_json,
    "labeling-scores.md": LabelingTally(spans=True).scores().as_json,
    "classification.md": ClassificationTally(["a", "b"]).scores().as_json,
    "encoder-decoders.md": lambda: score_texts(["a b"], [["a b"]], tokenize="13a", nats=[(1.0, 1)]).as_json(),
}


@pytest.mark.parametrize("page", list(SCORES))
def test_every_score_is_explained(page: str) -> None:
    assert set(first_cells(REPOSITORY / "docs" / page, "key of `evaluate --json`")) == SCORES[page]().keys()


def test_signatures_of_layers_equal_those_on_their_pages() -> None:
    """Calls in prose that contain "..." are not compared."""
    checked = set()
    for page in (REPOSITORY / "docs" / "layers").glob("*.md"):
        for name, arguments in re.findall(r"`(?:ensue\.nn\.)?([A-Z]\w+)\(([^`]*)\)`", prose(page)):
            if hasattr(ensue.nn, name) and "..." not in arguments:
                assert as_written(arguments) == parameters(getattr(ensue.nn, name)), f"{name} in {page.name}"
                checked.add(name)
    assert {"LSTM", "GRU", "Elman", "Window", "Transformer", "MultiHeadAttention", "LinearChainCRF"} <= checked
    assert {"CharacterLSTM", "CharacterCNN", "MeanPooling", "AttentionPooling"} <= checked


def test_every_file_begins_with_a_docstring() -> None:
    """A reader who lists files sees the first line of each."""
    sources = (path for path in (REPOSITORY / "src" / "ensue").rglob("*.py") if "libraries" not in path.parts)
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    assert not [name for name, text in texts.items() if text and not text.startswith('"""')]


KEPT_NAMES = Path(__file__).parent / "kept_names.txt"
"""Functions and classes (except pipelines) with their parameters, and types of results with their fields."""


def interface() -> dict[str, set[str]]:
    """Return the parameters of definitions on the API pages, except pipelines, and the attributes of their results."""
    names_of: dict[str, set[str]] = defaultdict(set)
    for path, members in (public() | public(LAYERS_PAGE)).items():
        for name, thing in [(path, named(path)), *((f"{path}.{name}", getattr(named(path), name)) for name in members)]:
            names_of[name] |= set()
            if callable(thing) and not hasattr(thing, "of"):
                names_of[name] |= {*inspect.signature(thing).parameters} - {"self"}
            for kind in returned_types(thing) if callable(thing) else ():
                names_of[f"{kind.__module__}.{kind.__name__}"] |= fields_of(kind)
    return names_of


def returned_types(function: Any) -> Iterator[type]:
    """Yield the types of the package in the return annotation of a function, also inside of other types."""
    waiting = [] if isinstance(function, type) else [get_type_hints(function).get("return")]
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if isinstance(kind, type) and kind.__module__.startswith("ensue.") and not hasattr(kind, "of"):
            yield kind


def fields_of(kind: type) -> set[str]:
    """Return the public attributes of a result type."""
    return {name for name in {*dir(kind), *get_annotations(kind)} if name[0] != "_"} - {*dir(tuple)}


def test_no_public_name_is_lost() -> None:
    """Names may be added without a change of `kept_names.txt`."""
    present, lines = interface(), KEPT_NAMES.read_text(encoding="utf-8").splitlines()
    names_by_path = {path: set(names.split()) for path, _, names in (line.partition(":") for line in lines)}
    assert names_by_path.keys() - present.keys() == set()
    assert {path: lost for path, names in names_by_path.items() if (lost := names - present[path])} == {}
    assert len(names_by_path) > 400
