"""A run that was stopped anywhere and resumed is bit-identical to an undisturbed one."""

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ensue
from ensue.errors import RecipeError, RunError
from ensue.recipe import Recipe, read_recipe
from ensue.runs import weights
from ensue.runs.checkpoint import complete_checkpoints
from ensue.tasks.contract.data_set import fingerprints
from ensue.tasks.language_modeling.job import LanguageModeling
from training.cut_down import LINEAR, TRAINED, cut_down_in
from training.resuming import At, Killed, assert_resumes, die, interrupt
from training.tiny import MODELS, Recorder, reproducible_state, run_tiny, seal, some_slow, tiny_recipe
from training.tiny_pairs import pair_recipe

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "regularized": {
        "model": MODELS["lstm"] | {
            "num_layers": 2, "dropout": 0.3, "dropout_kind": "variational", "dropout_input": 0.2,
            "dropout_recurrent": 0.3, "dropout_words": 0.1, "sampled": 5,
        },
        "reset_state": 0.2, "accumulate": 2, "weight_decay": 0.1,
    },
    "plain dropout": {"model": MODELS["lstm"] | {"kind": "gru", "dropout": 0.3}, "accumulate": 4},
    "sgd": {"model": MODELS["lstm"] | {"kind": "elman"}, "optimizer": "sgd", "learning_rate": 0.5},
    "muon": {"optimizer": "muon", "learning_rate": 0.02, "weight_decay": 0.1, "average": 0.9},
    "blocks": {
        "model": MODELS["transformer"] | {"dropout": 0.2, "sampled": 5}, "accumulate": 2, "average": 0.9,
        "schedule": "inverse-sqrt",
    },
    "window": {"model": {"kind": "window", "d_embedding": 6, "d_model": 8}},
    "bfloat16": {"precision": "bfloat16", "reset_state": 0.2},
    "several epochs": {"batch_size": 32, "segment_length": 16},
}  # fmt: skip


@pytest.fixture
def varying_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the selection score go up and down as a function of the scores."""
    monkeypatch.setattr(LanguageModeling, "selection", lambda self, scores: scores.total_nats * 100 % 1)


@pytest.mark.parametrize(
    ("budget", "schedule"),
    [
        ("steps", "linear"),
        ("seconds", "linear"),
        ("steps", "constant"),
        pytest.param("epochs", "cosine", marks=pytest.mark.slow),
        pytest.param("tokens", "linear", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_ends_soon_with_its_learning_rate_at_zero(
    budget: str, schedule: str, text: Path, tmp_path: Path
) -> None:
    recipe = tiny_recipe(text, **{budget: 100_000}, schedule=schedule)
    outcome = run_tiny(recipe, tmp_path / "run", reporter=At(20, interrupt))
    if schedule == "constant":
        assert outcome.steps_with_decay == 0
        return
    assert outcome.steps_with_decay == 24
    sooner = read_recipe(tmp_path / "run" / "recipe.toml", ["train.steps=24"])
    outcome = run_tiny(sooner, tmp_path / "run", resume=True, reporter=At(21, interrupt))
    assert outcome.steps_with_decay == 0  # the rest of the run is shorter than another decay
    assert run_tiny(None, tmp_path / "run", resume=True).step == 24
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if line["kind"] == "train"][-4:]
    largest, warmup = recipe.train.learning_rate, recipe.train.warmup
    ends = [(step / 24 - warmup) / (1 - warmup) for step in (20, 21, 22, 23)]
    decays = [1 - end if schedule == "linear" else (1 + math.cos(math.pi * end)) / 2 for end in ends]
    assert rates == pytest.approx([largest * decay for decay in decays])


@pytest.mark.usefixtures("varying_scores")
@pytest.mark.parametrize("variant", some_slow(["regularized", "blocks"], "blocks"))
def test_killed_after_any_step_and_resumed_is_bit_identical(variant: str, text: Path, tmp_path: Path) -> None:
    """The steps after the last checkpoint are repeated."""
    recipe = tiny_recipe(text, **VARIANTS[variant], checkpoint_every=3, validations=2)
    run_tiny(recipe, tmp_path / "full")
    for step in (1, 3, 5, 7, 11):
        with pytest.raises(Killed):
            run_tiny(recipe, tmp_path / "parts", reporter=At(step, die), resume=True)
    run_tiny(recipe, tmp_path / "parts", resume=True)
    assert reproducible_state(tmp_path / "parts") == reproducible_state(tmp_path / "full")


PARTS = 16
"""The number of tests among which the points where a run may be killed are divided."""


class KilledAt:
    """Raises `Killed` instead of the `at`-th write to the file system and of all later ones."""

    def __init__(self, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.remaining = at
        for owner, name in (
            (Path, "rename"), (Path, "replace"), (Path, "unlink"), (Path, "write_text"), (Path, "touch"),
            (Path, "mkdir"), (os, "link"), (os, "fsync"), (shutil, "rmtree"), (weights, "serialize"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self.counted(getattr(owner, name)))

    def counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.remaining -= 1
            if self.remaining < 0:
                raise Killed
            return original(*args, **kwargs)

        return call


def count_writes(recipe: Recipe, out: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the number of writes of a run to the file system."""
    with monkeypatch.context() as patch:
        counter = KilledAt(1_000_000, patch)
        run_tiny(recipe, out)
    return 1_000_000 - counter.remaining


