"""Attention before the cell: a step looks at the memory from where it stands, and then goes on (Xu et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.attention.cross import AdditiveAttention, CrossAttention
from ensue.nn.draws import uniform
from ensue.nn.dropout import checked_share
from ensue.nn.layer import Recurrent, SequenceLayer
from ensue.nn.pooling import MeanPooling
from ensue.nn.taps import Tap
from ensue.types import Memory, Shared, State


class BeforeState(NamedTuple):
    """The output of the cell, which asks next; the state of the cell; and the memory."""

    h: Float[Tensor, "B d_cell"]
    inner: State
    memory: Shared


class AttentionBefore(Recurrent):
    """Attention before the cell, with the gate β on what is seen (Xu et al. 2015, section 3.1.2 and 4.2.1):

        ẑ_t = β_t Σ_i α_ti a_i,   α_t = softmax_i f_att(a_i, h_{t-1}),   β_t = σ(w · h_{t-1} + b)
        h_t = cell([x_t; ẑ_t], h_{t-1})        y_t = tanh(W [x_t; h_t; ẑ_t])

    f_att is that of `attention`. h_0 is tanh(U ā + b) of the mean ā of the memory; the state of `cell` is its own
    business, which a cell that starts `FromContext` makes of the mean, too. `gated` False: β is 1. Raises `ValueError`
    if the sizes do not fit. Tap, if gated: `beta`, (B, 1).
    """

    def __init__(self, cell: SequenceLayer, attention: CrossAttention, *, d_out: int, gated: bool = True) -> None:
        super().__init__()
        if cell.d_out != attention.d_in:
            raise ValueError(f"{attention!r} cannot be asked by the {cell.d_out} features of {cell!r}")
        if cell.d_in <= attention.d_out:
            raise ValueError(f"{cell!r} has no room for x beside {attention.d_out} features of {attention!r}")
        if cell.d_memory not in (None, attention.d_memory) or not cell.is_causal:
            raise ValueError(f"{cell!r} cannot step behind {attention!r}")
        assert attention.d_memory is not None
        self.cell, self.attention = cell, attention
        self.d_in, self.d_out, self.d_memory = cell.d_in - attention.d_out, d_out, attention.d_memory
        self.pooling = MeanPooling(attention.d_memory)
        self.start = nn.Linear(attention.d_memory, cell.d_out)
        self.gate = nn.Linear(cell.d_out, 1) if gated else None
        self.beta = Tap() if gated else None
        self.combine = nn.Linear(self.d_in + cell.d_out + attention.d_out, d_out, bias=False)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> BeforeState:
        none = self.pooling.init_state(batch_size)
        mean = self.pooling.result(none) if memory is None else self.pooling(memory.values, memory.mask)
        inner = self.cell.init_state(batch_size, memory)
        return BeforeState(torch.tanh(self.start(mean)), inner, self.attention.init_state(batch_size, memory))

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], BeforeState]:
        return self.fold(x, state, mask=mask)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], BeforeState]:
        h, inner, memory = self.init_state(len(x_t)) if state is None else state
        z, memory = self.attention.step(h, memory)
        if self.gate is not None and self.beta is not None:
            z = self.beta(torch.sigmoid(self.gate(h))) * z
        h, inner = self.cell.step(torch.cat((x_t, z), dim=-1), inner)
        y_t = torch.tanh(self.combine(torch.cat((x_t, h, z), dim=-1)))
        return y_t, BeforeState(h, inner, memory)

    def extra_repr(self) -> str:
        return f"{self.cell!r}, {self.attention!r}, d_out={self.d_out}, gated={self.gate is not None}"


class HardAttention(AdditiveAttention):
    """One position s, drawn from α, in place of the mean: `y = value(h_s)` (Xu et al. 2015, section 4.1).

    A draw has no derivative, so α learns from an estimate (`ensue.models.hard_attention`). In a share `expected` of the
    steps the mean stands in place of the draw. In evaluation it is the most probable position, which has the derivative
    of the mean. Taps: `weights`, α, and `chosen`, (B, 1, T, S): 1 at a position that stands for all.
    """

    def __init__(self, d_in: int, d_memory: int, *, d_attention: int | None = None, expected: float = 0.0) -> None:
        super().__init__(d_in, d_memory, d_attention=d_attention)
        self.expected, self.chosen = checked_share(expected), Tap()

    def _used(self, alpha: Tensor) -> Tensor:
        if not alpha.shape[-1]:
            return alpha
        if not self.training:
            places = torch.arange(alpha.shape[-1], device=alpha.device)
            best = ((places == alpha.argmax(-1, keepdim=True)) & (alpha > 0)).to(alpha.dtype)
            return self.chosen(best + alpha - alpha.detach())
        is_drawn = uniform(alpha.shape[:-1], device=alpha.device) >= self.expected
        chosen = self.chosen(self.draw(alpha.detach()) * is_drawn.unsqueeze(-1))
        return torch.where(is_drawn.unsqueeze(-1), chosen, alpha)

    def draw(self, alpha: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T S"]:
        """1 at the position that is drawn from each α, 0 elsewhere; 0 everywhere if there is nothing to draw."""
        points = uniform((*alpha.shape[:-1], 1), device=alpha.device).to(alpha.dtype)
        below = alpha.cumsum(-1) <= points * alpha.sum(-1, keepdim=True)
        place = below.sum(-1, keepdim=True).clamp(max=alpha.shape[-1] - 1)
        return torch.zeros_like(alpha).scatter_(-1, place, 1.0) * (alpha > 0)

    def extra_repr(self) -> str:
        sizes = f"d_in={self.d_in}, d_memory={self.d_memory}, d_attention={self.d_attention}"
        return f"{sizes}, expected={self.expected}"


def joined_steps(seen: Sequence[Tensor], length: int) -> Float[Tensor, "B T S"]:
    """The weights of attention, (B, H, T, S) or (B, T, S), at `length` positions, the mean of heads: from one call for
    all positions, or from one for each.
    """
    by_head = [found.mean(1) if found.dim() == 4 else found for found in seen]
    return by_head[0] if len(by_head) == 1 else torch.cat(by_head[:: len(by_head) // length], dim=1)
