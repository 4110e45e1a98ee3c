"""Long short-term memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.initialization import gate_bias, hidden_weight, input_weight
from ensue.nn.recurrent.vendor import run_kernel
from ensue.nn.taps import Tap, Taps
from ensue.types import Memory, State


class LSTMState(NamedTuple):
    """The hidden state h, which is the output, and the cell c."""

    h: Float[Tensor, "B d"]
    c: Float[Tensor, "B d"]


class LSTMVariant(Recurrent):
    """The weights of all gates and the state of h and c, which the variants of the LSTM share.

    `gates` are in the order in which the weights stack them. The forget bias starts at 1 (Jozefowicz et al. 2015).
    """

    def __init__(
        self, d_in: int, d_out: int, *, gates: Sequence[str] = ("input", "forget", "candidate", "output")
    ) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.weight_input = input_weight(len(gates), d_out, d_in)
        self.weight_hidden = hidden_weight(len(gates), d_out)
        self.bias = gate_bias(len(gates), d_out, forget=gates.index("forget"))
        self.gates = Taps(*gates)
        self.cell, self.hidden = Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LSTMState:
        zeros = self.weight_hidden.new_zeros(batch_size, self.d_out)
        return LSTMState(h=zeros, c=zeros)


class LSTM(LSTMVariant):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; Gers et al. 2000 for the forget gate; SLP eqs. 9.22-9.29):

        i = σ(W_i x + U_i h + b_i)        f = σ(W_f x + U_f h + b_f)
        g = tanh(W_g x + U_g h + b_g)     o = σ(W_o x + U_o h + b_o)
        c' = f ⊙ c + i ⊙ g                h' = o ⊙ tanh(c')

    The weights stack i, f, g, o in torch's order. The forget bias starts at 1.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.zero_bias: Tensor
        self.register_buffer("zero_bias", torch.zeros(4 * d_out), persistent=False)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        z = F.linear(x_t, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)
        z_i, z_f, z_g, z_o = z.chunk(4, dim=-1)
        i, f = self.gates.input(torch.sigmoid(z_i)), self.gates.forget(torch.sigmoid(z_f))
        g, o = self.gates.candidate(torch.tanh(z_g)), self.gates.output(torch.sigmoid(z_o))
        c = self.cell(f * c + i * g)
        h = self.hidden(o * torch.tanh(c))
        return h, LSTMState(h, c)

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, LSTMState]:
        state = self.init_state(len(x)) if state is None else state
        weights = [self.weight_input, self.weight_hidden, self.bias, self.zero_bias]
        y, (h, c) = run_kernel(torch.lstm, x, state, weights, mask)
        return y, LSTMState(h, c)
