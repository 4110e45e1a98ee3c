"""Runs of subwords as ONNX: masked language models, fine-tuned layers, and layers of other runs as features."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ensue
from ensue.extensions.exporting.exporting import export_run
from ensue.recipe import validate_recipe
from training.classifiers import TEXTS, write_files
from training.taggers import TAGGED
from training.tiny import run_tiny, small_recipe
from training.tiny_masked import FEW, masked_recipe, small_origins
from training.tiny_pairs import pair_recipe, sources_of
from training.tiny_pairs import pairs as source_and_target
from training.tiny_texts import ENCODERS, FEATURES, layer_tables

from .conftest import Program
from .scores import assert_same_scores

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install ensue[onnx])")
pytest.importorskip("onnx", reason="onnx is not installed (pip install ensue[onnx])")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
TRAIN = {"steps": 24, "batch_size": 8, "learning_rate": 0.05, "validations": 1, "precision": "float32"}
LONG = [word for sentence in TAGGED[:5] for word in sentence.words]
"""More words than the context of the pretrained models."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data and the pretrained runs."""
    folder = tmp_path_factory.mktemp("subwords")
    text = folder / "text.txt"
    write_files(folder)
    (folder / "source.tsv").write_text(source_and_target(80))
    recipes = {
        **small_origins(text),
        "wordpiece": masked_recipe(text, train=FEW, tokenizer={"kind": "wordpiece", "lowercase": True}),
        "rotary": masked_recipe(
            text, train=FEW, encoder={"positions": "rotary", "norm": "pre", "norm_input": False, "norm_epsilon": 1e-5}
        ),
        "translator": pair_recipe(folder / "source.tsv", train=FEW),
    }
    for name, recipe in recipes.items():
        run_tiny(recipe, folder / name)
    return folder


def trained(folder: Path, task: str, name: str, out: Path, **tables: Any) -> Any:
    """Train a run, from the run `origin` if any, and return its pipeline."""
    if origin := tables.pop("origin", ""):
        tables["encoder"] = {"from": str(folder / origin), **tables.get("encoder", {})}
    else:
        tables |= layer_tables(ENCODERS["lstm"])
    run_tiny(small_recipe(task, folder / name, tables, **TRAIN), out)
    return ensue.load(out, device="cpu")


MASKED = ("masked", "wordpiece", "segments", "rotary")


@pytest.mark.parametrize("name", MASKED)
def test_the_program_of_a_masked_language_model_fills_masks_and_embeds_texts(
    name: str, folder: Path, tmp_path: Path, program: Program
) -> None:
    """One of the texts is longer than the context of the model, and one is empty."""
    note, needs = export_run(folder / name, tmp_path / "out", "onnx")
    assert "predict.py needs numpy onnxruntime tokenizers: pip install -r " in needs
    pipeline: Any = ensue.load(folder / name, device="cpu")
    texts = ["the [MASK] sees", "[MASK][MASK] and [MASK].", "a [MASK]", "Anna's [MASK]s salt", "[MASK] [MASK]"]
    expected = "".join(f"{answer}\n" for answer in pipeline.predict(texts))
    assert program(tmp_path / "out", "".join(f"{text}\n" for text in texts)) == expected
    texts = ["Anna sees [CLS] the bird", " ".join(LONG), "", "é"]
    check_vectors(program(tmp_path / "out", "".join(f"{text}\n" for text in texts), "--embed"), texts, pipeline)
    with pytest.raises(SystemExit, match=r"a text of 2 tokens with 0 \[MASK\]; expected at least one") as caught:
        program(tmp_path / "out", "a a\n")
    assert "\n" not in str(caught.value)
    assert "maximum difference from the model" in note


def check_vectors(lines: str, texts: Sequence[str], pipeline: Any) -> None:
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["text"] for row in rows] == list(texts)
    np.testing.assert_allclose([row["vector"] for row in rows], pipeline.embed(texts), atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "first", "last", "max"])
def test_the_program_of_a_model_without_a_head_embeds_texts(
    pooling: str, folder: Path, tmp_path: Path, program: Program
) -> None:
    sentences = {"pooling": pooling, "unit_length": True}
    recipe = masked_recipe(folder / "text.txt", train=FEW, sentences=sentences)
    run_tiny(recipe, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out", "onnx")
    texts = ["the bird", " ".join(LONG), ""]
    content = "".join(f"{text}\n" for text in texts)
    printed = program(tmp_path / "out", content, "--embed")
    check_vectors(printed, texts, ensue.load(tmp_path / "run", device="cpu"))
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "out" / "config.json").write_text(json.dumps(settings | {"fills": False}))
    assert program(tmp_path / "out", content) == printed


