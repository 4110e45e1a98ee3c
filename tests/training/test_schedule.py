"""Budgets and learning rates equal values computed by hand."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ensue.recipe import TrainRecipe
from ensue.training.optimizer import learning_rate, num_steps
from training.tiny import Recorder, run_tiny, tiny_recipe


def recipe(**settings: object) -> TrainRecipe:
    return TrainRecipe.model_validate({"steps": 100, "learning_rate": 2.0, "warmup": 0.2, **settings})


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"steps": 7}, 7),
        ({"epochs": 2.5}, 25),
        ({"epochs": 0.11}, 2),
        ({"tokens": 641}, 11),
        ({"tokens": 1}, 1),
        ({"seconds": 3.5}, None),
    ],
)
def test_budgets_are_steps_rounded_up(budget: dict[str, float], expected: int | None) -> None:
    train = TrainRecipe.model_validate(budget)
    assert num_steps(train, steps_per_epoch=10, tokens_per_step=64) == expected


@pytest.mark.parametrize("schedule", ["linear", "cosine", "inverse-sqrt", "constant"])
def test_warmup_rises_linearly_from_zero(schedule: str) -> None:
    rates = [learning_rate(recipe(schedule=schedule), share) for share in (0.0, 0.05, 0.1, 0.2)]
    assert rates == pytest.approx([0.0, 0.5, 1.0, 2.0])


@pytest.mark.parametrize(
    ("schedule", "middle", "end"),
    [
        ("linear", 1.5, 0.0),
        ("cosine", 1 + math.cos(math.pi / 4), 0.0),
        ("inverse-sqrt", math.sqrt(2), math.sqrt(0.8)),
        ("constant", 2, 2),
    ],
)
def test_schedules_decay_after_the_warmup(schedule: str, middle: float, end: float) -> None:
    assert learning_rate(recipe(schedule=schedule), 0.4) == pytest.approx(middle)
    assert learning_rate(recipe(schedule=schedule), 1.0) == pytest.approx(end)


def test_the_inverse_square_root_needs_a_warmup() -> None:
    with pytest.raises(ValueError, match="needs a warmup above 0"):
        recipe(schedule="inverse-sqrt", warmup=0.0)


def test_without_warmup_the_first_step_has_the_full_rate() -> None:
    assert learning_rate(recipe(warmup=0.0), 0.0) == 2.0


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("budget", "steps"), [({"steps": 5}, 5), ({"epochs": 0.5}, 39), ({"tokens": 200}, 5)])
def test_a_run_takes_the_steps_of_its_budget(budget: dict[str, float], steps: int, text: Path, tmp_path: Path) -> None:
    outcome = run_tiny(tiny_recipe(text, **budget), tmp_path / "run")
    tokens_per_epoch = int(len(text.read_text()) * 0.9)
    if "epochs" in budget:
        steps = math.ceil(0.5 * ((tokens_per_epoch - 12) // 48))
    assert (outcome.step, outcome.reason) == (steps, "finished")


@pytest.mark.parametrize(("steps", "validations", "expected"), [(10, 4, [3, 5, 8, 10]), (2, 50, [1, 2])])
def test_validations_are_spread_evenly_and_the_last_is_at_the_end(
    steps: int, validations: int, expected: list[int], text: Path, tmp_path: Path
) -> None:
    recorder = Recorder()
    run_tiny(tiny_recipe(text, steps=steps, validations=validations), tmp_path / "run", reporter=recorder)
    assert [v.step for v in recorder.validations] == expected


@pytest.mark.parametrize("schedule", ["linear", "inverse-sqrt"])
def test_a_single_step_trains(schedule: str, text: Path, tmp_path: Path) -> None:
    """A warmup starts with the rate 0, which would be the only rate."""
    weights = {}
    for rate in (0.01, 1e-9):
        out = tmp_path / f"{rate}"
        assert run_tiny(tiny_recipe(text, steps=1, learning_rate=rate, schedule=schedule), out).step == 1
        weights[rate] = load_file(out / "model.safetensors")
    assert not any(torch.equal(moved, weights[1e-9][name]) for name, moved in weights[0.01].items())
