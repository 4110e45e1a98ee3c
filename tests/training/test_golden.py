"""The losses of a run's first steps, as they were when they were last looked at. They change only with the arithmetic.

A change that means to keep them (a refactoring, a faster kernel) has to. After one that means to change them, record
them anew and say so: ENSUE_RECORD=1 python -m pytest -m "slow or not slow" tests/training/test_golden.py
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from ensue.recipe import read_recipe, recipe_names
from training.cut_down import cut_down, reads_frames
from training.tiny import Recorder, run_tiny, words
from training.tiny_pairs import pairs
from training.tiny_texts import conllu, sentences

GOLDEN = Path(__file__).parent / "golden"

# the recorded pairs have sources that come twice, which were then divided by rows
REPRESENTATIVE = {
    "bert-tiny", "char-lstm", "char-lstm-large", "char-transformer", "char-zoneout", "word-lstm-awd", "word-window",
    "classify-bag", "classify-lstm", "classify-pretrained", "tag-lstm", "tag-lstm-crf", "tag-transformer-crf",
}  # fmt: skip
RECIPES = [
    pytest.param(name, marks=[] if name in REPRESENTATIVE else pytest.mark.slow)
    for name in recipe_names()
    if name != "vectors-static"  # which is not trained
]


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
    if name in ("cut-lstm", "tag-columns"):
        data = tmp_path / "treebank.conllu"
        data.write_text(conllu(sentences(60)))
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
    elif name == "sentence-vectors" or "decoder" in read_recipe(name).model_dump():
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
