"""Drawing: images to batches, batches to the bound, and its scores."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ensue.data.permutation import Permutation, mix
from ensue.models.modules import device_of, evaluating
from ensue.models.painter import Bound, Painter
from ensue.nn.draws import normal
from ensue.ranks import spread
from ensue.tasks.contract.task import NamedScores, Task, TensorBatch, on_device
from ensue.tasks.drawing.images import Images, binarized, drawn_pixels
from ensue.tasks.drawing.recipe import DrawingRecipe
from ensue.types import Loss, State

AT_ONCE = 250
"""The images, or draws for them, that are scored together."""


class Drawing(Task[Painter, TensorBatch]):
    """Images in random order, judged by the bound in nats per image."""

    judged_by = "nats_per_image"
    less_is_better = True

    def __init__(self, train: Images, valid: Images | None, recipe: DrawingRecipe) -> None:
        self.anew = recipe.data.binarize == "anew"
        self.train = train if self.anew else binarized(train, recipe.data.binarize)
        self.valid = valid and binarized(valid, recipe.data.binarize)
        self.seed, self.batch_size = recipe.train.seed, min(recipe.train.batch_size, len(train))
        self.steps_per_epoch = math.ceil(len(train) / self.batch_size)
        self.tokens_per_step = len(train) / self.steps_per_epoch

    def batch(self, step: int, device: torch.device) -> TensorBatch:
        epoch, index = divmod(step, self.steps_per_epoch)
        first = index * self.batch_size
        places = np.arange(first, min(first + self.batch_size, len(self.train)))
        pixels = self.train.pixels[Permutation(len(self.train), mix(self.seed, epoch))(places)]
        if self.anew:
            pixels = drawn_pixels(pixels, np.random.default_rng(mix(self.seed, step, 1)))
        return TensorBatch((on_device(pixels, device),))

    def loss(self, model: Painter, batch: TensorBatch, state: State) -> tuple[Loss, State]:
        (x,) = batch.tensors
        noise = normal((len(x), model.glimpses, model.d_latent), device=x.device)
        return Loss(model(x, noise).total.sum(), len(x)), None

    def validate(self, model: Painter) -> NamedScores | None:
        return None if self.valid is None else score_painter(model, self.valid)


def score_painter(model: Painter, images: Images, *, draws: int = 1) -> NamedScores:
    """The bound in nats per image, its two parts, and from several draws of z also an estimate of `-log p(x)` by
    importance sampling, `-log 1/K Σ_k p(x, z_k) / Q(z_k | x)` (Rezende et al. 2014). It is closer, and in the mean over
    draws not below `-log p(x)` either.
    """
    device, rows = device_of(model), range(len(images) * draws)

    @torch.inference_mode()
    def scored(batch: range) -> Tensor:
        """The reconstruction, the divergence and the weight of each row (3, B)."""
        x = on_device(images.pixels[np.array(batch) // draws], device)
        bound: Bound = model(x, noise_of(model, batch, device))
        return torch.stack([bound.reconstruction, bound.divergence.sum(1), bound.weight]).double().cpu()

    with evaluating(model):
        batches = [rows[first : first + AT_ONCE] for first in rows[::AT_ONCE]]
        reconstruction, divergence, weight = torch.cat(list(spread(scored, batches)), 1)
    scores = NamedScores(
        nats_per_image=float((reconstruction + divergence).mean()),
        reconstruction=float(reconstruction.mean()),
        divergence=float(divergence.mean()),
    )
    if draws > 1:
        scores["importance_nats"] = float((math.log(draws) - weight.view(-1, draws).logsumexp(1)).mean())
    return scores


def noise_of(model: Painter, numbers: range, device: torch.device, *, seed: int = 0) -> Tensor:
    """The draws of N(0, 1) of these rows, (B, T, d_latent). Those of a row depend on its number and the seed alone."""
    shape = (model.glimpses, model.d_latent)
    generators = (np.random.default_rng((seed, number, 1)) for number in numbers)  # other ones than pixels have
    rows = [generator.standard_normal(shape, np.float32) for generator in generators]
    return on_device(np.stack(rows), device)
