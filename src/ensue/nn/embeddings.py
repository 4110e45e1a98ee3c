"""The input of a model as features: a table of token vectors, or real vectors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ensue.nn.border import expect
from ensue.nn.dropout import checked_share


class TokenEmbedding(nn.Module):
    """A trained vector for each token: ids (...) to features (..., d_out).

    Vectors are multiplied by `scale` (Vaswani et al. 2017, section 3.4). They start so that the features have unit
    variance, or the table with the standard deviation `std`. With a large `scale` or a small `std` it starts small, as
    a table that a softmax shares has to; recurrent layers learn fastest from large inputs.

    `dropout` is the share of the vocabulary whose vectors are zero in a training step. The others are scaled up (Gal &
    Ghahramani 2016).
    """

    def __init__(
        self,
        vocabulary_size: int,
        d_out: int,
        *,
        dropout: float = 0.0,
        scale: float = 1.0,
        std: float | None = None,
    ) -> None:
        super().__init__()
        self.vocabulary_size, self.d_out, self.dropout = vocabulary_size, d_out, checked_share(dropout)
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_out))
        nn.init.normal_(self.weight, std=1 / scale if std is None else std)

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape d_out"]:
        """The vectors of `ids`, which may have any shape. Raises `TypeError` unless they are whole numbers."""
        expect(type(self).__name__, "ids", ids, (...,), int, like=self.weight)
        if not self.training or self.dropout == 0:
            features = F.embedding(ids, self.weight)
            return features if self.scale == 1 else features * self.scale
        kept = F.dropout(self.weight.new_full((self.vocabulary_size, 1), self.scale), self.dropout)
        return F.embedding(ids, self.weight) * kept[ids]

    def extra_repr(self) -> str:
        return f"vocabulary_size={self.vocabulary_size}, d_out={self.d_out}, dropout={self.dropout}, scale={self.scale}"
