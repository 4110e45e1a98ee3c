"""Adversarial training: a second pass over each batch with vectors moved along the gradient of the loss."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ensue.errors import RecipeError
from ensue.ranks import ProcessGroup
from ensue.recipe import Recipe
from ensue.training.gradients import Gradients
from ensue.training.run import begin_job
from training.tiny import Recorder, run_tiny
from training.tiny_texts import classifying, tagging

SIZE = 0.7
pytestmark = pytest.mark.usefixtures("in_torch_operations")


class Constant(nn.Module):
    """Features that are a constant tensor."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.x = x

    def forward(self, words: Any) -> Tensor:
        return self.x


def losses_of(recipe: Recipe, run: Path, **options: Any) -> list[float]:
    recorder = Recorder()
    run_tiny(recipe, run, reporter=recorder, **options)
    return [report.loss for report in recorder.steps]


def test_the_gradient_is_the_sum_of_those_of_both_losses(topics: Path) -> None:
    job: Any = begin_job(classifying(topics), None)
    torch.manual_seed(0)
    model = job.build_model().train()
    batch = job.task.lazy_batch(0, torch.device("cpu"))
    adversarial = Gradients(model, job.task, seed=3, precision="float32", group=ProcessGroup())
    adversarial.adversarial = SIZE
    adversarial.compute(batch, None, step=0, micro_batches=1)
    gradients = {name: parameter.grad for name, parameter in model.layers.named_parameters()}
    model.zero_grad()

    read, features = batch.all_rows, model.features
    lengths = [int(row.sum()) for row in read.texts[0].mask]
    x = features(read.texts[0]).detach().requires_grad_()
    model.features = Constant(x)
    loss = job.task.loss(model, read, None)[0].total / batch.count
    (slope,) = torch.autograd.grad(loss, x, retain_graph=True)
    moved = x.detach().clone()
    for row, length in enumerate(lengths):
        norm = x[row, :length].norm(dim=-1).mean()
        moved[row, :length] += SIZE * norm * slope[row, :length] / slope[row, :length].norm()
    model.features = Constant(moved)
    second = job.task.loss(model, read, None)[0].total / batch.count
    (loss + second).backward()

    assert second > loss
    assert adversarial.total.item() / batch.count == pytest.approx(loss.item())
    assert min(lengths) < max(lengths)
    for name, parameter in model.layers.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, msg=name)


@pytest.mark.parametrize("recipe_of", [classifying, tagging])
def test_classifiers_and_taggers_train_adversarially(recipe_of: Any, topics: Path, names: Path, tmp_path: Path) -> None:
    data = topics if recipe_of is classifying else names
    plain = losses_of(recipe_of(data, steps=3, features={"characters": "lstm"}), tmp_path / "plain")
    recipe = recipe_of(data, steps=3, features={"characters": "lstm"}, adversarial=SIZE)
    losses = losses_of(recipe, tmp_path / "moved")
    assert losses[0] == plain[0]  # the reported loss is that of the first pass
    assert losses[1:] != plain[1:]


def test_adversarial_training_changes_models_with_pretrained_layers(origin: Path, topics: Path, tmp_path: Path) -> None:
    encoder = {"from": str(origin), "dropout": 0.0}
    recipe = classifying(topics, encoder=encoder, features={"d_words": 0}, steps=4, adversarial=SIZE)
    plain = recipe.model_copy(update={"train": recipe.train.model_copy(update={"adversarial": 0.0})})
    losses, expected = losses_of(recipe, tmp_path / "moved"), losses_of(plain, tmp_path / "plain")
    assert losses != expected


def test_bags_of_ngrams_refuse_adversarial_training(topics: Path) -> None:
    with pytest.raises(RecipeError, match="a bag of n-grams has no vectors to perturb"):
        classifying(topics, encoder={"kind": "none"}, head={"pooling": [], "ngrams": 2}, steps=2, adversarial=1.0)
