"""Runs as ONNX: their programs print the output of ensue with only onnxruntime, numpy and tokenizers."""

import ast
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.errors import DataError, EnsueError
from ensue.extensions.exporting.exporting import export_run
from ensue.recipe.tables import TokenizerRecipe
from training import tiny_pairs
from training.tiny import run_tiny, tiny_recipe, words
from training.tiny_texts import classifying, columns, documents, fasttext, pairs, sentences, tagging, tsv, vector_file

from .conftest import NEIGHBORS, Program, forget_modules

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install ensue[onnx])")
pytest.importorskip("onnx", reason="onnx is not installed (pip install ensue[onnx])")

import onnx

from ensue.extensions.exporting.onnx.writing import MODULES_FOLDER, program_files
from extensions.exporting.onnx.scores import assert_same_scores

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PROGRAMS = sorted((Path(ensue.__file__).parent / "extensions").rglob("programs/*.py"))
MAX_LINES = 120
"""The maximum number of lines of a program."""


def language_model(folder: Path, model: Any = "lstm", tokens: str = "characters") -> Path:
    (folder / "text.txt").write_text(words(400))
    recipe = tiny_recipe(folder / "text.txt", model=model)
    tokenizer = TokenizerRecipe(kind=tokens, splitter="simple")  # type: ignore[arg-type]
    run_tiny(recipe.model_copy(update={"tokenizer": tokenizer}), folder / "run")
    return folder / "run"


def check_language_model(run: Path, folder: Path, program: Program) -> None:
    export_run(run, folder / "out", "onnx")
    (folder / "other.txt").write_text(text := words(30, seed=1) + "é \t.")
    pipeline = ensue.load(run, device="cpu")
    assert_same_scores(
        program(folder / "out", text).splitlines(), list(pipeline.score_lines(str(folder / "other.txt")))
    )
    written = "".join(pipeline.generate("the cat", max_tokens=30, temperature=0))
    assert program(folder / "out", "", "--generate", "30", "the cat") == written + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["lstm", "window", "gru", "clockwork", "grid", "qrnn", "transformer", "bpe", "words", "bytes"]
)
def test_programs_of_language_models_print_the_scores_and_texts_of_ensue(
    kind: str, tmp_path: Path, program: Program
) -> None:
    if kind in ("bpe", "words", "bytes"):
        run = language_model(tmp_path, tokens=kind)
    elif kind in ("lstm", "transformer"):
        run = language_model(tmp_path, kind)
    else:
        more = {"window": {"size": 3}, "clockwork": {"periods": [1, 2]}}.get(kind, {})
        run = language_model(tmp_path, {"kind": kind, "d_embedding": 6, "d_model": 8, "num_layers": 2, **more})
    check_language_model(run, tmp_path, program)


def tagger(folder: Path, scheme: Any = "bio", **changes: Any) -> Path:
    (folder / "train.txt").write_text(columns(sentences(60), scheme))
    run_tiny(tagging(folder / "train.txt", **changes), folder / "run")
    return folder / "run"


def check_tagger(run: Path, folder: Path, program: Program) -> None:
    export_run(run, folder / "out", "onnx")
    lines = [" ".join(sentence.words) for sentence in sentences(8, seed=1)]
    lines.insert(3, "")
    (folder / "other.txt").write_text(text := "\n".join([*lines, "Zürich isn't 3,000 km", "Zu\u0308rich किताब", ""]))
    pipeline = ensue.load(run, device="cpu")
    expected = "".join(pipeline.prediction_lines(str(folder / "other.txt"), format="text"))
    assert program(folder / "out", text) == expected
    assert len({label.split("\t")[-1] for label in expected.splitlines()}) > 2
    three_best = pipeline.with_search(n_best=3)
    for searching, *options in ((pipeline, "--json"), (three_best, "--json", "--n-best=3")):
        of_ensue = searching.prediction_lines(str(folder / "other.txt"), format="text", as_json=True)
        for ours, theirs in zip(program(folder / "out", text, *options).splitlines(), of_ensue, strict=True):
            same_json(ours, theirs)
    shown = "".join(three_best.prediction_lines(str(folder / "other.txt"), format="text"))
    without = re.compile(r"^\d\.\d{4}\t", re.MULTILINE).sub  # the last digit may differ
    assert without("", program(folder / "out", text, "--n-best", "3")) == without("", shown)


