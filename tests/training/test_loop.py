"""Training steps: gradients, clipping, resets, random numbers, optimizer groups, early stopping."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ensue.recipe import Recipe, TrainRecipe
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.runs.weights import read_tensors
from ensue.tasks.language_modeling.job import LanguageModeling, make_task
from ensue.tasks.language_modeling.model import LanguageModelParts
from ensue.tasks.texts.corpus import read_corpus
from ensue.training.gradients import step_seed
from ensue.training.loop import Trainer
from ensue.training.optimizer import build_optimizer
from ensue.types import leaves
from training.tiny import Recorder, run_tiny, tiny_recipe


def trainer_of(recipe: Recipe, tmp_path: Path, dtype: torch.dtype = torch.float32) -> Trainer:
    corpus = read_corpus(recipe.data, recipe.tokenizer)
    torch.manual_seed(0)
    model = LanguageModelParts(corpus.tokenizer).build(recipe).to(dtype)
    run = RunDirectory(tmp_path / "loop")
    run.path.mkdir(exist_ok=True)
    return Trainer(model, make_task(recipe, corpus), recipe.train, run, precision="float32", reporter=Reporter())


def gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}


LARGE: dict[str, dict[str, Any]] = {
    "lstm": {"kind": "lstm", "d_embedding": 6, "d_model": 8, "num_layers": 2},
    "gru": {"kind": "gru", "d_embedding": 6, "d_model": 8, "tied": True},
    "transformer": {"kind": "transformer", "d_embedding": 8, "d_model": 8, "num_heads": 2, "context": 12},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", list(LARGE))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_gradient_accumulation_equals_the_full_batch(
    model: str, dtype: torch.dtype, tolerance: float, text: Path, tmp_path: Path
) -> None:
    results = []
    for accumulate in (1, 2, 4):
        trainer = trainer_of(tiny_recipe(text, model=LARGE[model], accumulate=accumulate), tmp_path, dtype)
        first = trainer.task.lazy_batch(0, trainer.device)
        trainer._compute_gradients(first, 0)
        trainer.model.zero_grad()
        # the second step starts from the state after the first
        loss = trainer._compute_gradients(trainer.task.lazy_batch(1, trainer.device), 1)
        results.append((loss, gradients(trainer), list(leaves(trainer.state))))
    for loss, grads, state in results[1:]:
        assert loss.count == results[0][0].count
        torch.testing.assert_close(loss.total, results[0][0].total, rtol=1e-6, atol=0)
        torch.testing.assert_close(grads, results[0][1], rtol=0, atol=tolerance)
        torch.testing.assert_close(state, results[0][2], rtol=0, atol=tolerance)
    assert bool(results[0][2]) == (model != "transformer")


def test_a_carried_state_changes_the_loss(text: Path, tmp_path: Path) -> None:
    trainer = trainer_of(tiny_recipe(text), tmp_path)
    batch = trainer.task.lazy_batch(1, trainer.device)
    trainer._compute_gradients(trainer.task.lazy_batch(0, trainer.device), 0)
    carried = trainer._compute_gradients(batch, 1)
    trainer.state = None
    assert float(carried.total) != float(trainer._compute_gradients(batch, 1).total)
    assert not any(leaf.requires_grad for leaf in leaves(trainer.state))


def test_the_state_is_dropped_at_the_start_of_an_epoch(text: Path, tmp_path: Path) -> None:
    trainer = trainer_of(tiny_recipe(text), tmp_path)
    trainer.step()
    steps = trainer.task.steps_per_epoch
    first, second = trainer.task.lazy_batch(steps, trainer.device), trainer.task.lazy_batch(1, trainer.device)
    assert trainer.task.carry_state(trainer.model, second, trainer.state) is trainer.state
    assert trainer.task.carry_state(trainer.model, first, trainer.state) is None


def test_clipping_bounds_the_global_norm(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[float, float] = {}
    for clip in (0.0, 1e-3):
        trainer = trainer_of(tiny_recipe(text, clip=clip), tmp_path)
        zero_grad = trainer.optimizer.zero_grad

        def measure(set_to_none: bool, *, t: Trainer = trainer, c: float = clip, z: Any = zero_grad) -> None:
            seen[c] = float(torch.stack([g.norm() for g in gradients(t).values()]).norm())
            z(set_to_none=set_to_none)

        monkeypatch.setattr(trainer.optimizer, "zero_grad", measure)
        trainer.step()
    assert seen[1e-3] == pytest.approx(1e-3, rel=1e-3)
    assert seen[0.0] > 0.05  # not clipped


def test_reset_state_drops_the_state_of_a_share_of_rows(text: Path, tmp_path: Path) -> None:
    trainer = trainer_of(tiny_recipe(text, reset_state=0.3, batch_size=32, segment_length=4), tmp_path)
    trainer._compute_gradients(trainer.task.lazy_batch(0, trainer.device), 0)
    before = next(leaves(trainer.state))
    batch, dropped = trainer.task.lazy_batch(1, trainer.device), 0
    for step in range(100):
        torch.manual_seed(step)
        after = next(leaves(trainer.task.carry_state(trainer.model, batch, trainer.state)))
        zero = (after == 0).all(-1)
        torch.testing.assert_close(after[~zero], before[~zero], rtol=0, atol=0)
        dropped += int(zero.sum())
    assert 0.25 < dropped / 3200 < 0.35


def test_step_seeds_are_distinct_and_reproducible() -> None:
    seeds = {step_seed(seed, step, shard) for seed in (-1, 0, 1, 2) for step in range(50) for shard in range(3)}
    assert len(seeds) == 4 * 50 * 3
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert step_seed(7, 3) == step_seed(7, 3, 0)


def test_a_step_depends_only_on_seed_and_step(text: Path, tmp_path: Path) -> None:
    """The state of torch's generator before training does not matter."""
    recipe = tiny_recipe(text, model=LARGE["lstm"] | {"dropout": 0.5}, reset_state=0.2, steps=4)
    losses = []
    for disturbance in (0, 17):
        torch.manual_seed(disturbance)
        recorder = Recorder()
        run_tiny(recipe, tmp_path / f"run{disturbance}", reporter=recorder)
        losses.append([report.loss for report in recorder.steps])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_weight_decay_is_only_on_matrices(name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    recipe = TrainRecipe(steps=1, optimizer=name, weight_decay=0.25, beta1=0.7)  # type: ignore[arg-type]
    decayed, undecayed = build_optimizer(model, recipe).param_groups
    assert [p.dim() for p in decayed["params"]] == [2]
    assert [p.dim() for p in undecayed["params"]] == [1, 1, 1]
    assert (decayed["weight_decay"], undecayed["weight_decay"]) == (0.25, 0.0)
    assert decayed["momentum" if name == "sgd" else "betas"] == (0.7 if name == "sgd" else (0.7, 0.99))


def set_scores(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> None:
    """Let the validations have these scores, in order."""
    script = iter(scores)
    monkeypatch.setattr(LanguageModeling, "selection", lambda self, computed: next(script))


def test_best_and_last_weights_are_saved(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_scores(monkeypatch, [3.0, 2.0, 2.5])
    outcome = run_tiny(tiny_recipe(text), tmp_path / "run")
    assert (outcome.best_step, outcome.step, outcome.reason) == (8, 12, "finished")
    best = read_tensors(tmp_path / "run" / "model.safetensors")
    eighth, last = complete_checkpoints(tmp_path / "run" / "checkpoints")
    assert (eighth.name, last.name) == ("step-8", "step-12")
    torch.testing.assert_close(best, read_tensors(eighth / "model.safetensors"), rtol=0, atol=0)
    final = read_tensors(last / "model.safetensors")
    assert all(not torch.equal(best[name], final[name]) for name in best)


def test_the_average_of_the_weights_is_saved(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The average equals the equation of `train.average`."""
    seen: list[dict[str, torch.Tensor]] = []
    step = Trainer.step

    def stepped(self: Trainer) -> None:
        if not seen:
            seen.append({name: p.detach().clone() for name, p in self.model.named_parameters()})
        step(self)
        seen.append({name: p.detach().clone() for name, p in self.model.named_parameters()})

    monkeypatch.setattr(Trainer, "step", stepped)
    run_tiny(tiny_recipe(text, average=0.5, validations=1), tmp_path / "run")
    averaged = seen[0]
    for n, weights in enumerate(seen[1:], start=1):
        decay = min(0.5, (1 + n) / (10 + n))
        averaged = {name: decay * averaged[name] + (1 - decay) * weights[name] for name in weights}
    torch.testing.assert_close(read_tensors(tmp_path / "run" / "model.safetensors"), averaged)


def test_early_stopping_counts_validations_without_a_better_score(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_scores(monkeypatch, [3.0, 3.1, 2.0, 2.0, 2.4, 1.0])
    recipe = tiny_recipe(text, patience=2, validations=6)
    outcome = run_tiny(recipe, tmp_path / "run")
    assert (outcome.reason, outcome.step, outcome.best_step) == ("stopped early", 10, 6)
    again = run_tiny(None, tmp_path / "run", resume=True)
    assert (again.reason, again.step) == ("stopped early", 10)
    longer = run_tiny(tiny_recipe(text, patience=3, validations=6), tmp_path / "run", resume=True)
    assert (longer.reason, longer.step, longer.best_step) == ("finished", 12, 12)


def test_without_validation_text_the_last_weights_are_saved(text: Path, tmp_path: Path) -> None:
    outcome = run_tiny(tiny_recipe(text, data={"valid_fraction": 0.0}), tmp_path / "run")
    assert (outcome.valid, outcome.best_step) == (None, 12)
    last = complete_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    saved, final = (read_tensors(folder / "model.safetensors") for folder in (tmp_path / "run", last))
    torch.testing.assert_close(saved, final, rtol=0, atol=0)
