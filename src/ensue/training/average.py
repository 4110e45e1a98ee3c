"""A running average of the weights of a model in training.

    θ̄_n = d_n θ̄_{n-1} + (1 - d_n) θ_n,   d_n = min(d, (1 + n) / (10 + n))

It is the mean of about the last 1/(1 - d) steps (Polyak & Juditsky 1992). In place of the mean of the last checkpoints,
which is usual in translation (Vaswani et al. 2017), one copy of the weights is kept.
"""

from __future__ import annotations

from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from ensue.models.modules import copied
from ensue.ranks import held


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
