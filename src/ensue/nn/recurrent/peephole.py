"""Long short-term memory whose gates read the cell."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.recurrent.lstm import LSTMState, LSTMVariant
from ensue.types import State


class PeepholeLSTM(LSTMVariant):
    """An LSTM whose gates read the cell of their own unit; the output gate reads the new one (Gers & Schmidhuber 2000):

        i = σ(W_i x + U_i h + p_i ⊙ c + b_i)    f = σ(W_f x + U_f h + p_f ⊙ c + b_f)
        g = tanh(W_g x + U_g h + b_g)           c' = f ⊙ c + i ⊙ g
        o = σ(W_o x + U_o h + p_o ⊙ c' + b_o)   h' = o ⊙ tanh(c')

    The weights stack i, f, g, o. The peepholes p (d,) start at 0, which makes it an LSTM. The forget bias starts at 1.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.peephole_input = nn.Parameter(torch.zeros(d_out))
        self.peephole_forget = nn.Parameter(torch.zeros(d_out))
        self.peephole_output = nn.Parameter(torch.zeros(d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        z = F.linear(x_t, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)
        z_i, z_f, z_g, z_o = z.chunk(4, dim=-1)
        i = self.gates.input(torch.sigmoid(z_i + self.peephole_input * c))
        f = self.gates.forget(torch.sigmoid(z_f + self.peephole_forget * c))
        g = self.gates.candidate(torch.tanh(z_g))
        c = self.cell(f * c + i * g)
        o = self.gates.output(torch.sigmoid(z_o + self.peephole_output * c))
        h = self.hidden(o * torch.tanh(c))
        return h, LSTMState(h, c)
