"""Long short-term memory with layer normalization inside the recurrence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.recurrent.lstm import LSTMState, LSTMVariant
from ensue.types import State


class LayerNormLSTM(LSTMVariant):
    """An LSTM with layer normalization (Ba, Kiros & Hinton 2016, eqs. 20-22).

    With LN(a; γ) = γ ⊙ (a - mean a) / √(var a + 1e-5):

        [i; f; g; o] = [σ; σ; tanh; σ](LN(W x; γ_x) + LN(U h; γ_h) + b)
        c' = f ⊙ c + i ⊙ g      h' = o ⊙ tanh(LN(c'; γ_c) + b_c)

    The first two normalizations are over all 4d numbers of a row, not over those of one gate, and the cell that is
    passed on is c' itself. Both are so in the paper; other implementations differ. The three biases of the paper's
    gates are one here, since they are added. The weights stack i, f, g, o. The gains γ and the forget bias start at 1.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.gain_input = nn.Parameter(torch.ones(4 * d_out))
        self.gain_hidden = nn.Parameter(torch.ones(4 * d_out))
        self.gain_cell = nn.Parameter(torch.ones(d_out))
        self.bias_cell = nn.Parameter(torch.zeros(d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        d = self.d_out
        z_x = F.layer_norm(F.linear(x_t, self.weight_input), (4 * d,), self.gain_input)
        z_h = F.layer_norm(F.linear(h, self.weight_hidden), (4 * d,), self.gain_hidden)
        z_i, z_f, z_g, z_o = (z_x + z_h + self.bias).chunk(4, dim=-1)
        i, f = self.gates.input(torch.sigmoid(z_i)), self.gates.forget(torch.sigmoid(z_f))
        g, o = self.gates.candidate(torch.tanh(z_g)), self.gates.output(torch.sigmoid(z_o))
        c = self.cell(f * c + i * g)
        h = self.hidden(o * torch.tanh(F.layer_norm(c, (d,), self.gain_cell, self.bias_cell)))
        return h, LSTMState(h, c)
