"""The pages say all there is: recipes, keys, signatures, scores, files; and nothing that is not there."""

import inspect
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from pydantic import BaseModel

import ensue.library
import ensue.nn
from ensue.metrics.classification import ClassificationTally
from ensue.metrics.generation import score_texts
from ensue.metrics.labeling import LabelingTally
from ensue.metrics.language import LanguageScores
from ensue.recipe import Recipe, recipe_names
from ensue.tasks import TASKS, task_entry
from ensue.tasks.bidirectional_language_modeling.pipeline import BidirectionalPipeline
from ensue.tasks.captioning.pipeline import CaptioningPipeline
from ensue.tasks.classification import pipeline as classification_pipeline
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.contextual import ContextualPipeline
from ensue.tasks.drawing.pipeline import DrawingPipeline
from ensue.tasks.frame_classification.pipeline import FrameClassificationPipeline
from ensue.tasks.frame_labeling.pipeline import FrameLabelingPipeline
from ensue.tasks.frame_prediction.pipeline import FramePredictionPipeline
from ensue.tasks.frames.pipeline import FramesPipeline
from ensue.tasks.glimpses.pipeline import GlimpsesPipeline
from ensue.tasks.labeling import tagged_sentence
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.tasks.masked_language_modeling.pipeline import MaskedLanguagePipeline
from ensue.tasks.pipeline import Pipeline, Predictor
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
from ensue.tasks.sequence_to_sequence.writer import Writer
from ensue.tasks.shards import WHOLE
from ensue.tasks.text_vectors import TextVectors
from ensue.tasks.word_vectors.pipeline import WordVectorsPipeline
from pages import (
    BENCHMARKS_PAGE,
    PAGES,
    README,
    RECIPES_PAGE,
    REPOSITORY,
    blocks,
    first_cells,
    name_of,
    prose,
)


def test_every_recipe_is_listed_and_nothing_else() -> None:
    assert sorted(first_cells(RECIPES_PAGE, "recipe")) == recipe_names()


def section(page: Path, heading: str) -> str:
    """The text of a page from a heading of the second level to the next one."""
    match = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(encoding="utf-8"), re.M | re.S)
    assert match, f"{name_of(page)} has no section {heading!r}"
    return match[1]


NUMBER = r"\d[\d,]*\.\d+|\d+,\d{3}"


@pytest.mark.parametrize(("page", "heading"), [("README.md", "Numbers beside peers"), ("docs/index.md", "In numbers")])
def test_numbers_of_the_first_pages_are_among_the_measurements(page: str, heading: str) -> None:
    """They are said twice; a new measurement has to change both."""
    measured = set(re.findall(NUMBER, BENCHMARKS_PAGE.read_text(encoding="utf-8")))
    said = set(re.findall(NUMBER, section(REPOSITORY / page, heading)))
    assert len(said) > 5
    assert not {number for number in said - measured if number.replace(",", "") not in measured}


def test_every_page_is_in_the_index() -> None:
    index = REPOSITORY / "docs" / "index.md"
    listed = "\n".join(block.text for block in blocks(index, "{toctree}")).splitlines()
    pages = [
        page.relative_to(index.parent).with_suffix("").as_posix() for page in PAGES if index.parent in page.parents
    ]
    assert sorted([line for line in listed if line and not line.startswith(":")] + ["index"]) == sorted(pages)


def test_every_key_of_a_recipe_is_explained() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs" / "recipe_keys.py"))
    page = RECIPES_PAGE.read_text(encoding="utf-8")
    assert page == script["written"](page), "python docs/recipe_keys.py brings it up to date"


