"""Every recipe on a CUDA device learns, goes on and answers as on a CPU: python -m pytest -m gpu tests

Without a CUDA device they are skipped. No machine of CI has one.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import ensue
from ensue.recipe import Recipe, validate_recipe
from training.cut_down import TRAINED, cut_down_in
from training.resuming import At, interrupt
from training.tiny import Recorder, run_tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),  # drivers and CUDA's libraries have some of their own
]
DEVICE = "cuda"
DRAWING = {"draw", "storn", "vrnn"}
"""Their losses are of latent variables, which each device draws by itself."""


def certain(table: Any) -> Any:
    """The recipe's tables with nothing that is drawn while it trains."""
    if isinstance(table, dict):
        return {key: 0.0 if is_chance(key, value) else certain(value) for key, value in table.items()}
    return table


def is_chance(key: str, value: Any) -> bool:
    names = ("dropout", "zoneout", "weight_drop", "noise", "shift", "stretch", "filter", "reset_state")
    return isinstance(value, float) and key.startswith(names)


def without_chance(recipe: Recipe) -> Recipe:
    return validate_recipe(certain(recipe.model_dump(by_alias=True)), where="certain")


def losses_of(recipe: Recipe, run: Path, device: str) -> list[float]:
    recorder = Recorder()
    run_tiny(recipe, run, device=device, reporter=recorder)
    return [report.loss for report in recorder.steps]


@pytest.mark.parametrize("name", TRAINED)
def test_every_recipe_trains_as_on_a_cpu(name: str, tmp_path: Path) -> None:
    recipe = without_chance(cut_down_in(tmp_path, name))
    expected, found = losses_of(recipe, tmp_path / "cpu", "cpu"), losses_of(recipe, tmp_path / "gpu", DEVICE)
    assert len(found) == len(expected)
    if name in DRAWING:
        assert all(map(math.isfinite, found))
    else:
        assert found == pytest.approx(expected, rel=2e-3)  # TF32 in cuDNN's layers


@pytest.mark.parametrize("name", [name for name in TRAINED if "vectors" not in name])
def test_every_model_scores_as_on_a_cpu(name: str, tmp_path: Path) -> None:
    recipe = cut_down_in(tmp_path, name)
    run_tiny(recipe, tmp_path / "run", device=DEVICE)  # with all that is drawn
    path = recipe.data.train
    cpu, gpu = (
        numbers_of(ensue.load(tmp_path / "run", device=device).evaluate(path).as_json()) for device in ("cpu", DEVICE)
    )
    assert gpu.keys() == cpu.keys()
    for key, value in cpu.items():
        assert gpu[key] == pytest.approx(value, rel=0.05 if name in DRAWING else 2e-3, abs=1e-3), key


def numbers_of(scores: dict[str, Any]) -> dict[str, float]:
    return {key: value for key, value in scores.items() if isinstance(value, int | float)}


@pytest.mark.parametrize("name", ["char-lstm", "translate-transformer"])
def test_a_run_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    recipe, rest = without_chance(cut_down_in(tmp_path, name)), Recorder()
    whole = losses_of(recipe, tmp_path / "whole", DEVICE)
    run_tiny(recipe, tmp_path / "run", device=DEVICE, reporter=At(2, interrupt))
    run_tiny(None, tmp_path / "run", device=DEVICE, resume=True, reporter=rest)
    assert [report.loss for report in rest.steps] == pytest.approx(whole[2:], rel=1e-4)