def check_tagger(run: Path, out: Path, program: Program) -> None:
    export_run(run, out, "onnx")
    lines = [" ".join(sentence.words) for sentence in TAGGED[:20]]
    lines[3:3] = ["", " ".join(LONG), "Zürich isn't 3,000 km"]
    expected = []
    for sentence in ensue.load(run, device="cpu").predict(lines):
        expected.append("".join(f"{word.text}\t{word.label}\n" for word in sentence) + "\n")
    assert program(out, "".join(f"{line}\n" for line in lines)) == "".join(expected)
    assert len({line.split("\t")[-1] for line in "".join(expected).split("\n")}) > 2


CRF: dict[str, Any] = {"head": {"kind": "crf"}}
LEARNS: dict[str, Any] = {"train": {"steps": 80}}
TUNED_TAGGERS: dict[str, dict[str, Any]] = {
    "first": {"origin": "masked", **CRF},
    "mean": {"origin": "wordpiece", "encoder": {"pooling": "mean"}},
    "last": {"origin": "words", **LEARNS},
    "characters": {"origin": "characters", "encoder": {"pooling": "mean"}, **LEARNS},
    "bpe": {"origin": "bpe", **CRF},
    "repeats": {"origin": "segments", "head": {"kind": "crf", "repeats": True}, "train": {"learning_rate": 0.02}},
    "features": {"origin": "masked", "features": {"d_words": 5, "characters": "lstm"}},
    "and the layers of another": {"origin": "masked", "features": {"contextual": ["words"]}},
}


