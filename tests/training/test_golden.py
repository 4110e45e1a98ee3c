"""The losses of a run's first steps, as they were when they were last looked at. They change only with the arithmetic.

A change that means to keep them (a refactoring, a faster kernel) has to. After one that means to change them, record
them anew and say so: ENSUE_RECORD=1 python -m pytest tests/training/test_golden.py
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from training.tiny import MODELS, Recorder, run_tiny, tiny_recipe

GOLDEN = Path(__file__).parent / "golden"
VARIANTS: dict[str, Any] = {
    "lstm": MODELS["lstm"] | {"num_layers": 2},
    "gru": MODELS["lstm"] | {"encoder": "gru", "tied": True},
    "transformer": MODELS["transformer"],
}


@pytest.mark.parametrize("name", list(VARIANTS))
def test_the_first_losses_are_those_on_record(name: str, text: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    recipe = tiny_recipe(text, model=VARIANTS[name], steps=20, reset_state=0.1, weight_decay=0.1, schedule="cosine")
    run_tiny(recipe, tmp_path / "run", reporter=recorder)
    losses = [report.loss for report in recorder.steps]
    path = GOLDEN / f"{name}.json"
    if os.environ.get("ENSUE_RECORD"):
        path.write_text(json.dumps(losses, indent=1) + "\n")
    # other processors round differently
    assert losses == pytest.approx(json.loads(path.read_text()), rel=1e-4)
    assert losses[-1] < losses[0]
