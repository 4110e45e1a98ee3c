"""The losses of a run's first steps, as they were when they were last looked at. They change only with the arithmetic.

A change that means to keep them (a refactoring, a faster kernel) has to. After one that means to change them, record
them anew and say so: ENSUE_RECORD=1 python -m pytest -m "slow or not slow" tests/training/test_golden.py
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.recipe import Recipe, read_recipe, recipe_names
from ensue.tasks.frames.recipe import FramesRecipe
from training.tiny import Recorder, run_tiny, words
from training.tiny_pairs import pairs

GOLDEN = Path(__file__).parent / "golden"

SHORT: dict[str, Any] = {
    "train.steps": 4, "train.validations": 1, "train.precision": "float32", "train.batch_size": 4, "encoder.d_model": 8,
}  # fmt: skip
# the recorded pairs have sources that come twice, which were then divided by rows
OF_PAIRS: dict[str, Any] = {
    "train.batch_tokens": 200, "train.samples": 0, "tokens.d_embedding": 8, "decoder.d_model": 8,
    "tokenizer.max_size": 300, "data.division": "rows",
}  # fmt: skip
OF_THE_KIND: dict[str, dict[str, Any]] = {
    "char": {"train.segment_length": 8, "train.sample_tokens": 0, "tokens.d_embedding": 6},
    "word": {"train.segment_length": 8, "train.sample_tokens": 0, "tokens.d_embedding": 8},
    "bert": {"tokenizer.max_size": 300, "encoder.context": 16, "encoder.num_heads": 2, "encoder.num_layers": 2},
    "bpe": {"tokenizer.max_size": 300, "train.sample_tokens": 0, "tokens.d_embedding": 8},
    "tag": {"train.batch_tokens": 60, "features.d_words": 8},
    "classify": {"train.batch_tokens": 60},
    **dict.fromkeys(("translate", "transduce", "summarize", "answer"), OF_PAIRS),
    "vectors": {"tokenizer.min_count": 1, "vectors.d_words": 8, "train.batch_size": 200},
    "cbow": {"vectors.subsample": 0.0},
    "skipgram": {"vectors.subsample": 0.0},
    "fasttext": {"vectors.subsample": 0.0, "vectors.ngram_buckets": 50},
    "bag": {"head.ngram_buckets": 500},
    "elmo": {
        "train.segment_length": 8,
        "encoder.d_cell": 11,
        "words.filters": [[1, 3], [2, 4]],
        "words.d_character": 5,
        "head.sampled": 7,
    },
    "context2vec": {"train.segment_length": 8, "words.d_words": 6, "head.d_context": 5, "head.d_hidden": 7},
    "transformer": {"encoder.num_heads": 2, "encoder.context": 8},
    "clockwork": {"encoder.d_model": 12},
    "projected": {"encoder.d_cell": 11},
    "draw": {"decoder.d_model": 8, "canvas.glimpses": 3, "canvas.read": 2, "canvas.write": 2},
    "glimpses": {"glimpses.size": 3, "glimpses.convolutions": [2], "glimpses.view_convolutions": [2]},
    "caption": {
        "train.samples": 0,
        "tokens.d_embedding": 8,
        "decoder.d_model": 8,
        "grid.channels": [4],
        "grid.halvings": 1,
    },
    "vrnn": {"latent.size": 3, "latent.d_hidden": 5},
    "storn": {"latent.size": 3},
}
"""By the parts of a recipe's name."""
REPRESENTATIVE = {
    "bert-tiny", "char-lstm", "char-lstm-large", "char-transformer", "char-zoneout", "word-lstm-awd", "word-window",
    "classify-bag", "classify-lstm", "classify-pretrained", "tag-lstm", "tag-lstm-crf", "tag-transformer-crf",
}  # fmt: skip
RECIPES = [pytest.param(n, marks=[] if n in REPRESENTATIVE else pytest.mark.slow) for n in recipe_names()]


def cut_down(name: str, data: Path, origin: Path | None = None) -> Recipe:
    """The recipe of that name with a few steps of few features."""
    settings = {"data.train": str(data)} | SHORT
    for part in name.split("-"):
        settings |= OF_THE_KIND.get(part, {})
    if part == "transformer" and "decoder.d_model" in settings:
        settings["decoder.num_heads"] = 2
    if name in ("classify-bag", "classify-pairs", "summarize-lm", "caption-lstm") or name.startswith("vectors"):
        del settings["encoder.d_model"]
    if name.startswith("vectors"):  # an update of their own, in one precision
        del settings["train.precision"]
    if name == "summarize-lm":
        settings["decoder.num_heads"] = 2
    if name.endswith("-pretrained"):
        del settings["encoder.d_model"]
        settings |= {"encoder.from": str(origin), "encoder.dropout": 0.0, "features.d_words": 0}
    if reads_frames(name):
        settings.pop("features.d_words", None)
    return read_recipe(name, settings)


def reads_frames(name: str) -> bool:
    """Whether a recipe is that of a model of frames."""
    return isinstance(read_recipe(name), FramesRecipe)


def sensors(*, a_label_each: bool) -> str:
    """Two features of twelve series; with `a_label_each` each frame has a label, and else each series."""
    rows = [
        f"{series},{time / 9},{series % 3},{'ab'[(time if a_label_each else series) % 2]}"
        for series in range(12)
        for time in range(2 + series % 4)
    ]
    return "\n".join(["series,x,y,label", *rows, ""])


@pytest.fixture(scope="module")
def running_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("golden") / "text.txt"
    path.write_text(words(200))
    return path


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("in_torch_operations")
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_begins_as_on_record(
    name: str, running_text: Path, names: Path, topics: Path, tmp_path: Path
) -> None:
    recorder = Recorder()
    data = {"tag": names, "classify": topics}.get(name.partition("-")[0], running_text)
    if reads_frames(name):
        data = tmp_path / "frames.csv"
        data.write_text(sensors(a_label_each=name.startswith("tag")))
    if name == "read-glimpses":
        data = tmp_path / "strips.npz"
        images = np.random.default_rng(0).random((12, 5, 8))
        np.savez(data, frames=images, labels=["a", "b a", "c"] * 4)
    if name.startswith("draw"):
        data = tmp_path / "images.npy"
        np.save(data, np.random.default_rng(0).random((12, 5, 4)))
    elif name.startswith("caption"):
        data = tmp_path / "images.npz"
        texts = [f"{'abc'[number % 3]} {'de'[number % 2]}" for number in range(12)]
        np.savez(data, frames=np.random.default_rng(0).random((12, 5, 4)), labels=texts)
    elif "decoder" in read_recipe(name).model_dump():
        data = tmp_path / "pairs.tsv"
        data.write_text(pairs(60))
    if name.endswith("-pretrained"):
        run_tiny(cut_down("bert-tiny", running_text), tmp_path / "origin")
    run_tiny(cut_down(name, data, tmp_path / "origin"), tmp_path / "run", reporter=recorder)
    losses = [report.loss for report in recorder.steps]
    path = GOLDEN / f"{name}.json"
    if os.environ.get("ENSUE_RECORD"):
        path.write_text(json.dumps(losses) + "\n")
    # other processors round differently
    assert losses == pytest.approx(json.loads(path.read_text()), rel=1e-4)
