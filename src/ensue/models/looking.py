"""Losses of a decoder's attention: a penalty for uneven looking, and for drawn places an estimate of the gradient."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

PACE = 50.0
"""A step of an optimizer moves a parameter by about the learning rate; the baseline moves this many times as far."""


def uneven_looks(
    alpha: Float[Tensor, "B T S"], real: Bool[Tensor, "B S"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """`Σ_i (1 − Σ_t α_ti)²` over the real places i and steps t of all rows (Xu et al. 2015, eq. 14)."""
    looks = (alpha * mask.unsqueeze(2)).sum(1)
    return ((1 - looks) ** 2 * real).sum()


class DrawnLooks(nn.Module):
    """The surrogate of hard attention (Xu et al. 2015, section 4.1; Williams 1992), to be minimized:

        Σ_t (N_t − b n_t) ln α_t[s_t]  −  λ Σ_t H[α_t]  +  ½ Σ_t (ν_t − b)²

    ν_t are the nats of the token t, which are fixed here. The draw s_t has to do with the tokens from t on alone: N_t
    is the sum of their nats and n_t their number. That has the expectation of the paper's estimate, which has the nats
    of all tokens at all draws, and varies less. The last term moves the baseline b to the mean of the ν_t. b is a
    parameter, so it is in the checkpoints and the same in all processes.
    """

    def __init__(self, *, entropy: float) -> None:
        super().__init__()
        self.entropy = entropy
        self.slow_baseline = nn.Parameter(torch.zeros(()))

    @property
    def baseline(self) -> Tensor:
        """b, in nats for a token."""
        return PACE * self.slow_baseline

    def forward(
        self,
        alpha: Float[Tensor, "B T S"],
        chosen: Float[Tensor, "B T S"],
        nats: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> Float[Tensor, ""]:
        """The surrogate. `chosen` is 1 at the place that was drawn, and 0 everywhere where none was."""
        nats = nats.detach().masked_fill(~mask, 0.0)
        to_come, tokens = (part.flip(1).cumsum(1).flip(1) for part in (nats, mask.to(nats.dtype)))
        logarithms = alpha.clamp(min=torch.finfo(alpha.dtype).tiny).log()
        of_draws = ((to_come - self.baseline.detach() * tokens) * (chosen.detach() * logarithms).sum(2))[mask].sum()
        entropy = -(alpha * logarithms).sum(2)[mask].sum()
        error = 0.5 * ((nats - self.baseline) ** 2)[mask].sum()
        surrogate: Tensor = of_draws - self.entropy * entropy + error
        return surrogate