def same_json(ours: str, theirs: str) -> None:
    """Check that texts, labels and places are equal, and that probabilities differ by 1e-5 at most."""
    numbers: list[float] = []

    def without(value: Any) -> Any:
        if isinstance(value, float):
            return numbers.append(value)
        if isinstance(value, dict):
            return {key: without(part) for key, part in value.items()}
        return list(map(without, value)) if isinstance(value, list) else value

    assert without(json.loads(ours)) == without(json.loads(theirs))
    assert numbers[: len(numbers) // 2] == pytest.approx(numbers[len(numbers) // 2 :], abs=1.1e-5)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained tagger of names."""
    features = {"characters": "lstm", "affixes": 2, "d_shape": 4}
    return tagger(tmp_path_factory.mktemp("names"), head={"kind": "crf"}, features=features)


def test_the_program_of_a_tagger_with_a_crf_prints_the_labels_of_ensue(
    names: Path, tmp_path: Path, program: Program
) -> None:
    check_tagger(names, tmp_path, program)


TAGGERS: dict[str, dict[str, Any]] = {
    "repeats": {"head": {"kind": "crf", "repeats": True}},
    "filters": {"encoder": "gru", "features": {"characters": "cnn"}},
    "transformer": {"encoder": "transformer", "head": {"kind": "viterbi"}},
    "iob1": {"scheme": "iob1", "head": {"kind": "crf"}},
    "ioe1": {"scheme": "ioe1", "head": {"kind": "crf"}},
    "ioe2": {"scheme": "ioe2", "encoder": "window"},
    "iobes": {"scheme": "iobes", "encoder": "elman"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TAGGERS)
def test_programs_of_taggers_print_the_labels_of_ensue(kind: str, tmp_path: Path, program: Program) -> None:
    check_tagger(tagger(tmp_path, **{"steps": 40} | TAGGERS[kind]), tmp_path, program)


@pytest.mark.slow
def test_kept_vectors_are_exported_and_words_without_a_vector_are_reported(tmp_path: Path) -> None:
    kinds, vectors = vector_file(tmp_path)
    features = {"vectors": str(vectors), "kept_vectors": 17, "characters": "cnn"}
    run_tiny(tagging(kinds, features=features), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out", "onnx")
    text = "noun1 Noun15\nnoun12 noun19 v\u00e9rb1\n"
    hidden = "import runpy, sys; sys.modules['ensue'] = sys.modules['torch'] = None; sys.path.insert(0, 'out')"
    command = [sys.executable, "-c", f"{hidden}; runpy.run_path('out/predict.py', run_name='__main__')"]
    completed = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=tmp_path)
    pipeline = ensue.load(tmp_path / "run", device="cpu")
    expected = pipeline.predict([line.split() for line in text.splitlines()])
    assert completed.stdout == "".join("".join(f"{w.text}\t{w.label}\n" for w in answer) + "\n" for answer in expected)
    unknown = "1 of 5 words (20%) have characters that the training data do not have"
    assert completed.stderr == f"2 of 5 words (40%) have no pretrained vector; {unknown}\n"
    assert pipeline.lacking() == (
        f"2 of 5 words (40%) have no pretrained vector, neither in the run nor with --vectors; {unknown}; "
        "4 of 5 words (80%) are not known from the training data"
    )


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [False, True])
def test_programs_of_taggers_read_the_sentences_of_a_document_together(
    repeats: bool, tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = "-DOCSTART- X O\n\n"
    (tmp_path / "train.txt").write_text(
        "".join(document + columns(sentences(12, seed=seed)) + "\n" for seed in range(6))
    )
    head = {"kind": "crf", "repeats": repeats}
    run_tiny(tagging(tmp_path / "train.txt", head=head, data={"context_words": 20}), tmp_path / "run")
    check_tagger(tmp_path / "run", tmp_path, program)
    tagged = sentences(15, seed=9)
    (tmp_path / "test.txt").write_text(document + columns(tagged))
    pipeline: Any = ensue.load(tmp_path / "run", device="cpu")
    labels = [answer.labels for answer in pipeline.label(pipeline.source(tmp_path / "test.txt"))]
    assert len(labels) == len(tagged)
    monkeypatch.syspath_prepend(str(tmp_path / "out"))
    predict = runpy.run_path(str(tmp_path / "out" / "predict.py"))["predict"]
    forget_modules(monkeypatch)
    assert predict([list(sentence.words) for sentence in tagged], document=True) == labels


@pytest.mark.parametrize("program_of", PROGRAMS, ids=lambda path: path.stem)
def test_programs_are_short_and_import_few_packages(program_of: Path) -> None:
    package = Path(ensue.__file__).parent.parent
    files = program_files([".".join(program_of.relative_to(package).with_suffix("").parts)])
    assert len(files["predict.py"].splitlines()) <= MAX_LINES
    assert not any(re.search(r"^ *(from|import) ensue\b", text, re.MULTILINE) for text in files.values())
    nodes = [node for text in files.values() for node in ast.parse(text).body]  # imports in functions are optional
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module).partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    others = {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names}
    assert others <= {"numpy", "onnxruntime", "tokenizers", MODULES_FOLDER, *NEIGHBORS}


def test_invalid_formats_options_and_paths_are_refused(names: Path, tmp_path: Path) -> None:
    with pytest.raises(EnsueError, match=r'no format "onx"; did you mean "onnx"\?'):
        export_run(names, tmp_path / "out", "onx")
    with pytest.raises(EnsueError, match="int8 is for the format onnx"):
        export_run(names, tmp_path / "out", "huggingface", int8=True)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"not empty \(found file\); choose another out"):
        export_run(names, tmp_path, "onnx")
    with pytest.raises(DataError, match="is a file; out names a directory"):
        export_run(names, tmp_path / "file", "onnx")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_int8_gives_nearly_the_same_tags(names: Path, tmp_path: Path, program: Program) -> None:
    """The graph has at most a third of the size."""
    text = "".join(" ".join(sentence.words) + "\n" for sentence in sentences(40, seed=2))
    outputs = {}
    for int8 in (False, True):
        out = tmp_path / str(int8)
        note, needs = export_run(names, out, "onnx", int8=int8)
        assert needs == f"{out}/predict.py needs numpy onnxruntime: pip install -r {out}/requirements.txt"
        assert (out / "requirements.txt").read_text() == "numpy\nonnxruntime\n"
        assert f"{(out / 'model.onnx').stat().st_size:,} bytes; maximum difference" in note
        outputs[int8] = program(out, text).splitlines()
    same = sum(a == b for a, b in zip(outputs[False], outputs[True], strict=True))
    assert same > 0.95 * len(outputs[False])
    model = onnx.load(tmp_path / "True" / "model.onnx")
    assert sum(node.op_type == "DynamicQuantizeLSTM" for node in model.graph.node) == 4


