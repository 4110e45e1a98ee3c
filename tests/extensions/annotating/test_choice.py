"""The choice of texts to label: uncertain and different texts first, in formats of annotation tools."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.data.compact_texts import Ragged
from ensue.data.examples import DocumentSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError, EnsueError
from ensue.extensions.annotating.choice import draw_diverse, text_vectors
from ensue.extensions.annotation_formats.writers import FORMATS, Prediction, as_json_text
from ensue.library import load
from kept_runs.make import unpacked

SPANS = Prediction(("Anna 😀 sees Lima",), (), ((0, 4, "PER", None), (12, 16, "LOC", None)), 0.5)
LABELED = Prediction(("good",), ("pos",), None, 0.75)
PAIR = Prediction(("one", "two"), ("neg",), None, 0.75)


def text(format: str, rows: list[Prediction], names: list[str]) -> str:
    return "".join(as_json_text((FORMATS[format](row, names) for row in rows), is_array=format == "label-studio"))


def test_equal_texts_are_chosen_last() -> None:
    texts = np.eye(4, dtype=np.float32)[[0, 0, 1, 2, 3]]
    residuals = np.array([[0.5], [0.5], [0.4], [0.0], [0.3]], np.float32)
    for seed in range(5):
        order = draw_diverse(texts, residuals, 5, seed)
        assert order[0] in (0, 1)
        assert order[-1] == 1 - order[0]
        assert sorted(order) == [*range(5)]
        assert order == draw_diverse(texts, residuals, 9, seed)


def test_texts_are_drawn_by_k_means_plus_plus() -> None:
    """The probability of a text is proportional to the squared distance of its outer product to the first one."""
    generator = np.random.default_rng(0)
    texts, residuals = (
        generator.standard_normal((6, 3)).astype(np.float32),
        generator.standard_normal((6, 2)).astype(np.float32),
    )
    outer = np.einsum("nd,nk->ndk", texts, residuals).reshape(6, -1).astype(np.float64)
    first = int((outer**2).sum(1).argmax())
    distances = ((outer - outer[first]) ** 2).sum(1)
    seconds = [draw_diverse(texts, residuals, 2, seed)[1] for seed in range(500)]
    shares = np.bincount(seconds, minlength=6) / 500
    assert np.abs(shares - distances / distances.sum()).max() < 0.06


@pytest.mark.parametrize("d", [0, 8])
def test_vectors_of_texts_have_unit_length_and_depend_on_the_words(d: int) -> None:
    words = np.random.default_rng(1).standard_normal((7, d)).astype(np.float32)
    values = np.array([0, 1, 0, 1, 0, 2, 3, 4, 0, 5, 6])
    vectors = text_vectors(words, Ragged(values, np.array([0, 2, 4, 8, 11])))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(vectors[0], vectors[1], atol=1e-5)
    assert vectors[0] @ vectors[2] < 0.9
    empty = text_vectors(words, Ragged(values[:2], np.array([0, 0, 2])))
    assert np.isfinite(empty).all()


def test_accepted_predictions_of_each_tool_are_read_as_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def tagged() -> list[tuple[str, ...]]:
        source = SentenceSource(path)
        return [source.format.labels(sentence) for sentence in source]

    right = [("B-PER", "O", "O", "B-LOC")]
    path.write_text(text("doccano", [SPANS], []))
    assert tagged() == right
    path.write_text(text("prodigy", [SPANS], []))
    assert tagged() == right
    path.write_text(text("doccano", [LABELED], ["pos", "neg"]))
    assert [document.labels for document in DocumentSource(str(path))] == [("pos",)]
    path.write_text(text("prodigy", [LABELED], ["pos", "neg"]))
    source = DocumentSource(str(path), DocumentChoice(texts=("text",), labels="accept"))
    assert [(document.texts, document.labels) for document in source] == [(("good",), ("pos",))]
    path = tmp_path / "a.json"
    path.write_text(accepted(text("label-studio", [SPANS], [])))
    assert tagged() == right
    path.write_text(accepted(text("label-studio", [LABELED, LABELED], [])))
    assert [document.labels for document in DocumentSource(str(path))] == [("pos",)] * 2
    (task,) = json.loads(text("label-studio", [PAIR], []))
    assert task["data"] == {"text1": "one", "text2": "two"}
    assert json.loads(text("jsonl", [LABELED], [])) == {"text": "good", "prediction": ["pos"], "probability": 0.75}


def accepted(text: str) -> str:
    """Return the export of Label Studio after each prediction has been accepted as an annotation."""
    tasks: list[dict[str, Any]] = json.loads(text)
    for task in tasks:
        (prediction,) = task.pop("predictions")
        task["annotations"] = [{"result": prediction["result"], "was_cancelled": False}]
    return json.dumps(tasks)


WORDS = [["Ann", "Novak", "does", "n't", "like", f"Oslo{n}", "(", "today", ")."] for n in range(4)]
PLAIN = [f"Ann Novak doesn't like Oslo{n} (today)." for n in range(4)]
DIVIDED = {
    "columns": ("a.conll", lambda n: "".join(f"{word} O\n" for word in WORDS[n]) + "\n"),
    "conllu": (
        "a.conllu",
        lambda n: "".join(f"{i}\t{word}\t" + "\t".join("_" * 8) + "\n" for i, word in enumerate(WORDS[n], 1)) + "\n",
    ),
    "tokens": ("a.jsonl", lambda n: json.dumps({"tokens": WORDS[n], "labels": ["O"] * 9}) + "\n"),
    "spans": ("a.jsonl", lambda n: json.dumps({"text": PLAIN[n], "spans": []}) + "\n"),
    "text": ("a.txt", lambda n: PLAIN[n] + "\n"),
    "text, other blanks": ("a.txt", lambda n: " ".join(WORDS[n]) + "  \n"),
}
WRITTEN = {
    "tsv": ("a.tsv", lambda n: "label\ttext\n" * (n == 1) + f"x\t{PLAIN[n]}\n"),
    "csv": ("a.csv", lambda n: "label,text\n" * (n == 1) + f'x,"{PLAIN[n]}"\n'),
    "json": ("a.jsonl", lambda n: json.dumps({"text": PLAIN[n] + "\n", "label": "x"}) + "\n"),
    "fasttext": ("a.txt", lambda n: f"__label__x {' '.join(WORDS[n])}\n"),
    "text": ("a.txt", lambda n: PLAIN[n] + "\n"),
}
FILES = [("tag-lstm-crf", *of) for of in DIVIDED.values()] + [("classify-lstm", *of) for of in WRITTEN.values()]


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs")
    for run in ("tag-lstm-crf", "classify-lstm"):
        unpacked(run, folder)
    return {run: load(folder / run) for run in ("tag-lstm-crf", "classify-lstm")}


@pytest.mark.parametrize(("run", "name", "line"), FILES, ids=[*DIVIDED, *(f"{name} of texts" for name in WRITTEN)])
def test_texts_that_are_labeled_are_not_chosen_again(
    tmp_path: Path, run: str, name: str, line: Any, pipelines: dict[str, Any]
) -> None:
    """In each format, also if a tokenizer has divided the words."""
    pool, labeled = tmp_path / "pool.txt", tmp_path / name
    pool.write_text("".join(f"{text}\n" for text in PLAIN))
    labeled.write_text(line(1) + line(3))
    choices = pipelines[run].choose(pool, 4, without=[labeled])
    assert sorted(choice.texts for choice in choices) == [(PLAIN[0],), (PLAIN[2],)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("run", ["tag-lstm-crf", "classify-lstm"])
def test_a_run_chooses_new_texts_and_repeats_the_choice_of_a_seed(tmp_path: Path, run: str) -> None:
    unpacked(run, tmp_path)
    pipeline = load(tmp_path / run)
    pool = tmp_path / "pool.txt"
    pool.write_text("".join(f"Anna number {n} sees Lima .\n" for n in range(20)) + "Anna number 3 sees Lima .\n")
    labeled = tmp_path / "known.txt"
    labeled.write_text("Anna number 3 sees Lima .\nAnna number 4 sees Lima .\n")
    choices = pipeline.choose(pool, 18, without=[labeled])
    assert sorted(int(choice.texts[0].split()[2]) for choice in choices) == [*range(3), *range(5, 20)]
    again = [[choice.texts for choice in pipeline.choose(pool, 4, seed=1)] for _ in range(2)]
    assert again[0] == again[1]
    with pytest.raises(DataError, match="no texts remain"):
        pipeline.choose(labeled, 2, without=[labeled])
    for count, seed in ((0, 0), (-2, 0), (2, -1)):
        with pytest.raises(EnsueError, match="expected a whole number from"):
            pipeline.choose(pool, count, seed=seed)
