"""A running average of the weights of a model in training.

    θ̄_n = d_n θ̄_{n-1} + (1 - d_n) θ_n,   d_n = min(d, (1 + n) / (10 + n))

The average over the last 1/(1 - d) steps scores better than the last weights (Polyak & Juditsky 1992). It does what the
mean of the last checkpoints does in translation (Vaswani et al. 2017), and keeps one copy of the weights, not several.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn


class Average:
    """The average of a model's weights: `model` is a copy with the averaged weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def add(self, model: nn.Module, step: int) -> None:
        """Adds the weights after step number `step`, counted from 1."""
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.model.parameters()), list(model.parameters()), share)
