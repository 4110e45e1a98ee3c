"""Recurrent decoders with attention: Luong's attentional layer, after the cells or inside of their step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.attention.cross import CrossAttention
from ensue.nn.layer import Parallel, Recurrent, SequenceLayer
from ensue.types import Memory, Shared, State


class AttentionalLayer(Parallel):
    """Each position beside what it attends to (Luong et al. 2015, eq. 5), c being the output of `attention`:

        y_t = tanh(W [c_t; x_t])

    After recurrent layers it makes a decoder with attention that trains at their full speed. `d_out` is d_in unless it
    is given.
    """

    def __init__(self, attention: CrossAttention, *, d_out: int | None = None) -> None:
        super().__init__()
        self.attention = attention
        self.d_in, self.d_memory = attention.d_in, attention.d_memory
        self.d_out = attention.d_in if d_out is None else d_out
        self.combine = nn.Linear(attention.d_out + attention.d_in, self.d_out, bias=False)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Shared:
        return self.attention.init_state(batch_size, memory)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], Shared]:
        context, state = self.attention(x, state, mask=mask)
        return torch.tanh(self.combine(torch.cat((context, x), dim=-1))), state

    def extra_repr(self) -> str:
        return f"{self.attention!r}, d_out={self.d_out}"


class InputFeedingState(NamedTuple):
    """The last output, which the next step reads; the state of the cell; and the memory."""

    fed: Float[Tensor, "B d_out"]
    inner: State
    memory: Shared


class InputFeeding(Recurrent):
    """Attention inside of the step: each step reads the last output, which knows what was attended to (Luong et al.
    2015, section 3.3; the idea is that of Bahdanau et al. 2015):

        h_t = cell([x_t; y_{t-1}], h_{t-1})        y_t = attentional(h_t)

    y_0 is zero. `cell` is any causal layer with `step`, also a stack or one that starts `FromContext`. Raises
    `ValueError` if the sizes do not fit.
    """

    def __init__(self, cell: SequenceLayer, attentional: AttentionalLayer) -> None:
        super().__init__()
        if cell.d_out != attentional.d_in:
            raise ValueError(f"{attentional!r} cannot read the {cell.d_out} features of {cell!r}")
        if cell.d_in <= attentional.d_out:
            raise ValueError(f"{cell!r} has no room for x beside {attentional.d_out} features of the last output")
        if cell.d_memory not in (None, attentional.d_memory) or not cell.is_causal:
            raise ValueError(f"{cell!r} cannot step before {attentional!r}")
        self.cell, self.attentional = cell, attentional
        self.d_in, self.d_out = cell.d_in - attentional.d_out, attentional.d_out
        self.d_memory = attentional.d_memory

    def init_state(self, batch_size: int, memory: Memory | None = None) -> InputFeedingState:
        fed = self.attentional.combine.weight.new_zeros(batch_size, self.d_out)
        inner = self.cell.init_state(batch_size, memory)
        return InputFeedingState(fed, inner, self.attentional.init_state(batch_size, memory))

    def step(
        self, x_t: Float[Tensor, "B d_in"], state: State = None
    ) -> tuple[Float[Tensor, "B d_out"], InputFeedingState]:
        fed, inner, memory = self.init_state(len(x_t)) if state is None else state
        h_t, inner = self.cell.step(torch.cat((x_t, fed), dim=-1), inner)
        y_t, memory = self.attentional.step(h_t, memory)
        return y_t, InputFeedingState(y_t, inner, memory)

    def extra_repr(self) -> str:
        return f"{self.cell!r}, {self.attentional!r}"
