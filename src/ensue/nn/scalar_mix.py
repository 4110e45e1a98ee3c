"""The layers of a model as one: their weighted sum, with trained weights."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.border import ANY, expect


class ScalarMix(nn.Module):
    """`γ Σ_j softmax(s)_j h_j` over L layers (Peters et al. 2018, eq. 1). It begins as their mean.

    Raises ValueError for another number of layers.
    """

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.scores = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, h: Float[Tensor, "*shape L d"]) -> Float[Tensor, "*shape d"]:
        """The mix of the layers `h` (..., L, d)."""
        sizes: list[int | str] = [*[ANY] * max(h.dim() - 2, 0), self.num_layers, ANY] if isinstance(h, Tensor) else []
        expect(type(self).__name__, "h", h, sizes, self.scores.dtype, like=self.scores)
        weights = self.gamma * self.scores.softmax(0)
        return (h * weights.unsqueeze(1)).sum(-2)

    def extra_repr(self) -> str:
        return f"num_layers={self.num_layers}"
