"""The exported program divides texts into the windows that the fine-tuned layers read."""

import json
import runpy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ensue
from ensue.extensions.exporting.huggingface.tokenizer_export import library_files
from ensue.tasks.texts.export_encoder import SubwordExportEncoder
from ensue.tasks.texts.framing import Framing
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.wordpiece import WordPieceTokenizer

PROGRAM = Path(ensue.__file__).parent / "extensions" / "exporting" / "onnx" / "programs" / "subwords.py"
TEXTS = [["the", "house"], [], ["\x00", "houses"], ["a", "red", "birdhouse", "sees", "[MASK]"] * 5, ["the"]]


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer.train(["the house a red bird sees houses birds "] * 5, max_size=40)


def dense(places: Any, weights: Any, slots: Any, rows: int, number: int, positions: int) -> Any:
    """Return the weight of each position (W · S) in each slot (B, T)."""
    weights_of_positions = np.zeros((rows * number, positions))
    np.add.at(weights_of_positions, (slots, places), weights)
    return weights_of_positions.reshape(rows, number, positions)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("pooling", "has_text_vector", "is_pair"),
    [("first", True, False), ("last", False, False), ("mean", True, False), ("mean", True, True)],
)
def test_the_program_divides_texts_into_the_windows_of_the_subword_reader(
    pooling: str, has_text_vector: bool, is_pair: bool, is_causal: bool, tokenizer: WordPieceTokenizer, tmp_path: Path
) -> None:
    begin, end = (1,), (2,) if has_text_vector or not is_causal else ()
    framing = Framing(
        tokenizer=tokenizer, begin=begin, between=(3,), end=(2,), unknown=(4,), is_causal=is_causal,
        max_positions=60 if is_pair else 12,
    )  # fmt: skip
    texts = [TEXTS, [*TEXTS[1:], ["red"]]] if is_pair else [TEXTS]
    expected = SubwordReader(framing, pooling=pooling, has_text_vector=has_text_vector).texts(*texts)
    batch = expected.batch(np.arange(len(TEXTS)), torch.device("cpu"))
    shutil.copy(PROGRAM, tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(library_files(tokenizer)))
    portable = SubwordExportEncoder(
        layers=lambda *arguments: [], framing=replace(framing, end=end), vocabulary_size=tokenizer.vocabulary_size,
        pooling=pooling, is_joint=True, has_text_vector=has_text_vector,
    )  # fmt: skip
    inputs = runpy.run_path(str(tmp_path / "subwords.py"))["Reader"](portable.settings).inputs(*texts)
    real = np.ones(batch.ids.shape, bool) if batch.mask is None else batch.mask.numpy()
    assert inputs["lengths_of_windows"] == real.sum(1).tolist()
    np.testing.assert_array_equal(inputs["ids"], batch.ids)
    if batch.segments is not None:
        np.testing.assert_array_equal(inputs["segments"], batch.segments)
    rows, number = batch.size
    weights = np.ones(len(batch.places)) if batch.weights is None else batch.weights.numpy()
    shares = dense(batch.places, weights, batch.slots, rows, number, real.size)
    words = np.repeat(np.arange(rows * inputs["places"].shape[1]), inputs["places"].shape[2])
    theirs = dense(
        inputs["places"].ravel(), inputs["weights"].ravel(), words, rows, inputs["places"].shape[1], real.size
    )
    for row, text_position in enumerate(inputs["own"]):
        count = sum(len(part[row]) for part in texts)
        np.testing.assert_allclose(
            theirs[row, :count], shares[row, batch.first_word_slot : batch.first_word_slot + count]
        )
        if has_text_vector:
            slot = count if is_causal else 0
            assert shares[row, slot].nonzero()[0].tolist() == [text_position]
