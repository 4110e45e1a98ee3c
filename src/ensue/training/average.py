"""A running average of the weights of a model in training.

    θ̄_n = d_n θ̄_{n-1} + (1 - d_n) θ_n,   d_n = min(d, (1 + n) / (10 + n))

It is the mean of about the last 1/(1 - d) steps (Polyak & Juditsky 1992). In place of the mean of the last checkpoints,
which is usual in translation (Vaswani et al. 2017), one copy of the weights is kept.
"""

from __future__ import annotations

from copy import deepcopy

from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class Average:
    """The average of a model's weights: `model` is a copy with the averaged weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = deepcopy(model).requires_grad_(False)

    def add(self, model: nn.Module, step: int) -> None:
        """Adds the weights after step number `step`, counted from 1.

        Weights that are not trained stay as they are. Some are -inf, of which there is no mean.
        """
        pairs = zip(self.model.parameters(), model.parameters(), strict=True)
        averaged, trained = zip(*((ours, theirs) for ours, theirs in pairs if theirs.requires_grad), strict=True)
        decay = min(self.decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(averaged, trained, step)  # type: ignore[no-untyped-call]