def test_packages_that_are_missing_are_named(names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.extensions.exporting.onnx.find_spec", lambda name: None)
    with pytest.raises(EnsueError, match=r'ONNX needs the package onnx, which is not installed: pip install "ensue'):
        export_run(names, tmp_path / "out", "onnx")


CLASSIFIERS: dict[str, dict[str, Any]] = {
    "lstm": {"head": {"pooling": ["last"]}},
    "segments": {
        "head": {"pooling": ["max", "attention"]},
        "data": {"segment_tokens": 3},
        "encoder": {"kind": "gru", "d_model": 8, "bidirectional": False},
    },
    "several": {"head": {"pooling": ["mean"]}, "encoder": "window"},
    "pairs": {"head": {"pooling": ["max"], "d_hidden": 5}, "features": {"characters": "cnn"}},
    "bag": {"head": {"pooling": [], "ngrams": 2, "ngram_buckets": 999}, "encoder": "none"},
    "bag and transformer": {"head": {"pooling": ["mean"], "ngrams": 3}, "encoder": "transformer"},
    "bag of characters": {
        "head": {"pooling": [], "ngrams": 1, "character_ngrams": 4, "ngram_buckets": 999},
        "encoder": "none",
    },
    "bag of pairs": {
        "head": {"pooling": [], "ngrams": 2, "character_ngrams": 3, "ngram_buckets": 999},
        "encoder": "none",
    },
    "ends of long texts": {"head": {"pooling": ["last"]}, "data": {"max_tokens": 5, "keep": "both"}},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*a text is empty", "ignore:.*no word of the training data")
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_programs_of_classifiers_print_the_labels_and_probabilities_of_ensue(
    kind: str, tmp_path: Path, program: Program
) -> None:
    is_pair, is_several = "pairs" in kind, kind == "several"
    content = pairs(60) if is_pair else fasttext(documents(60, most_labels=3)) if is_several else tsv(documents(60))
    train = tmp_path / ("train.txt" if is_several else "train.tsv")
    train.write_text(content)
    run_tiny(classifying(train, **CLASSIFIERS[kind]), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out", "onnx")
    texts = [document.text for document in documents(12, seed=1)]
    lines = [f"{a}\t{b}" for a, b in zip(texts, reversed(texts), strict=True)] if is_pair else [*texts, "", "é"]
    other = tmp_path / ("other.tsv" if is_pair else "other.txt")
    text = "".join(f"{line}\n" for line in lines)
    other.write_text("sentence1\tsentence2\n" * is_pair + text)
    pipeline = ensue.load(tmp_path / "run", device="cpu")
    expected = list(pipeline.prediction_lines(str(other), format=None if is_pair else "plain"))
    printed = program(tmp_path / "out", text).splitlines()
    place = 3 if is_pair else 1
    for ours, theirs in zip("".join(expected).splitlines()[is_pair:], printed, strict=True):
        our_cells, their_cells = ours.split("\t"), theirs.split("\t")
        for a, b in zip(our_cells.pop(place).split(","), their_cells.pop(place).split(","), strict=True):
            assert float(b) == pytest.approx(float(a), abs=2e-4)
        assert our_cells == their_cells


LSTM = {"kind": "lstm", "d_model": 16}
TRANSLATORS: dict[str, dict[str, Any]] = {
    "transformer": {"train": {"seed": 1}},
    "attention behind cells": {"encoder": LSTM, "decoder": LSTM, "attention": {"kind": "bilinear"}},
    "input feeding": {"encoder": LSTM, "decoder": LSTM, "attention": {"kind": "additive", "feeding": True}},
    "no attention": {"encoder": LSTM, "decoder": {"kind": "gru", "d_model": 16}, "attention": {"kind": "none"}},
    "copying": {
        "encoder": LSTM, "decoder": LSTM, "head": {"copying": True}, "tokenizer": {"kind": "words", "max_size": 9},
    },
    "coverage": {"encoder": LSTM, "decoder": LSTM, "head": {"copying": True, "coverage": 1.0}},
    "one text": {"encoder": None},
    "subwords": {"tokenizer": {"kind": "bpe", "max_size": 300}, "search": {"beams": 2, "no_repeat_ngram": 2}},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRANSLATORS)
def test_programs_of_translators_print_the_outputs_of_ensue(kind: str, tmp_path: Path, program: Program) -> None:
    (tmp_path / "train.tsv").write_text(tiny_pairs.pairs(80))
    run_tiny(tiny_pairs.pair_recipe(tmp_path / "train.tsv", **TRANSLATORS[kind]), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out", "onnx")
    sources = [line.split("\t")[0] for line in tiny_pairs.pairs(12, seed=5).splitlines()]
    sources += ["the zebra, sees", "", " \u3000"]
    expected = "".join(f"{output}\n" for output in ensue.load(tmp_path / "run", device="cpu").predict(sources))
    assert program(tmp_path / "out", "".join(f"{source}\n" for source in sources)) == expected
    assert len(set(expected.splitlines())) > 1
