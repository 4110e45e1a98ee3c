"""Layers with a delta rule: a recurrence of matrices, between what is read from x and a last product."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.combinators import Stack
from ensue.nn.layer import Pointwise, Recurrent, Wrapper
from ensue.nn.recurrent.initialization import heads_of
from ensue.nn.taps import Tap
from ensue.types import Memory, State


class LastState(NamedTuple):
    """The last inputs of a convolution or of a token shift, side by side, the oldest first."""

    last: Float[Tensor, "B inputs"]


class DeltaState(NamedTuple):
    """A matrix S for each of k heads, with a row for each feature of the values and a column for each of the keys."""

    s: Float[Tensor, "B k d d"]


class DeltaRule(Recurrent):
    """The recurrence; a subclass writes `step`. It reads `d_in` features of each position."""

    def __init__(self, d_in: int, d_out: int, *, num_heads: int) -> None:
        super().__init__()
        self.d_in, self.d_out, self.num_heads, self.d_head = d_in, d_out, num_heads, heads_of(d_out, num_heads)
        self.gain = nn.Parameter(torch.ones(d_out))
        self.cell, self.hidden = Tap(), Tap()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, num_heads={self.num_heads}"

    def init_state(self, batch_size: int, memory: Memory | None = None) -> DeltaState:
        return DeltaState(self.gain.new_zeros(batch_size, self.num_heads, self.d_head, self.d_head))


class DeltaLayer(Wrapper):
    """Three parts: reading x, the recurrence, and a product. So no product stands in a loop of matrices."""

    @abstractmethod
    def __init__(self, reads: Recurrent, rule: DeltaRule) -> None:
        last = Pointwise(nn.Linear(rule.d_out, rule.d_out, bias=False), d_in=rule.d_out)
        super().__init__(Stack([reads, rule, last]))
        self.num_heads = rule.num_heads

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        return self.layer(x, state, mask=mask)  # type: ignore[no-any-return]

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        return self.layer.step(x_t, state)

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_out={self.d_out}, num_heads={self.num_heads}"


def unit(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
    """x / √(Σ x² + 10⁻⁶)."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)