def parts(schema: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A schema and the tables that stand in it, with the classes that they are derived from."""
    yield from (part for part in schema.__mro__ if issubclass(part, BaseModel) and part is not BaseModel)
    for field in schema.model_fields.values():
        for choice in (field.annotation, *get_args(field.annotation)):
            if isinstance(choice, type) and issubclass(choice, BaseModel):
                yield from parts(choice)


def test_every_table_of_a_recipe_is_explained() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs" / "recipe_keys.py"))
    explained = {model for _, model in script["TABLES"]}
    found = {part for task in TASKS for part in parts(task_entry(task).recipe)}
    for part in {part for part in found if part is Recipe or not issubclass(part, Recipe)}:
        assert part in explained or not list(script["own_fields"](part)), part


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in found if p.name != "self"]


def as_written(arguments: str) -> list[tuple[str, Any, Any]]:
    namespace: dict[str, Any] = {"WHOLE": WHOLE}
    exec(f"def function({arguments}): ...", namespace)
    return parameters(namespace["function"])


INTERFACE = {
    "": SimpleNamespace(**vars(tagged_sentence) | vars(classification_pipeline)),
    "ensue": ensue,
    "ensue.recipe": sys.modules["ensue.recipe"],
    "Pipeline": Pipeline,
    "TextVectors": TextVectors,
    "Predictor": Predictor,
    "ContextualPipeline": ContextualPipeline,
    "LanguagePipeline": LanguagePipeline,
    "LabelingPipeline": LabelingPipeline,
    "ClassificationPipeline": ClassificationPipeline,
    "FramesPipeline": FramesPipeline,
    "FrameClassificationPipeline": FrameClassificationPipeline,
    "FrameLabelingPipeline": FrameLabelingPipeline,
    "FramePredictionPipeline": FramePredictionPipeline,
    "GlimpsesPipeline": GlimpsesPipeline,
    "DrawingPipeline": DrawingPipeline,
    "SequencePipeline": SequencePipeline,
    "Writer": Writer,
    "CaptioningPipeline": CaptioningPipeline,
    "MaskedLanguagePipeline": MaskedLanguagePipeline,
    "BidirectionalPipeline": BidirectionalPipeline,
    "WordVectorsPipeline": WordVectorsPipeline,
}
API_PAGE = REPOSITORY / "docs" / "api.md"


def documented() -> list[tuple[str, str, str]]:
    """Owner, name and arguments of what the headings of docs/api.md describe."""
    headings = re.findall(r"^### `([\w.]+)\((.*)\)`$", prose(API_PAGE), re.MULTILINE)
    return [(*name.rpartition(".")[::2], arguments) for name, arguments in headings]


def test_the_interface_is_as_written() -> None:
    """The headings of docs/api.md are the signatures."""
    assert len(documented()) > 25
    for owner, name, arguments in documented():
        assert as_written(arguments) == parameters(getattr(INTERFACE[owner], name)), f"{owner}.{name}"


@pytest.mark.parametrize("owner", [owner for owner in INTERFACE if owner.endswith("Pipeline")])
def test_every_method_of_a_pipeline_is_written_down(owner: str) -> None:
    """With those of every pipeline, which are written down once."""
    methods = inspect.getmembers(INTERFACE[owner], inspect.isfunction)
    bases = {base.__name__ for base in INTERFACE[owner].__mro__}
    written = {name for other, name, _ in documented() if other in (owner, *bases)}
    assert {name for name, _ in methods if not name.startswith("_")} == written


SCORES: dict[str, dict[str, Any]] = {
    "evaluation.md": LanguageScores(total_nats=1.0, tokens=1, characters=1).as_json(),
    "labeling.md": LabelingTally(spans=True).scores().as_json(),
    "classification.md": ClassificationTally(["a", "b"]).scores().as_json(),
    "encoder-decoders.md": score_texts(["a b"], [["a b"]], tokenize="13a", nats_per_token=1.0).as_json(),
}


@pytest.mark.parametrize("page", list(SCORES))
def test_every_score_is_explained(page: str) -> None:
    assert set(first_cells(REPOSITORY / "docs" / page, "key of `evaluate --json`")) == SCORES[page].keys()


def test_layers_are_as_written() -> None:
    """So are the calls of layers in the prose of their pages, where nothing is left out of them."""
    checked = set()
    for page in (REPOSITORY / "docs" / "layers").glob("*.md"):
        for name, arguments in re.findall(r"`(?:ensue\.nn\.)?([A-Z]\w+)\(([^`]*)\)`", prose(page)):
            if hasattr(ensue.nn, name) and "..." not in arguments:
                assert as_written(arguments) == parameters(getattr(ensue.nn, name)), f"{name} in {page.name}"
                checked.add(name)
    assert {"LSTM", "GRU", "Elman", "Window", "Transformer", "MultiHeadAttention", "LinearChainCRF"} <= checked
    assert {"CharacterLSTM", "CharacterCNN", "MeanPooling", "AttentionPooling"} <= checked


def test_every_file_says_what_it_is() -> None:
    """The first line of each file is what `head -1` shows to somebody who looks around."""
    sources = (path for path in (REPOSITORY / "src" / "ensue").rglob("*.py") if "libraries" not in path.parts)
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    assert not [name for name, text in texts.items() if text and not text.startswith('"""')]


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 180