@pytest.mark.slow
@pytest.mark.usefixtures("varying_scores")
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_killed_between_any_two_writes_and_resumed_is_bit_identical(
    part: int, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The killed run can be loaded if it has weights."""
    recipe = tiny_recipe(text, steps=4, validations=2)
    run_tiny(recipe, tmp_path / "full")  # fills the cache
    places = range(part, count_writes(recipe, tmp_path / "counted", monkeypatch), PARTS)
    assert len(places) > 5
    for place in places:
        run = tmp_path / f"parts{place}"
        with monkeypatch.context() as patch:
            KilledAt(place, patch)
            with pytest.raises(Killed):
                run_tiny(recipe, run)
        if (run / "model.safetensors").exists():
            ensue.load(run, device="cpu")
        run_tiny(recipe, run, resume=True)
        assert reproducible_state(run) == reproducible_state(tmp_path / "full")


def test_a_resumed_run_restores_the_best_weights_of_its_checkpoint(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a budget of seconds, later validations may differ from those of the killed run.

    Step 8 was the best; its checkpoint is removed, and the scores after step 4 are worse this time.
    """
    scores = iter([3.0, 2.0, 4.0, 5.0, 6.0])
    monkeypatch.setattr(LanguageModeling, "selection", lambda self, computed: next(scores))
    recipe = tiny_recipe(text)
    run = tmp_path / "run"
    with pytest.raises(Killed):
        run_tiny(recipe, run, reporter=At(9, die))
    fourth, eighth = complete_checkpoints(run / "checkpoints")
    weights_of_four = (fourth / "model.safetensors").read_bytes()
    assert (run / "model.safetensors").read_bytes() == (eighth / "model.safetensors").read_bytes() != weights_of_four
    shutil.rmtree(eighth)
    assert run_tiny(recipe, run, resume=True).best_step == 4
    assert (run / "model.safetensors").read_bytes() == weights_of_four


@pytest.mark.slow
def test_a_resumed_run_keeps_its_micro_batches(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of parts changes the order of summation, and so the bits."""
    original = LanguageModeling.loss

    def limited(self: LanguageModeling, model: Any, batch: Any, state: Any) -> Any:
        if batch.rows > 1:
            raise MemoryError
        return original(self, model, batch, state)

    for name, step in (("late", 11), ("early", 6)):
        monkeypatch.setattr(LanguageModeling, "loss", limited)
        with pytest.raises(Killed):
            run_tiny(tiny_recipe(text), tmp_path / name, reporter=At(step, die))
        monkeypatch.setattr(LanguageModeling, "loss", original)
        run_tiny(None, tmp_path / name, resume=True)
    assert reproducible_state(tmp_path / "late")["progress"]["parts"] == 4
    assert reproducible_state(tmp_path / "late") == reproducible_state(tmp_path / "early")


def test_resuming_a_finished_run_changes_nothing(text: Path, tmp_path: Path) -> None:
    run_tiny(tiny_recipe(text), tmp_path / "run")
    before = reproducible_state(tmp_path / "run")
    recorder = Recorder()
    assert run_tiny(None, tmp_path / "run", resume=True, reporter=recorder).step == 12
    assert recorder.steps == []
    assert reproducible_state(tmp_path / "run") == before


@pytest.mark.slow
def test_a_longer_budget_continues_validations_and_reports(text: Path, tmp_path: Path) -> None:
    run_tiny(tiny_recipe(text, steps=12), tmp_path / "run")
    recorder = Recorder()
    run_tiny(tiny_recipe(text, steps=24), tmp_path / "run", resume=True, reporter=recorder)
    assert [v.step for v in recorder.validations] == [16, 24]
    records = reproducible_state(tmp_path / "run")["records"]
    assert [record["step"] for record in records if record["kind"] == "train"] == list(range(1, 25))
    # the recipe, with which Ctrl-C suggests to resume, has the new budget
    assert read_recipe(tmp_path / "run" / "recipe.toml").train.steps == 24


@pytest.mark.usefixtures("varying_scores")
def test_a_budget_that_is_already_used_gives_a_model(text: Path, tmp_path: Path) -> None:
    run_tiny(tiny_recipe(text, steps=24), tmp_path / "run", reporter=At(3, interrupt))
    assert not (tmp_path / "run" / "model.safetensors").exists()
    outcome = run_tiny(tiny_recipe(text, steps=2), tmp_path / "run", resume=True)
    assert (outcome.step, outcome.best_step) == (3, 3)
    assert outcome.valid is not None
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"learning_rate": 0.5}, "train.learning_rate"),
        ({"model": MODELS["lstm"] | {"d_model": 9}}, "encoder.d_model"),
        ({"data": {"valid_fraction": 0.2}}, "data.valid_fraction"),
        ({"seed": 3}, "train.seed"),
    ],
)
def test_another_recipe_is_refused_naming_the_key(change: dict[str, Any], key: str, text: Path, tmp_path: Path) -> None:
    run_tiny(tiny_recipe(text, steps=2), tmp_path / "run")
    before = reproducible_state(tmp_path / "run")
    with pytest.raises(RecipeError, match=f"another {key}"):
        run_tiny(tiny_recipe(text, **{"steps": 2} | change), tmp_path / "run", resume=True)
    assert reproducible_state(tmp_path / "run") == before


def test_a_run_that_cannot_be_resumed_is_not_changed(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_tiny(tiny_recipe(text), run)
    for checkpoint in complete_checkpoints(run / "checkpoints"):
        (checkpoint / "optimizer.safetensors").write_bytes(b"")
    files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="damaged"):
        run_tiny(tiny_recipe(text, steps=20), run, resume=True)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == files


def test_moved_data_are_accepted_and_changed_data_refused(text: Path, tmp_path: Path) -> None:
    run, moved, held_out = tmp_path / "run", tmp_path / "elsewhere.txt", tmp_path / "test.txt"
    held_out.write_text("some text, " * 20)
    data = {"test": str(held_out)}
    run_tiny(tiny_recipe(text, data=data), run)
    shutil.move(text, moved)
    run_tiny(tiny_recipe(moved, data=data, steps=14), run, resume=True)
    assert read_recipe(run / "recipe.toml").values()["data.train"] == str(moved)
    moved.write_text(moved.read_text() + "the end")
    with pytest.raises(RunError, match=r"elsewhere.txt has changed since this run began"):
        run_tiny(None, run, resume=True)
    text.write_text("another text, " * 50)
    with pytest.raises(RunError, match=r"text.txt is not the data with which this run began"):
        run_tiny(tiny_recipe(text, data=data, steps=16), run, resume=True)
    moved.write_text(moved.read_text().removesuffix("the end"))
    held_out.write_text("another text, " * 20)
    with pytest.raises(RunError, match=r"test.txt has changed since this run began"):
        run_tiny(None, run, resume=True)
    with pytest.raises(RecipeError, match=r"cannot continue with another data\.test"):
        run_tiny(tiny_recipe(moved, steps=16), run, resume=True)
    config = json.loads((run / "config.json").read_text())
    del config["held_out"]  # earlier versions had no fingerprints of these data
    (run / "config.json").write_text(json.dumps(config))
    seal(run)
    with pytest.raises(RecipeError, match=r"cannot continue with another data\.test"):
        run_tiny(tiny_recipe(moved, data={"test": str(moved)}, steps=16), run, resume=True)


def test_held_out_aligned_files_have_a_fingerprint(tmp_path: Path) -> None:
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    recipe = pair_recipe(tmp_path / "pairs.tsv", data={"valid": f"{source},{target}"})
    fingerprint_values = []
    for text in ("one", "two"):
        source.write_text("a line\n")
        target.write_text(f"{text}\n")
        fingerprint_values.append(fingerprints(recipe.data)["valid"])
    assert fingerprint_values[0] != fingerprint_values[1]


def test_resuming_a_missing_run_without_a_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run to continue"):
        run_tiny(None, tmp_path / "nowhere", resume=True)
    assert not (tmp_path / "nowhere").exists()


class Counting(torch.optim.Optimizer):
    """A user-defined optimizer with state for each parameter, and a value of the group that steps change."""

    def __init__(self, groups: Any, lr: float) -> None:
        super().__init__(groups, {"lr": lr, "calls": 0, "growth": 1.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["calls"] += 1
            group["growth"] *= 0.9
            for parameter in group["params"]:
                if parameter.grad is not None:
                    entry = self.state[parameter]
                    entry["updates"] = entry.get("updates", 0) + 1
                    entry["sum"] = (
                        entry.get("sum", torch.zeros((), dtype=torch.float64)) + parameter.grad.double().sum()
                    )
                    scale = group["growth"] / (entry["updates"] + group["calls"] + float(entry["sum"]) ** 2)
                    parameter.sub_(parameter.grad, alpha=group["lr"] * scale)


OPTIMIZERS = [torch.optim.NAdam, torch.optim.ASGD, torch.optim.Adagrad, torch.optim.Adafactor, Counting]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_runs_with_any_optimizer_resume(kind: Any, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(model: Any, recipe: Any, tuning: Any) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = kind(tuning.build_groups(recipe.weight_decay), lr=recipe.learning_rate)
        return optimizer

    monkeypatch.setattr("ensue.training.loop.build_optimizer", build)
    recipe = tiny_recipe(text, steps=4, validations=1)
    run_tiny(recipe, tmp_path / "full")
    run_tiny(recipe, tmp_path / "parts", reporter=At(2, interrupt))
    run_tiny(None, tmp_path / "parts", resume=True)
    assert reproducible_state(tmp_path / "parts") == reproducible_state(tmp_path / "full")


def test_moments_of_another_optimizer_are_refused(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_tiny(tiny_recipe(text, steps=4, validations=1), tmp_path / "run", reporter=At(2, interrupt))
    monkeypatch.setattr(
        "ensue.training.loop.build_optimizer",
        lambda model, recipe, tuning: torch.optim.Adagrad(tuning.build_groups(0.0), lr=recipe.learning_rate),
    )
    with pytest.raises(
        RunError, match="does not match the optimizer: expected step, sum, found exp_avg, exp_avg_sq, step"
    ):
        run_tiny(None, tmp_path / "run", resume=True)


CHANCE: dict[str, dict[str, Any]] = {
    "tag-lstm-crf": {
        "data.context_words": 30, "head.repeats": True, "encoder.dropout": 0.3, "encoder.dropout_input": 0.2,
        "features.dropout_words": 0.2, "features.dropout": 0.1, "train.accumulate": 2,
    },
    "classify-lstm": {
        "encoder.dropout": 0.3, "features.dropout_words": 0.2, "head.dropout": 0.2, "head.class_weights": "balanced",
        "train.weight_decay": 0.1,
    },
    "classify-pretrained": {"tuning.layer_decay": 0.5, "tuning.unfreeze": 0.2},
    "tag-pretrained": {"tuning.new_first": 0.3},
    "translate-lstm": {"encoder.dropout": 0.2, "decoder.dropout": 0.2, "train.average": 0.9, "train.accumulate": 2},
    "predict-frames": {"features.noise": 0.3, "features.dropout": 0.1},
    "elmo": {"train.reset_state": 0.2, "train.accumulate": 2},
    "bert-tiny": {"encoder.dropout": 0.1, "train.accumulate": 2, "train.average": 0.9},
}  # fmt: skip
"""Settings with random numbers or state besides the weights, by recipe."""


@pytest.mark.parametrize(
    "name", some_slow([name for name in TRAINED if name not in LINEAR], "classify-lstm", "tag-lstm-crf")
)
def test_every_resumed_recipe_is_bit_identical(name: str, tmp_path: Path) -> None:
    steps = {"train.steps": 10, "train.checkpoint_every": 3, "train.validations": 2}
    assert_resumes(read_recipe(cut_down_in(tmp_path, name), CHANCE.get(name, {}) | steps), tmp_path)
