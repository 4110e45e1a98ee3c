"""Texts of three topics, and functions to load classifiers and compare their scores."""

from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.tasks.classification.pipeline import ClassificationPipeline
from training.taggers import TAGGED
from training.tiny_texts import columns, documents, tsv

TEXTS = documents(120)


def write_files(folder: Path) -> None:
    """Write tagged sentences, texts, pairs of texts, and all of their words as plain text."""
    text = [" ".join(sentence.words) for sentence in TAGGED] + [text for text, _ in TEXTS]
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in text))
    (folder / "names.txt").write_text(columns(TAGGED))
    (folder / "topics.tsv").write_text(tsv(TEXTS))
    pairs = [f"{labels[0]}\t{a}\t{b}" for (a, labels), (b, _) in zip(TEXTS, TEXTS[3:], strict=False)]
    (folder / "pairs.tsv").write_text("label\tsentence1\tsentence2\n" + "\n".join(pairs) + "\n")


def load(run: Path, **options: Any) -> ClassificationPipeline:
    return ensue.load(run, device="cpu", **options, kind=ClassificationPipeline)


def assert_same_scores(scores: dict[str, Any], expected: dict[str, Any] | None) -> None:
    """Assert equal scores; only the calibration error may differ by the rounding of other batches."""
    assert expected is not None
    assert scores.pop("calibration_error") == pytest.approx(expected["calibration_error"], abs=1e-6)
    assert scores == {name: value for name, value in expected.items() if name != "calibration_error"}
