"""Optimizers, fused into one kernel where torch has it."""

from __future__ import annotations

import torch
from torch import nn

from ensue.ranks import is_in_parts
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
