"""Optimizers, budgets, learning rates over them, and a running average of the weights of a model in training:

    θ̄_n = d_n θ̄_{n-1} + (1 - d_n) θ_n,   d_n = min(d, (1 + n) / (10 + n))

The average is the mean of about the last 1/(1 - d) steps (Polyak & Juditsky 1992). In place of the mean of the last
checkpoints, which is usual in translation (Vaswani et al. 2017), one copy of the weights is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from ensue.models.modules import copied
from ensue.ranks import held, is_in_parts
from ensue.recipe import TrainRecipe
from ensue.training.tuning import Tuning


def build_optimizer(model: nn.Module, recipe: TrainRecipe, tuning: Tuning | None = None) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019) or SGD with momentum, over the groups of `tuning`."""
    groups = (tuning or Tuning(model)).groups(recipe.weight_decay)
    parameters = [parameter for group in groups for parameter in group["params"]]
    fused = {parameter.device.type for parameter in parameters} <= {"cpu", "cuda"}
    if recipe.optimizer == "sgd":
        fused = fused and not any(map(is_in_parts, parameters))  # which torch 2.13 does not have
        return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.beta1, fused=fused)
    betas = (recipe.beta1, recipe.beta2)
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=betas, fused=fused)


@dataclass(frozen=True)
class Budget:
    """How long a run trains: a number of `steps`, or of `seconds` of training steps."""

    steps: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, recipe: TrainRecipe, *, steps_per_epoch: int, tokens_per_step: float) -> Budget:
        """The budget of a recipe. Epochs and tokens are converted to steps, rounded up."""
        if recipe.seconds is not None:
            return cls(seconds=recipe.seconds)
        if recipe.steps is not None:
            return cls(steps=recipe.steps)
        if recipe.epochs is not None:
            return cls(steps=math.ceil(recipe.epochs * steps_per_epoch))
        assert recipe.tokens is not None
        return cls(steps=math.ceil(recipe.tokens / tokens_per_step))

    def progress(self, step: int, seconds: float) -> float:
        """The share of the budget that is used, from 0 to 1, after `step` steps in `seconds` seconds."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        assert self.seconds is not None
        return min(1.0, seconds / self.seconds)


def learning_rate(recipe: TrainRecipe, progress: float) -> float:
    """The learning rate at `progress`: a linear warm-up over the share `warmup` of the budget, then the schedule's
    fall.
    """
    if progress < recipe.warmup:
        return recipe.learning_rate * progress / recipe.warmup
    if recipe.schedule == "inverse-sqrt":
        return recipe.learning_rate * math.sqrt(recipe.warmup / progress)
    return recipe.learning_rate * _decay(recipe.schedule, (progress - recipe.warmup) / (1 - recipe.warmup))


def _decay(schedule: Literal["linear", "cosine", "constant"], progress: float) -> float:
    match schedule:
        case "linear":
            return 1 - progress
        case "cosine":
            return 0.5 * (1 + math.cos(math.pi * progress))
    return 1.0


class Average:
    """The average of a model's weights: `model` is a copy, of `form` if it is given, with the averaged weights."""

    def __init__(self, model: nn.Module, decay: float, *, form: nn.Module | None = None) -> None:
        self.decay = decay
        weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        self.model = copied(form or model, weights)

    def add(self, model: nn.Module, step: int) -> None:
        """Adds the weights after step number `step`, counted from 1.

        Weights that are not trained stay as they are. Some are -inf, of which there is no mean.
        """
        pairs = zip(self.model.parameters(), model.parameters(), strict=True)
        ours_and_theirs = ((held(ours), held(theirs.detach())) for ours, theirs in pairs if theirs.requires_grad)
        averaged, trained = zip(*ours_and_theirs, strict=True)
        decay = min(self.decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(averaged, trained, step)  # type: ignore[no-untyped-call]
