"""A loss that is not finite or a full disk stops a run, and the last good checkpoint stays loadable."""

import errno
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ensue
from ensue.errors import RunError, TrainingError
from ensue.models.language_model import LanguageModel
from ensue.runs import weights
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.weights import read_tensors
from ensue.tasks.language_modeling.job import LanguageModeling
from ensue.training.loop import Trainer
from training.resuming import At
from training.tiny import reproducible_state, run_tiny, some_slow, tiny_recipe
from training.tiny_texts import classifying, tagging


def poison_after(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a recurrent weight to NaN after this step."""
    original = Trainer.step

    def poisoned(self: Trainer) -> None:
        if self.progress.step == step:
            with torch.no_grad():
                self.model.get_parameter("layers.layers.0.weight_hidden")[0, 0] = float("nan")
        original(self)

    monkeypatch.setattr(Trainer, "step", poisoned)


def test_a_loss_that_is_not_finite_names_step_batch_and_parameter(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison_after(9, monkeypatch)
    recipe = tiny_recipe(text, batch_size=32, segment_length=16, steps=30)  # six steps an epoch
    with pytest.raises(TrainingError) as caught:
        run_tiny(recipe, tmp_path / "run")
    message = str(caught.value)
    assert "not finite (nan) at step 10 (epoch 2, batch 4)" in message
    assert "first parameter that is not finite: layers.layers.0.weight_hidden;" in message


def test_the_last_good_checkpoint_can_be_loaded(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tiny_recipe(text)
    run_tiny(recipe, tmp_path / "full")
    with monkeypatch.context() as patch:
        poison_after(9, patch)
        with pytest.raises(TrainingError, match=r"last good checkpoint is .*step-8"):
            run_tiny(recipe, tmp_path / "run")
    assert "".join(ensue.load(tmp_path / "run", device="cpu").generate("the", max_tokens=5))
    run_tiny(None, tmp_path / "run", resume=True)
    assert reproducible_state(tmp_path / "run") == reproducible_state(tmp_path / "full")


def test_weights_that_overflow_are_not_saved(text: Path, tmp_path: Path) -> None:
    """The first step has a finite loss, but infinite weights after it, and a checkpoint is due."""
    recipe = tiny_recipe(text, learning_rate=1e39, warmup=0.0, checkpoint_every=1, clip=0.0)
    with pytest.raises(TrainingError, match=r"not finite.* at step 1 .*no checkpoint had been written"):
        run_tiny(recipe, tmp_path / "run")
    assert complete_checkpoints(tmp_path / "run" / "checkpoints") == []


def test_a_huge_learning_rate_ends_in_one_clear_line(text: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(text, learning_rate=1e37, warmup=0.0, steps=50, model="transformer")
    with pytest.raises(TrainingError, match=r"not finite .*try a smaller train.learning_rate$"):
        run_tiny(recipe, tmp_path / "run")


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_scores_that_are_not_finite_are_an_error_of_one_line(
    optimizer: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are finite, but their outputs are not."""
    recipe = tiny_recipe(text, learning_rate=1e37, warmup=0.0, validations=12, clip=0.0, optimizer=optimizer)
    with pytest.raises(TrainingError, match=r"(loss is|scores are|weights are) not finite") as caught:
        run_tiny(recipe, tmp_path / "run")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(LanguageModeling, "selection", lambda self, scores: float("nan"))
    with pytest.raises(TrainingError, match=r"the scores are not finite \(nan\) at step 4 .*no checkpoint had been"):
        run_tiny(tiny_recipe(text), tmp_path / "scores")


@pytest.mark.parametrize("task", ["labeling", "classification"])
def test_a_model_that_diverged_is_not_saved(task: str, names: Path, topics: Path, tmp_path: Path) -> None:
    make = {"labeling": lambda **t: tagging(names, **t), "classification": lambda **t: classifying(topics, **t)}[task]
    recipe = make(learning_rate=1e37, warmup=0.0, steps=4, validations=4, optimizer="adamw")
    with pytest.raises(TrainingError, match=r"the loss is not finite \(\w+\) at step [12] .*try a smaller"):
        run_tiny(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def full_disk(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullAt:
    """`serialize` that works `times` times and then writes only a part of the file to a full disk."""

    def __init__(self, times: int) -> None:
        self.original, self.remaining = weights.serialize, times

    def __call__(self, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> Iterator[Any]:
        self.remaining -= 1
        pieces = self.original(tensors, metadata)
        yield next(pieces)
        if self.remaining < 0:
            full_disk()
        yield from pieces


@pytest.mark.sampled(1)
@pytest.mark.parametrize("times", some_slow(range(3, 7), 3, 4))
def test_a_full_disk_leaves_the_last_checkpoint_and_resuming_loses_nothing(
    times: int, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each validation writes three files of tensors."""
    recipe = tiny_recipe(text)
    run_tiny(recipe, tmp_path / "full")
    with monkeypatch.context() as patch:
        patch.setattr(weights, "serialize", FullAt(times))
        with pytest.raises(TrainingError) as caught:
            run_tiny(recipe, tmp_path / "run")
    step = 4 if times < 6 else 8
    assert f"the disk is full while saving step {step + 4}; " in str(caught.value)
    assert f"step-{step} is complete; free some space and continue with resume=True" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [c.name for c in complete_checkpoints(tmp_path / "run" / "checkpoints")][-1] == f"step-{step}"
    assert not list((tmp_path / "run").rglob("*.partial"))
    assert read_tensors(tmp_path / "run" / "model.safetensors")
    run_tiny(None, tmp_path / "run", resume=True)
    assert reproducible_state(tmp_path / "run") == reproducible_state(tmp_path / "full")


@pytest.mark.slow
def test_a_run_after_a_full_disk_can_be_resumed(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("ensue.runs.manifest.write_text", full_disk)
        with pytest.raises(TrainingError, match="the disk is full; free some space and try again"):
            run_tiny(tiny_recipe(text), tmp_path / "run")
    run_tiny(tiny_recipe(text), tmp_path / "run", resume=True)
    run_tiny(tiny_recipe(text), tmp_path / "full")
    assert reproducible_state(tmp_path / "run") == reproducible_state(tmp_path / "full")


def test_other_errors_of_the_file_system_are_not_reported_as_a_full_disk(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr("ensue.training.loop.save_checkpoint", broken)
    with pytest.raises(OSError, match="input/output"):
        run_tiny(tiny_recipe(text), tmp_path / "run")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["recipe.toml.partial", "metrics.jsonl", "checkpoints/.step-16.partial"])
def test_files_that_cannot_be_written_are_an_error_of_one_line(name: str, text: Path, tmp_path: Path) -> None:
    """A folder in place of a file simulates missing permissions, which root always has."""
    run = tmp_path / "run"
    run_tiny(tiny_recipe(text), run)
    if name.startswith("checkpoints"):
        shutil.rmtree(run / "checkpoints")
        (run / "checkpoints").write_text("")
    else:
        (run / name).unlink(missing_ok=True)
        (run / name).mkdir()
    with pytest.raises(RunError, match=rf"{run}/.*: cannot be (written|read)") as caught:
        run_tiny(tiny_recipe(text, steps=16), run, resume=True)
    assert "\n" not in str(caught.value)


def test_a_run_interrupted_before_its_first_validation_can_be_resumed(text: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(text)
    outcome = run_tiny(recipe, tmp_path / "run", reporter=At(1, lambda: signal.raise_signal(signal.SIGTERM)))
    assert (outcome.reason, outcome.step, outcome.valid) == ("interrupted", 1, None)
    with pytest.raises(RunError, match="was stopped before its first validation"):
        ensue.load(tmp_path / "run")
    assert run_tiny(None, tmp_path / "run", resume=True).reason == "finished"
    assert isinstance(ensue.load(tmp_path / "run").model, LanguageModel)
