"""The losses of a run's first steps, as they were when they were last looked at. They change only with the arithmetic.

A change that means to keep them (a refactoring, a faster kernel) has to. After one that means to change them, record
them anew and say so: ENSUE_RECORD=1 python -m pytest -m "slow or not slow" tests/training/test_golden.py
"""

import json
import os
from pathlib import Path

import pytest

from training.cut_down import TRAINED, cut_down_in
from training.tiny import Recorder, run_tiny

GOLDEN = Path(__file__).parent / "golden"

# the recorded pairs have sources that come twice, which were then divided by rows
REPRESENTATIVE = {
    "bert-tiny", "char-lstm", "char-lstm-large", "char-transformer", "char-zoneout", "word-lstm-awd", "word-window",
    "classify-bag", "classify-lstm", "classify-pretrained", "tag-lstm", "tag-lstm-crf", "tag-transformer-crf",
}  # fmt: skip
RECIPES = [pytest.param(name, marks=[] if name in REPRESENTATIVE else pytest.mark.slow) for name in TRAINED]


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("in_torch_operations")
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_begins_as_on_record(name: str, tmp_path: Path) -> None:
    recorder = Recorder()
    run_tiny(cut_down_in(tmp_path, name), tmp_path / "run", reporter=recorder)
    losses = [report.loss for report in recorder.steps]
    path = GOLDEN / f"{name}.json"
    if os.environ.get("ENSUE_RECORD"):
        path.write_text(json.dumps(losses) + "\n")
    # other processors round differently
    assert losses == pytest.approx(json.loads(path.read_text()), rel=1e-4)
