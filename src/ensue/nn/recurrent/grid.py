"""The Grid LSTM in two dimensions, time and depth: an LSTM along each, which read both."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.combinators import Stack
from ensue.nn.layer import Recurrent, SequenceLayer, blank
from ensue.nn.recurrent.initialization import hidden_weight, input_weight
from ensue.nn.recurrent.lstm import LSTMState
from ensue.nn.taps import Taps
from ensue.types import Memory, State

SEEN = ("input", "forget", "candidate", "output", "cell", "hidden")


class GridLayer(Recurrent):
    """The blocks of a `GridLSTM` at one depth: from [h_depth; c_depth] of the layer below to its own.

    The state is that of the time dimension. The weights stack i, f, g, o of time, then those of depth. `weight_input`
    multiplies h_depth and `weight_hidden` multiplies h_time; together they are the W that multiplies H.
    """

    def __init__(self, d_cell: int) -> None:
        super().__init__()
        self.d_in = self.d_out = 2 * d_cell
        self.weight_input = input_weight(8, d_cell, d_cell)
        self.weight_hidden = hidden_weight(8, d_cell)
        self.bias = nn.Parameter(torch.zeros(8 * d_cell))
        self.time, self.depth = Taps(*SEEN), Taps(*SEEN)
        for bias in self.bias.data.chunk(2):
            nn.init.ones_(bias[d_cell : 2 * d_cell])

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LSTMState:
        zeros = self.weight_hidden.new_zeros(batch_size, self.d_out // 2)
        return LSTMState(h=zeros, c=zeros)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h_time, c_time = self.init_state(len(x_t)) if state is None else state
        h_depth, c_depth = x_t.chunk(2, dim=-1)
        z = F.linear(h_depth, self.weight_input, self.bias) + F.linear(h_time, self.weight_hidden)
        z_time, z_depth = z.chunk(2, dim=-1)
        h_time, c_time = gated(z_time, c_time, self.time)
        h_depth, c_depth = gated(z_depth, c_depth, self.depth)
        return torch.cat((h_depth, c_depth), dim=-1), LSTMState(h_time, c_time)

    def extra_repr(self) -> str:
        return f"d_cell={self.d_out // 2}"


def gated(z: Float[Tensor, "B z"], c: Float[Tensor, "B d"], taps: Taps) -> tuple[Tensor, Tensor]:
    """h' and c' of an LSTM whose gates are `z` = [z_i; z_f; z_g; z_o] before their functions."""
    z_i, z_f, z_g, z_o = z.chunk(4, dim=-1)
    i, f = taps.input(torch.sigmoid(z_i)), taps.forget(torch.sigmoid(z_f))
    g, o = taps.candidate(torch.tanh(z_g)), taps.output(torch.sigmoid(z_o))
    c = taps.cell(f * c + i * g)
    return taps.hidden(o * torch.tanh(c)), c


class GridLSTM(SequenceLayer):
    """The Grid LSTM with the dimensions time and depth (Kalchbrenner, Danihelka & Graves 2015). In each of `num_layers`
    layers, at each position:

        H = [h_time; h_depth]                                  h_time from t - 1, h_depth from the layer below
        h'_time, c'_time = LSTM_time(H, c_time)                passed to t + 1
        h'_depth, c'_depth = LSTM_depth(H, c_depth)            passed to the layer above

    where LSTM(H, c) is c' = f ⊙ c + i ⊙ g, h' = o ⊙ tanh(c'), with i, f, o = σ(W H + b) and g = tanh(W H + b). Layers
    and dimensions share no weights. A linear map of x gives the (h_depth, c_depth) that enter the first layer. The
    output is h_depth of the last layer. The state is a tuple of one `LSTMState` of the time dimension for each layer.
    The forget biases start at 1. Raises `ValueError` if `num_layers` is below 1.
    """

    def __init__(self, d_in: int, d_out: int, *, num_layers: int) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"a GridLSTM needs at least one layer, not {num_layers}")
        self.d_in, self.d_out, self.num_layers = d_in, d_out, num_layers
        self.entry = nn.Linear(d_in, 2 * d_out)
        self.stack = Stack([GridLayer(d_out) for _ in range(num_layers)])
        for block in self.entry.weight.chunk(2):
            nn.init.xavier_uniform_(block)
        nn.init.zeros_(self.entry.bias)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        return self.stack.init_state(batch_size, memory)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        h_and_c, state = self.stack(self.entry(blank(x, mask)), state, mask=mask)
        return h_and_c[..., : self.d_out], state

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        h_and_c, state = self.stack.step(self.entry(x_t), state)
        return h_and_c[..., : self.d_out], state

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, num_layers={self.num_layers}"