def with_places(folder: Path, tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables with the paths of the feature runs in the folder."""
    features = dict(tables.get("features", {}))
    if "contextual" in features:
        features["contextual"] = [str(folder / name) for name in features["contextual"]]
        return tables | {"features": features}
    return tables


@pytest.mark.parametrize("kind", TUNED_TAGGERS)
def test_programs_of_taggers_over_tuned_layers_print_the_labels_of_ensue(
    kind: str, folder: Path, tmp_path: Path, program: Program
) -> None:
    trained(folder, "labeling", "names.txt", tmp_path / "run", **with_places(folder, TUNED_TAGGERS[kind]))
    check_tagger(tmp_path / "run", tmp_path / "out", program)


TUNED_CLASSIFIERS: dict[str, dict[str, Any]] = {
    "cls": {"origin": "masked", "head": {"pooling": ["first"]}},
    "mean and max": {"origin": "wordpiece", "head": {"pooling": ["mean", "max"], "d_hidden": 5}},
    "causal": {"origin": "bpe", "head": {"pooling": ["last"]}},
    "cells": {"origin": "characters", "head": {"pooling": ["last", "mean"]}},
    "features": {"origin": "masked", "features": {"d_words": 5}},
    "features behind": {"origin": "bpe", "features": {"d_words": 5}, "head": {"pooling": ["last", "max"]}},
    "bag": {"origin": "masked", "head": {"pooling": ["mean"], "ngrams": 2}},
    "pairs": {"origin": "segments", "head": {"pooling": ["first"]}, "data": {"max_tokens": 3}},
    "causal pairs": {"origin": "words", "head": {"pooling": ["last"], "ngrams": 1}},
}
CONTEXTUAL_CLASSIFIERS: dict[str, dict[str, Any]] = {
    "texts": {"features": {"contextual": ["masked"]}},
    "pairs": {"features": {"contextual": ["wordpiece"], "contextual_pooling": "first"}},
    "several pairs": {"features": {"contextual": ["words", "masked"]}},
    "segments": {
        "features": {"contextual": ["masked"]}, "data": {"segment_tokens": 3}, "directions": {"bidirectional": False}
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", [*TUNED_CLASSIFIERS, *(f"contextual {kind}" for kind in CONTEXTUAL_CLASSIFIERS)])
def test_programs_of_classifiers_over_layers_of_other_runs_print_the_answers_of_ensue(
    kind: str, folder: Path, tmp_path: Path, program: Program
) -> None:
    tables = CONTEXTUAL_CLASSIFIERS.get(kind.removeprefix("contextual ")) if kind.startswith("contextual ") else None
    tables = with_places(folder, tables or TUNED_CLASSIFIERS[kind])
    data = "pairs.tsv" if "pairs" in kind else "topics.tsv"
    pipeline = trained(folder, "classification", data, tmp_path / "run", **tables)
    export_run(tmp_path / "run", tmp_path / "out", "onnx")
    texts = [text for text, _ in TEXTS[:12]]
    inputs: Any = [*texts, "é  salt\t", " the choir", " ".join(LONG)] if data == "topics.tsv" else list(pairwise(texts))
    lines = [text if isinstance(text, str) else "\t".join(text) for text in inputs]
    printed = program(tmp_path / "out", "".join(f"{line}\n" for line in lines)).splitlines()
    for line, answer in zip(printed, pipeline.predict(inputs), strict=True):
        label, share = line.split("\t")[:2] if data == "topics.tsv" else line.split("\t")[2:]
        assert label == answer.label
        assert float(share) == pytest.approx(answer.probabilities[label], abs=2e-4)


CONTEXTUAL_TAGGERS: dict[str, dict[str, Any]] = {
    "masked": {"contextual": ["masked"], "contextual_at": "both"},
    "side by side": {"contextual": ["wordpiece"], "contextual_mix": "concatenate", "contextual_pooling": "first"},
    "some layers": {"contextual": ["segments"], "contextual_layers": [0, -1], "contextual_pooling": "last"},
    "maxima": {"contextual": ["masked"], "contextual_pooling": "max"},
    "words": {"contextual": ["words"]},
    "characters": {"contextual": ["characters"]},
    "bpe": {"contextual": ["bpe"], "contextual_at": "first-layer"},
    "translator": {"contextual": ["translator"]},
    "several": {"contextual": ["masked", "characters", "rotary"]},
    "alone": {"contextual": ["masked"], "d_words": 0},
}


@pytest.mark.parametrize("kind", CONTEXTUAL_TAGGERS)
def test_programs_of_taggers_with_contextual_features_print_the_labels_of_ensue(
    kind: str, folder: Path, tmp_path: Path, program: Program
) -> None:
    tables = with_places(folder, {"features": FEATURES | CONTEXTUAL_TAGGERS[kind]})
    trained(folder, "labeling", "names.txt", tmp_path / "run", **tables, **CRF, **LEARNS)
    check_tagger(tmp_path / "run", tmp_path / "out", program)


@pytest.mark.parametrize("origins", [["masked"], ["words", "translator"], ["bpe"]])
def test_programs_of_encoder_decoders_with_contextual_features_print_the_outputs_of_ensue(
    origins: list[str], folder: Path, tmp_path: Path, program: Program
) -> None:
    features = {"contextual": [str(folder / origin) for origin in origins]}
    run_tiny(pair_recipe(folder / "source.tsv", features=features), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out", "onnx")
    sources = [*sources_of(source_and_target(12, seed=5)), "the zebra, sees", ""]
    expected = "".join(f"{output}\n" for output in ensue.load(tmp_path / "run", device="cpu").predict(sources))
    assert program(tmp_path / "out", "".join(f"{source}\n" for source in sources)) == expected
    assert len(set(expected.splitlines())) > 1


WORDS: dict[str, dict[str, Any]] = {
    "characters": {"kind": "characters", "d_character": 4, "filters": [[1, 4], [2, 4]], "longest": 6},
    "table": {"kind": "table", "d_words": 5},
}
HEADS: dict[str, dict[str, Any]] = {"softmax": {"kind": "softmax"}, "context": {"kind": "context", "d_context": 7}}


def both_ways(folder: Path, out: Path, words: str, head: str) -> Any:
    """Train a bidirectional language model, or one of contexts."""
    document = {
        "task": "bidirectional-language-modeling",
        "data": {"train": str(folder / "text.txt")},
        "tokenizer": {"kind": "words", "lowercase": head == "context"},
        "words": WORDS[words],
        "encoder": {"kind": "projected" if head == "softmax" else "lstm", "d_model": 6, "num_layers": 2},
        "head": HEADS[head],
        "train": {
            **FEW, "batch_size": 4, "segment_length": 8, "precision": "float32", "carry_state": head != "context",
        },
    }  # fmt: skip
    run_tiny(validate_recipe(document, where="both ways"), out)
    return ensue.load(out, device="cpu")


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("words", WORDS)
def test_programs_of_bidirectional_models_print_scores_vectors_and_labels_of_ensue(
    words: str, head: str, folder: Path, tmp_path: Path, program: Program
) -> None:
    """The labels are those of a tagger with the layers as features."""
    pipeline = both_ways(folder, tmp_path / "run", words, head)
    export_run(tmp_path / "run", tmp_path / "out", "onnx")
    texts = ["Anna sees the bird", "", "a Zürich \U0001f600", " ".join(LONG)]
    content = "".join(f"{text}\n" for text in texts)
    check_vectors(program(tmp_path / "out", content, "--embed"), texts, pipeline)
    if head == "softmax":
        (tmp_path / "text.txt").write_text(content)
        assert_same_scores(
            program(tmp_path / "out", content).splitlines(), list(pipeline.score_lines(str(tmp_path / "text.txt")))
        )
    features = FEATURES | {"contextual": [str(tmp_path / "run"), str(folder / "masked")], "contextual_at": "both"}
    trained(folder, "labeling", "names.txt", tmp_path / "tagger", features=features, **CRF, **LEARNS)
    check_tagger(tmp_path / "tagger", tmp_path / "graphs", program)
