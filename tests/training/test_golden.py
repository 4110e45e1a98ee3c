"""The losses of the first steps of every recipe equal recorded ones.

A refactoring or a faster kernel must not change them. After an intended change of the arithmetic, record them again:
ENSUE_RECORD=1 python -m pytest -m "slow or not slow" tests/training/test_golden.py
"""

import json
import os
from pathlib import Path

import pytest

from training.cut_down import TRAINED, cut_down_in
from training.tiny import Recorder, run_tiny

GOLDEN = Path(__file__).parent / "golden"

# some sources of the recorded pairs occur twice, so their recipes divide by rows
REPRESENTATIVE = {
    "bert-tiny", "char-lstm", "char-lstm-large", "char-transformer", "char-zoneout", "word-lstm-awd", "word-window",
    "classify-bag", "classify-lstm", "classify-pretrained", "tag-lstm", "tag-lstm-crf", "tag-transformer-crf",
}  # fmt: skip
RECIPES = [pytest.param(name, marks=[] if name in REPRESENTATIVE else pytest.mark.slow) for name in TRAINED]


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("in_torch_operations")
@pytest.mark.parametrize("name", RECIPES)
def test_the_first_losses_of_every_recipe_equal_recorded_ones(name: str, tmp_path: Path) -> None:
    recorder = Recorder()
    run_tiny(cut_down_in(tmp_path, name), tmp_path / "run", reporter=recorder)
    losses = [report.loss for report in recorder.steps]
    path = GOLDEN / f"{name}.json"
    if os.environ.get("ENSUE_RECORD"):
        path.write_text(json.dumps(losses) + "\n")
    # other processors round differently
    assert losses == pytest.approx(json.loads(path.read_text()), rel=1e-4)
