"""Adversarial training: a second pass over each batch, with the vectors moved to where the loss rises most."""

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


class Given(nn.Module):
    """Stands in for features: what it is given, whatever is read."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.x = x

    def forward(self, words: Any) -> Tensor:
        return self.x


def losses_of(recipe: Recipe, run: Path, **options: Any) -> list[float]:
    recorder = Recorder()
    run_tiny(recipe, run, reporter=recorder, **options)
    return [report.loss for report in recorder.steps]


def test_the_gradient_is_that_of_both_losses(topics: Path) -> None:
    job: Any = begin_job(classifying(topics), None)
    torch.manual_seed(0)
    model = job.build_model().train()
    batch = job.task.lazy_batch(0, torch.device("cpu"))
    found = Gradients(model, job.task, seed=3, precision="float32", group=ProcessGroup())
    found.adversarial = SIZE
    found.compute(batch, None, step=0, micro_batches=1)
    gradients = {name: parameter.grad for name, parameter in model.layers.named_parameters()}
    model.zero_grad()

    read, features = batch.all_rows, model.features
    lengths = [int(row.sum()) for row in read.texts[0].mask]
    x = features(read.texts[0]).detach().requires_grad_()
    model.features = Given(x)
    loss = job.task.loss(model, read, None)[0].total / batch.count
    (slope,) = torch.autograd.grad(loss, x, retain_graph=True)
    moved = x.detach().clone()
    for row, length in enumerate(lengths):
        norm = x[row, :length].norm(dim=-1).mean()
        moved[row, :length] += SIZE * norm * slope[row, :length] / slope[row, :length].norm()
    model.features = Given(moved)
    second = job.task.loss(model, read, None)[0].total / batch.count
    (loss + second).backward()

    assert second > loss
    assert found.total.item() / batch.count == pytest.approx(loss.item())
    assert min(lengths) < max(lengths)
    for name, parameter in model.layers.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, msg=name)


@pytest.mark.parametrize("recipe_of", [classifying, tagging])
def test_it_is_for_classifiers_and_taggers(recipe_of: Any, topics: Path, names: Path, tmp_path: Path) -> None:
    data = topics if recipe_of is classifying else names
    plain = losses_of(recipe_of(data, steps=3, features={"characters": "lstm"}), tmp_path / "plain")
    recipe = recipe_of(data, steps=3, features={"characters": "lstm"}, adversarial=SIZE)
    found = losses_of(recipe, tmp_path / "moved")
    assert found[0] == plain[0]  # the loss of the first pass
    assert found[1:] != plain[1:]


def test_layers_of_another_model_take_it(origin: Path, topics: Path, tmp_path: Path) -> None:
    encoder = {"from": str(origin), "dropout": 0.0}
    recipe = classifying(topics, encoder=encoder, features={"d_words": 0}, steps=4, adversarial=SIZE)
    plain = recipe.model_copy(update={"train": recipe.train.model_copy(update={"adversarial": 0.0})})
    found, expected = losses_of(recipe, tmp_path / "moved"), losses_of(plain, tmp_path / "plain")
    assert found != expected


def test_n_grams_have_no_vectors_to_move(topics: Path) -> None:
    with pytest.raises(RecipeError, match="a bag of n-grams has no vectors to perturb"):
        classifying(topics, encoder={"kind": "none"}, head={"pooling": [], "ngrams": 2}, steps=2, adversarial=1.0)
