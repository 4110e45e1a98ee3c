"""A layer that is open where its gate is closed."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.border import expect_features


class Highway(nn.Module):
    """Changes x where a gate is open, and leaves it as it is elsewhere (Srivastava et al. 2015):

        g = σ(W_g x + b_g)        y = g ⊙ relu(W x + b) + (1 - g) ⊙ x

    It maps (..., d) to (..., d). The bias of the gate starts at -2, so that most of x goes through.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d = d
        self.transform, self.gate = nn.Linear(d, d), nn.Linear(d, d)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """The features of `x`. Raises `ValueError` for a wrong size, `TypeError` for a wrong type."""
        expect_features(type(self).__name__, "x", x, self.d, self.gate.bias)
        return torch.lerp(x, torch.relu(self.transform(x)), torch.sigmoid(self.gate(x)))

    def __repr__(self) -> str:
        return f"Highway({self.d})"
