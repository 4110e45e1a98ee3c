"""Exported files contain the words of a user unchanged, even words that are spelled like a key of a template."""

import csv
import html
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ensue.console.tables import show_scores
from ensue.errors import EnsueError
from ensue.extensions.exporting.c.printing import c_string
from ensue.extensions.exporting.c.writing import INTERFACES, fill_template
from ensue.extensions.exporting.web.writing import PAGES
from ensue.extensions.frames.classification import FrameClassificationPipeline, FrameClassifierParts
from ensue.extensions.frames.labeling import FrameLabelingPipeline, FrameTaggerParts
from ensue.extensions.hub.pushing import make_card_text
from ensue.extensions.serving.routes import _hide_paths
from ensue.inspection.page import render
from ensue.models.build_text import build_language_model
from ensue.recipe.tables import TokenizerRecipe
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.text.labels import Classes, Labels
from ensue.text.tokenizers import train_tokenizer
from ensue.version import package_file
from extensions.exporting.c.carried import COMPILERS, compiled, put
from extensions.exporting.c.classifiers import classifier
from extensions.exporting.c.printing import files_of
from extensions.exporting.c.transducers import transducer
from extensions.frames.small_frames import built, recipe_of, statistics_of
from inspection.small import tagger
from layer_tables import layers

TEMPLATES = [
    path for path in Path(str(package_file("extensions/exporting"))).rglob("*.*") if path.suffix not in (".py", ".pyc")
]
KEYS = sorted({key for path in TEMPLATES for key in re.findall("@[A-Z_]+@", path.read_text("utf-8"))})
ODD = ("NAME", "UNAMED", "%s", "{}", "{{x}}", "*/", "</script>", "<b>", '"', "\\", "??/", "$x^$", "'", "[red]", "_PART")
HOSTILE = (*KEYS, *ODD)
"""Columns, labels and words that have a meaning in templates, comments, strings or markup."""
WORDS = TokenizerRecipe(kind="words", splitter="whitespace")


def language_model() -> LanguagePipeline:
    tokenizer = train_tokenizer("words", [" ".join(HOSTILE)], splitter="whitespace")
    torch.manual_seed(1)
    model = build_language_model(
        **layers(kind="lstm", d_embedding=4, d_model=4), vocabulary_size=len(tokenizer.symbols)
    )
    return LanguagePipeline(model, tokenizer)


def text_classifier() -> Any:
    model = classifier(labels=len(HOSTILE))
    model.labels = Classes(HOSTILE)
    return model


def frames(task: str) -> Any:
    """Return a model with hostile columns and labels."""
    *columns, group, series, labels, time = HOSTILE
    shape = statistics_of(len(columns), columns=tuple(columns))
    recipe = recipe_of(task, data={"train": "x", "group": group, "series": series, "labels": labels, "time": time})
    if task == "frame-classification":
        return built(FrameClassifierParts(shape, Classes(HOSTILE)), recipe, FrameClassificationPipeline)
    return built(FrameTaggerParts(shape, Labels(HOSTILE, scheme=None, tag_scheme=None)), recipe, FrameLabelingPipeline)


MODELS: dict[str, Callable[[], Any]] = {
    "language-modeling": language_model,
    "classification": text_classifier,
    "labeling": lambda: tagger(labels=Labels(HOSTILE, scheme=None, tag_scheme=None)),
    "sequence-to-sequence": lambda: transducer(names=[2], source=WORDS, target=WORDS, columns=ODD),
    "frame-classification": lambda: frames("frame-classification"),
    "frame-labeling": lambda: frames("frame-labeling"),
}


def exported_files(task: str) -> dict[str, bytes]:
    return files_of(MODELS[task](), "model")


def test_each_interface_of_c_is_tested_and_has_a_page() -> None:
    assert {make().describe().kinds for make in MODELS.values()} == INTERFACES.keys() == PAGES.keys()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", MODELS)
def test_hostile_words_stay_unchanged_in_c(task: str) -> None:
    files = exported_files(task)
    weights = files.pop("model.weights")
    text = "".join(content.decode() for content in files.values())
    for word in ODD[:6] if task == "sequence-to-sequence" else HOSTILE:  # as many as its lemmas
        assert word.encode() in weights or c_string(word) in text
    for word in sorted(HOSTILE, key=len, reverse=True):
        text = text.replace(c_string(word), "")
    assert not re.findall("NAME|@[A-Z_]+@", text)


@pytest.mark.slow
@pytest.mark.skipif(not COMPILERS, reason="neither gcc nor clang is installed")
@pytest.mark.parametrize("task", ["frame-classification", "frame-labeling"])
def test_a_program_reads_columns_of_any_name(task: str, tmp_path: Path) -> None:
    model, folder = MODELS[task](), put(exported_files(task), tmp_path)
    compiled(folder, "-o", "say", "example.c", "model.c")
    with (folder / "table.csv").open("w", newline="") as file:
        table, numbers = csv.writer(file), np.random.default_rng(0)
        table.writerow(HOSTILE)
        for row in range(6):
            table.writerow([*numbers.normal(size=len(HOSTILE) - 4).round(3), "g", f"s{row // 3}", "NAME", row % 3])
    output = subprocess.run(["./say", "table.csv"], cwd=folder, capture_output=True, check=True, text=True).stdout
    assert output == "".join(model.prediction_lines(str(folder / "table.csv")))


@pytest.mark.parametrize("task", MODELS)
def test_hostile_words_stay_unchanged_in_pages(task: str) -> None:
    description = MODELS[task]().describe()
    interface = PAGES[description.kinds]
    numbers = interface.parameters(description.input)
    facts = dict.fromkeys(["name", "what", "about", "license", "version", "style", "script"], "".join(HOSTILE))
    page = str(
        render(
            "extensions/exporting/web/pages/page.html",
            body=f"extensions/exporting/web/pages/{interface.name}.html",
            **facts,
            **numbers,
        )
    )
    assert page.count("<script") == page.count("</script>") == 1
    assert html.unescape(page).count("".join(HOSTILE)) == 8
    if "table" in numbers:
        (table,) = re.findall("data-table='([^']*)'", page)
        assert json.loads(html.unescape(table)) == json.loads(json.dumps(numbers["table"]))


def test_keys_in_values_are_not_replaced() -> None:
    assert fill_template("NAME @A@", {"NAME": "@A@", "@A@": "NAME \\1"}) == "@A@ NAME \\1"


def test_a_pushed_card_replaces_each_file_name_once() -> None:
    names = {"/data/a": "/data/b", "/data/b": "\\1 c"}
    assert make_card_text("x `/data/a` `/data/b`", Path("/run"), "hf:me/x", names) == "x `/data/b` `\\1 c`"


def test_a_message_of_a_server_keeps_words_that_contain_the_name_of_a_run() -> None:
    model: Any = SimpleNamespace(name="model", pipeline=SimpleNamespace(run="a"))
    assert _hide_paths(EnsueError('no vector for the word "banana"'), model) == 'no vector for the word "banana"'
    assert _hide_paths(EnsueError('a: reads "a", not banana/a'), model) == 'model: reads "a", not banana/a'


def test_names_of_scores_are_not_interpreted_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    scores: Any = SimpleNamespace(as_json=lambda: {"[red]": 1.0, "confusion": {}})
    show_scores(scores)
    assert "[red]" in capsys.readouterr().out
