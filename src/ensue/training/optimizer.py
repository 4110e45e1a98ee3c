"""Optimizers, fused into one kernel where torch has it."""

from __future__ import annotations

import torch
from torch import nn

from ensue.recipe import TrainRecipe


def build_optimizer(model: nn.Module, recipe: TrainRecipe) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019) or SGD with momentum. Weight decay acts on matrices only."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    fused = {parameter.device.type for parameter in parameters} <= {"cpu", "cuda"}
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.beta1, fused=fused)
    betas = (recipe.beta1, recipe.beta2)
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=betas, fused=fused)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
