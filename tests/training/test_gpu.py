"""Every recipe trains, resumes and scores on a CUDA device as on a CPU: python -m pytest -m gpu tests

The tests are skipped without a CUDA device, which CI does not have.
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
    pytest.mark.filterwarnings("default"),  # drivers and CUDA's libraries warn
]
DEVICE = "cuda"
DRAWING = {"draw", "storn", "vrnn"}
"""Recipes whose losses depend on latent variables, which devices draw differently."""


def remove_randomness(table: Any) -> Any:
    """Return a recipe's tables without randomness during training."""
    if isinstance(table, dict):
        return {key: 0.0 if is_random(key, value) else remove_randomness(value) for key, value in table.items()}
    return table


def is_random(key: str, value: Any) -> bool:
    names = ("dropout", "zoneout", "weight_drop", "noise", "shift", "stretch", "filter", "reset_state")
    return isinstance(value, float) and key.startswith(names)


def without_randomness(recipe: Recipe) -> Recipe:
    return validate_recipe(remove_randomness(recipe.model_dump(by_alias=True)), where="certain")


def losses_of(recipe: Recipe, run: Path, device: str) -> list[float]:
    recorder = Recorder()
    run_tiny(recipe, run, device=device, reporter=recorder)
    return [report.loss for report in recorder.steps]


@pytest.mark.parametrize("name", TRAINED)
def test_losses_of_every_recipe_equal_those_on_a_cpu(name: str, tmp_path: Path) -> None:
    recipe = without_randomness(cut_down_in(tmp_path, name))
    expected, losses = losses_of(recipe, tmp_path / "cpu", "cpu"), losses_of(recipe, tmp_path / "gpu", DEVICE)
    assert len(losses) == len(expected)
    if name in DRAWING:
        assert all(map(math.isfinite, losses))
    else:
        assert losses == pytest.approx(expected, rel=2e-3)  # TF32 in cuDNN's layers


@pytest.mark.parametrize("name", [name for name in TRAINED if "vectors" not in name])
def test_scores_of_every_model_equal_those_on_a_cpu(name: str, tmp_path: Path) -> None:
    recipe = cut_down_in(tmp_path, name)
    run_tiny(recipe, tmp_path / "run", device=DEVICE)  # with randomness
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
def test_losses_after_resuming_equal_those_of_an_undisturbed_run(name: str, tmp_path: Path) -> None:
    recipe, recorder = without_randomness(cut_down_in(tmp_path, name)), Recorder()
    losses = losses_of(recipe, tmp_path / "full", DEVICE)
    run_tiny(recipe, tmp_path / "run", device=DEVICE, reporter=At(2, interrupt))
    run_tiny(None, tmp_path / "run", device=DEVICE, resume=True, reporter=recorder)
    assert [report.loss for report in recorder.steps] == pytest.approx(losses[2:], rel=1e-4)
