"""Long short-term memory with one gate for forgetting and for input."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.recurrent.lstm import LSTMState, LSTMVariant
from ensue.types import State


class CoupledLSTM(LSTMVariant):
    """An LSTM with coupled gates, i = 1 - f (Greff et al. 2017, CIFG):

        f = σ(W_f x + U_f h + b_f)      g = tanh(W_g x + U_g h + b_g)    o = σ(W_o x + U_o h + b_o)
        c' = f ⊙ c + (1 - f) ⊙ g        h' = o ⊙ tanh(c')

    The weights stack f, g, o. The forget bias starts at 1.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("forget", "candidate", "output"))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        z = F.linear(x_t, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)
        z_f, z_g, z_o = z.chunk(3, dim=-1)
        f, o = self.gates.forget(torch.sigmoid(z_f)), self.gates.output(torch.sigmoid(z_o))
        g = self.gates.candidate(torch.tanh(z_g))
        c = self.cell(f * c + (1 - f) * g)
        h = self.hidden(o * torch.tanh(c))
        return h, LSTMState(h, c)
